"""The notebook's code cells run from top to bottom, with fewer rows and updates; no Jupyter is needed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "five_minutes.ipynb"
SHORTER = (
    (r"toy\.imbalanced\(80_000", "toy.imbalanced(4_000"),
    (r"STEPS = 4_000", "STEPS = 40"),
    (r"seeds=2", "seeds=1"),
)


def cells(kind: str) -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_notebook_runs_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(cells("code")):
        for pattern, less in SHORTER:
            source = re.sub(pattern, less, source)
        exec(compile(source, f"cell {number}", "exec", dont_inherit=True), names)
    printed = capsys.readouterr().out
    assert re.search(r"^dw-aw +-?\d+$", printed, re.MULTILINE)
    assert re.search(r"^uniform +5% of the weight on the 5% expert rows$", printed, re.MULTILINE)
    assert (tmp_path / "weights.png").stat().st_size > 10_000


def test_notebook_is_shortened_where_the_test_thinks():
    text = "\n".join(cells("code"))
    assert all(re.search(pattern, text) for pattern, _ in SHORTER)


def test_notebook_names_pages_that_exist():
    named = re.findall(r"`(docs/[\w/-]+\.md)`", "\n".join(cells("markdown")))
    assert len(named) >= 3
    assert not [name for name in named if not (NOTEBOOK.parents[1] / name).exists()]
