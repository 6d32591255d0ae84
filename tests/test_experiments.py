"""The index of experiments names every result, with a command and a page that exist; scripts refuse bad arguments
in one line; a clone stays small."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from winnow.errors import BadInput, run_script

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
MAX_FILES = 700
MAX_BYTES = 25_000_000


def tree() -> list[Path]:
    """Files of the repository: those that git tracks, or outside of a clone all but the ignored ones."""
    if (ROOT / ".git").exists():
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()}
    files = (path for path in ROOT.rglob("*") if path.is_file())
    return [path for path in files if ignored.isdisjoint(path.relative_to(ROOT).parts)]


def results() -> list[str]:
    names = (path.relative_to(ROOT).as_posix() for path in tree())
    return [name for name in names if name.startswith("results/") and name != "results/README.md"]


def test_index_rows_have_a_claim_a_command_data_and_a_page():
    assert len(ROWS) > 50
    assert not [row for row in ROWS if len(row) != 4 or not all(row)]
    assert not [row for row in ROWS if "`" not in row[1] or not re.search(r"\]\(\.\./[\w/-]*\w+\.md", row[3])]


def test_index_names_every_result():
    named = {name for row in ROWS for name in re.findall(r"`(results/[^`]+)`", row[2])} - {"results/grid"}
    folders = tuple(name for name in named if name.endswith("/"))
    assert not [name for name in results() if name not in named and not name.startswith(folders)]
    assert not [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_index_names_commands_that_exist(row):
    scripts = re.findall(r"`(?:python )?((?:experiments|benchmarks|tests)/\S+?)[` ]", row[1])
    assert scripts or re.search(r"`winnow [a-z]+[^`]*`", row[1])
    assert not [name for name in scripts if not (ROOT / name).is_file()]


def test_index_names_every_script():
    """Except modules that scripts import, and `__main__.py`, which runs the tables of its folder."""
    index = INDEX.read_text(encoding="utf-8")
    shared = {f"experiments/{name}.py" for name in ("entry/learning", "entry/measures", "printing")}
    shared |= {f"experiments/{name}/__main__.py" for name in ("as_published", "evidence", "speed")}
    scripts = {path.relative_to(ROOT).as_posix() for path in tree() if path.suffix in (".py", ".sh")}
    assert not [name for name in scripts - shared if name.startswith("experiments/") and name not in index]


SCRIPTS = sorted(path for folder in ("benchmarks", "experiments") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_scripts_print_bad_input_in_one_line_and_borrow_nothing_from_tests(path):
    """benchmarks/authors.py runs in an environment without winnow."""
    text = path.read_text(encoding="utf-8")
    if '__name__ == "__main__"' in text and path.name not in ("authors.py", "__main__.py"):
        assert text.endswith('if __name__ == "__main__":\n    run_script(main)\n')
    modules = {node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)}
    if path.is_relative_to(ROOT / "experiments"):
        assert not [module for module in modules if module and module.split(".")[0] in ("helpers", "tests")]


def test_run_script_prints_bad_input_in_one_line_and_exits_with_2(capsys, monkeypatch):
    def main() -> None:
        raise BadInput("steps must be at least 1, got 0")

    monkeypatch.setattr(sys, "argv", ["experiments/a/b.py"])
    with pytest.raises(SystemExit) as stop:
        run_script(main)
    assert stop.value.code == 2
    assert capsys.readouterr().err == "b.py: steps must be at least 1, got 0\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["5/4", "aw"], "a shard must be NUMBER/COUNT such as 1/4, got 5/4"),
        (["1/4", "aw,best"], "a method must be one of uniform, "),
    ],
)
def test_fits_script_refuses_bad_arguments(arguments, error, tmp_path):
    command = [sys.executable, "experiments/grid/fits.py", *arguments, str(tmp_path / "done"), "hopper"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert error in run.stderr.splitlines()[-1]
    assert "Traceback" not in run.stderr


def test_results_contain_no_code():
    assert not [name for name in results() if name.endswith((".py", ".sh"))]


def test_clone_is_small():
    files = tree()
    assert 300 < len(files) < MAX_FILES
    assert sum(path.stat().st_size for path in files) < MAX_BYTES
