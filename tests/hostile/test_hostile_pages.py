"""Pages of data and results whose names are scripts, in a real browser: every letter is shown and none is run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser
from helpers.datasets import source
from helpers.made_results import planned, result

from winnow.bench.plan import digest
from winnow.cli import main
from winnow.data import store
from winnow.data.dataset import combine
from winnow.render import figures, pages

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine; .ci/run installs Debian's")

SCRIPTS = [
    "<script>window.run=1</script>",
    '"><img src=x onerror=window.run=1>',
    "'><svg onload=window.run=1>",
    "</script><script>window.run=1</script>",
    "</style></title></textarea><script>window.run=1</script>",
    "--><script>window.run=1</script><!--",
    '" onmouseover="window.run=1" autofocus onfocus="window.run=1',
    "javascript:window.run=1",
    "{{ 7 * 7 }}{% for a in b %}",
    "${window.run=1}",
    "&lt;script&gt;window.run=1&lt;/script&gt;",
    "$\\frac{\\alpha",
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        opened.look()
        yield opened


def check(browser: Browser, page: Path, scripts: int) -> str:
    """Open a page, move over all of it, and look for what was run or made of the names. Its text."""
    browser.complaints.clear()
    browser.open(page)
    browser.run(
        "for (const one of document.querySelectorAll('*:not(a)'))"
        " for (const kind of ['mouseover', 'focus', 'pointermove', 'click'])"
        " one.dispatchEvent(new Event(kind, {bubbles: true}))"
    )
    browser.run("new Promise(done => setTimeout(() => done(true), 200))")
    assert browser.run("typeof window.run") == "undefined"
    assert browser.run("document.scripts.length") == scripts
    attributes = "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes])"
    assert browser.run(f"{attributes}.filter(a => a.name.startsWith('on')).length") == 0
    assert browser.run("[...document.images].every(one => one.complete && one.naturalWidth > 0)")
    # Images are in the page itself; links lead to places in it, or to files of results.
    addresses = browser.run(
        "[...document.querySelectorAll('[href],[src]')].filter(e => !/^(#|data:image\\/svg)/.test("
        "e.getAttribute('href') ?? e.getAttribute('src'))).map(e => [e.localName, e.getAttribute('href'), e.href])"
    )
    for element, address, resolved in addresses:
        assert element == "a"
        assert resolved.startswith("file:")
        assert not set(address) & set("<>'\"")
    assert browser.complaints == []
    return browser.run("document.documentElement.textContent") + browser.run("document.title")


def test_the_page_of_a_dataset(browser, tmp_path):
    parts = {name: source(number / 10, 4, 12, seed=number) for number, name in enumerate(SCRIPTS)}
    data = combine(parts, name="; ".join(SCRIPTS[:3]), notes=tuple(SCRIPTS))
    store.save(data.describe(environment=SCRIPTS[1]), tmp_path / "x.safetensors")
    page = tmp_path / "page.html"
    assert main(["inspect", str(tmp_path / "x.safetensors"), "--html", str(page)]) == 0
    text = check(browser, page, 2)
    assert all(name in text for name in SCRIPTS)


def test_the_page_of_results(browser, tmp_path):
    for run in planned(["hopper-random-expert-5%"], methods=("uniform", "aw"), seeds=1):
        result(run).save(tmp_path)
        for number, name in enumerate(SCRIPTS):
            config = json.loads(json.dumps(run.config)) | {"environment": name, "seed": run.seed + 10 * number}
            config["dataset"]["name"], config["algorithm"]["name"] = name, SCRIPTS[number % 3]
            words: dict[str, Any] = {"name": name, "method": name, "swept": {f"weighter.{name}": name}, "command": name}
            words |= {"made_with": {name: name}, "failure": name if run.method == "aw" else None}
            result(run, config=config, id=digest(config), shares={name: 1.0}, **words).save(tmp_path)
    (tmp_path / "results" / "<script>window.run=1<!--.json").write_text("{}")
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--html", str(page)]) == 0
    text = check(browser, page, 1)
    assert all(name in text for name in SCRIPTS)


def test_the_page_of_the_demo(browser, tmp_path):
    drawn = pages.embedded(figures.scores({figures.plain(name): [1.0] for name in SCRIPTS}, "title", {}))
    lines = [{"name": name, "score": name, "each": name, "good": name, "words": name} for name in SCRIPTS]
    told = {
        "title": SCRIPTS[0],
        "verdict": SCRIPTS[1],
        "command": SCRIPTS[2],
        "versions": SCRIPTS[3],
        "steps": SCRIPTS[4],
    }
    shown = {"returns": drawn, "scores": drawn, "curves": drawn, "weights": [drawn]}
    dataset = {"rows": SCRIPTS[5], "environment": SCRIPTS[6], "share": SCRIPTS[7]}
    page = tmp_path / "page.html"
    pages.write(
        page, "demo.html", dataset=dataset, runs=[1], rounds=1, episodes=1, methods=lines, figures=shown, **told
    )
    text = check(browser, page, 0)
    assert all(name in text for name in SCRIPTS)


def test_a_script_would_be_seen(browser, tmp_path):
    """The check itself: a page that does not escape is caught."""
    page = tmp_path / "page.html"
    page.write_text(f"<title>x</title><p>{SCRIPTS[1]}</p><p>{SCRIPTS[0]}</p>")
    browser.open(page)
    browser.run("new Promise(done => setTimeout(() => done(true), 200))")
    assert browser.run("window.run") == 1
