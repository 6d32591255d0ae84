"""Python in README and docs runs as written (with fewer steps); commands, files and targets named there exist."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import re
import shlex
from pathlib import Path

import pytest
from helpers.doc_blocks import follow

from winnow import toy
from winnow.algorithms import ALGORITHMS
from winnow.cli import COMMANDS, main
from winnow.data import store
from winnow.samplers import SAMPLERS
from winnow.weighters import WEIGHTERS

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted(ROOT.glob("*/README.md")), *sorted((ROOT / "docs").rglob("*.md")))
FOLLOWED = ("tutorial.md", "start.md")
"""Run from top to bottom: here, and in test_tutorial.py."""
LINES = [
    (page.name, line.split("  #")[0].rstrip("`.;: \\"))
    for page in PAGES
    for line in re.findall(r"(?:^ {4}|`)(winnow [a-z][^`\n]*)", page.read_text(encoding="utf-8"), re.MULTILINE)
]
BLOCKS = [
    (page.name, number, block)
    for page in PAGES
    if page.name not in FOLLOWED
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


def test_there_are_examples():
    assert {"README.md", "your-weighter.md", "your-algorithm.md", "plug.md"} <= {name for name, _, _ in BLOCKS}


def test_every_block_is_of_a_kind_that_runs():
    """Equations, outlines and commands are indented; what is fenced is run."""
    for page in PAGES:
        kinds = set(re.findall(r"^```(\w*)\n", page.read_text(encoding="utf-8"), re.MULTILINE)) - {""}
        assert kinds <= ({"python", "py", "sh", "toml"} if page.name in FOLLOWED else {"python"}), page.name


@pytest.mark.parametrize(("page", "number", "block"), BLOCKS, ids=[f"{name}-{number}" for name, number, _ in BLOCKS])
def test_python_in_the_docs_runs(page, number, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tables = [(table, dict(table)) for table in (ALGORITHMS, SAMPLERS, WEIGHTERS)]
    store.save(toy.make(toy.random, 500, 0, "mine"), tmp_path / "mine.safetensors")
    fewer = re.sub(r"steps=[\d_]+", "steps=20", block)
    try:
        exec(compile(fewer, f"{page} block {number}", "exec", dont_inherit=True), {"__name__": "__main__"})
    finally:
        for table, before in tables:
            table.clear()
            table.update(before)


@functools.cache
def help_of(name: str, *naming: str) -> str:
    """What a command says of itself, with the plug-ins that its words name."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([*name.split(), *naming, "--help"])
    return said.getvalue()


def naming(words: list[str]) -> list[str]:
    """The words that choose which settings a command has. (A page may write A for an algorithm.)"""
    tables = {"--algorithm": ALGORITHMS, "--sampler": SAMPLERS, "--weighter": WEIGHTERS}
    pairs = [(word, value) for word, value in itertools.pairwise(words) if value in tables.get(word, ())]
    return [word for pair in pairs for word in pair]


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}: {line}" for page, line in LINES])
def test_commands_in_the_docs_exist_with_their_options(page, line):
    words = shlex.split(line.replace("…", ""))[1:]
    name = next((n for n in (" ".join(words[:2]), words[0]) if n in COMMANDS), None)
    assert name, f"there is no such command: {line}"
    for option in (word.split("=")[0] for word in words if word.startswith("--") and word != "--help"):
        shown = help_of(name, *(naming(words) if name == "train" else ()))
        assert option in shown, f"{option} is not in `winnow {name} --help`"


def test_the_first_five_minutes_run(tmp_path):
    shorter = (
        (r"100_000", "6_000"),
        (r"20_000", "1_000"),
        (r"--seeds 3", "--seeds 1"),
        (r"--steps 5000", "--steps 50"),
    )
    said = follow("start.md", tmp_path, shorter)
    assert re.search(r"^uniform +-?\d+$", said, re.MULTILINE)
    assert re.search(r"^dual-uniform +-?\d+$", said, re.MULTILINE)
    assert list((tmp_path / "runs").glob("*.dual-uniform.seed0.weights.parquet"))


NAMED = re.compile(
    r"`(?:PYTHONPATH=\S+ )?(?:python )?((?:results|experiments|benchmarks|examples|tests|src|docs)/[\w./-]*\w/?)[` ]"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page):
    """A number's raw values, the script that makes it, the test that holds it."""
    missing = [name for name in NAMED.findall(page.read_text(encoding="utf-8")) if not (ROOT / name).exists()]
    assert not missing


def test_targets_of_make_that_the_docs_name_are_there():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for page in PAGES for name in re.findall(r"(?:`|^    )make ([a-z]+)", page.read_text(), re.MULTILINE)}
    assert {"demo", "test", "bench"} <= named <= set(targets)
