"""The Python in the README and the docs runs as written (with fewer steps)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from winnow import toy
from winnow.data import store
from winnow.weighters import WEIGHTERS

ROOT = Path(__file__).parent.parent
BLOCKS = [
    (page.name, number, block)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
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
