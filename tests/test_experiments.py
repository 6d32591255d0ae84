"""The index of experiments names every result, with a command and a page that exist; a clone stays small."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "experiments" / "README.md"
if not INDEX.exists():
    pytest.skip("the source distribution has neither experiments nor results", allow_module_level=True)
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in INDEX.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ")
][1:]
"""Claim, command, data and page."""
MAX_FILES, MAX_BYTES = 700, 25_000_000


def tree() -> list[Path]:
    """Files of the repository: those that git has, or all but the ignored ones where this is no clone."""
    if (ROOT / ".git").exists():
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()}
    files = (path for path in ROOT.rglob("*") if path.is_file())
    return [path for path in files if ignored.isdisjoint(path.relative_to(ROOT).parts)]


def results() -> list[str]:
    names = (path.relative_to(ROOT).as_posix() for path in tree())
    return [name for name in names if name.startswith("results/") and name != "results/README.md"]


def test_every_row_has_a_claim_a_command_data_and_a_page():
    assert len(ROWS) > 50
    assert not [row for row in ROWS if len(row) != 4 or not all(row)]
    assert not [row for row in ROWS if "`" not in row[1] or not re.search(r"\]\(\.\./[\w/-]*\w+\.md", row[3])]


def test_every_result_is_in_the_index():
    named = {name for row in ROWS for name in re.findall(r"`(results/[^`]+)`", row[2])} - {"results/grid"}
    folders = tuple(name for name in named if name.endswith("/"))
    assert not [name for name in results() if name not in named and not name.startswith(folders)]
    assert not [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_commands_of_the_index_are_there(row):
    scripts = re.findall(r"`(?:python )?((?:experiments|benchmarks|tests)/\S+?)[` ]", row[1])
    assert scripts or re.search(r"`winnow [a-z]+[^`]*`", row[1])
    assert not [name for name in scripts if not (ROOT / name).is_file()]


def test_every_script_is_in_the_index():
    """But for what scripts import and what runs them all."""
    index = INDEX.read_text(encoding="utf-8")
    shared = {"experiments/entry/learning.py", "experiments/entry/measures.py"}
    shared |= {f"experiments/{name}/__main__.py" for name in ("as_published", "evidence", "speed")}
    scripts = {path.relative_to(ROOT).as_posix() for path in tree() if path.suffix in (".py", ".sh")}
    assert not [name for name in scripts - shared if name.startswith("experiments/") and name not in index]


def test_results_are_data_alone():
    assert not [name for name in results() if name.endswith((".py", ".sh"))]


def test_a_clone_is_small():
    files = tree()
    assert 300 < len(files) < MAX_FILES
    assert sum(path.stat().st_size for path in files) < MAX_BYTES
