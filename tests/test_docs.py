"""Python in the README and the docs runs as written (with fewer steps); commands there exist with their options."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import shlex
from pathlib import Path

import pytest

from winnow import toy
from winnow.cli import COMMANDS, main
from winnow.data import store
from winnow.weighters import WEIGHTERS

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
LINES = [
    (page.name, line.split("  #")[0].rstrip("`.;: "))
    for page in PAGES
    for line in re.findall(r"(?:^ {4}|`)(winnow [a-z][^`\n]*)", page.read_text(encoding="utf-8"), re.MULTILINE)
]
BLOCKS = [
    (page.name, number, block)
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


def test_there_are_examples():
    assert {"README.md", "weighters.md"} <= {name for name, _, _ in BLOCKS}


@pytest.mark.parametrize(("page", "number", "block"), BLOCKS, ids=[f"{name}-{number}" for name, number, _ in BLOCKS])
def test_python_in_the_docs_runs(page, number, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = dict(WEIGHTERS)
    store.save(toy.make(toy.random, 500, 0, "mine"), tmp_path / "mine.safetensors")
    fewer = re.sub(r"steps=[\d_]+", "steps=20", block)
    try:
        exec(compile(fewer, f"{page} block {number}", "exec"), {"__name__": "__main__"})
    finally:
        WEIGHTERS.clear()
        WEIGHTERS.update(before)


@functools.cache
def help_of(name: str) -> str:
    """What a command says of itself."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([*name.split(), "--help"])
    return said.getvalue()


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}: {line}" for page, line in LINES])
def test_commands_in_the_docs_exist_with_their_options(page, line):
    words = shlex.split(line.replace("…", ""))[1:]
    name = next((n for n in (" ".join(words[:2]), words[0]) if n in COMMANDS), None)
    assert name, f"there is no such command: {line}"
    for option in (word.split("=")[0] for word in words if word.startswith("--") and word != "--help"):
        assert option in help_of(name), f"{option} is not in `winnow {name} --help`"
