"""Pages: filled, escaped, and opened in a real browser."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from browser import CHROMIUM, QUIET

from winnow.render import figures, pages


def opened(page: Path, profile: Path) -> str:
    """The page as the browser has it after running it; fails on anything the browser's console complains of."""
    words = [str(CHROMIUM), "--headless", "--no-sandbox", *QUIET.split(), f"--user-data-dir={profile}"]
    done = subprocess.run(
        [*words, "--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert not re.findall(r".*CONSOLE.*", done.stderr)
    return done.stdout


def demo_page(path: Path, name: str = "uniform") -> Path:
    picture = pages.embedded(figures.scores({"a": [1.0, 2.0]}, "title", {"mark": 1.5}))
    line = {"name": name, "score": "1.0", "each": "1  2", "good": "5%", "words": "what it does"}
    pages.write(
        path,
        "demo.html",
        title="A title",
        dataset={"rows": "100", "environment": "hopper", "share": "10 %"},
        verdict="imbalanced",
        runs=[1, 2],
        steps="50",
        rounds=3,
        episodes=10,
        methods=[line],
        figures={"returns": picture, "scores": picture, "curves": picture, "weights": [picture]},
        command="winnow demo",
        versions="winnow 0",
    )
    return path


def test_names_are_escaped(tmp_path):
    text = demo_page(tmp_path / "page.html", name="<script>alert(1)</script>").read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_a_missing_fact_is_an_error(tmp_path):
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError):
        pages.write(tmp_path / "page.html", "demo.html", title="no more than this")
    assert not list(tmp_path.iterdir())


def test_a_page_needs_nothing_but_itself(tmp_path):
    text = demo_page(tmp_path / "page.html").read_text()
    assert not re.findall(r"(?:src|href)=\"(?!data:)", text)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine; .ci/run installs Debian's")
def test_the_page_opens_in_a_browser(tmp_path):
    dom = opened(demo_page(tmp_path / "page.html", name="<b>bold</b>"), tmp_path / "profile")
    assert dom.count("<tr>") == 2
    assert "&lt;b&gt;bold&lt;/b&gt;" in dom
