"""README's commands from a table to a policy run as written (with fewer updates), and print what README says."""

from __future__ import annotations

import os
import re
import runpy
import shlex
from pathlib import Path

import pytest

from winnow.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHORTER = ((r"--steps \d+", "--steps 20"), (r"hidden 64 64", "hidden 8"), (r"uniform,aw", "aw"))
"""What a test need not wait for."""
ELSEWHERE = "winnow ope"
"""tests/test_tutorial.py runs it."""


def walk() -> list[tuple[str, list[str]]]:
    """Each command of the walk from a table to a policy, and what README says that it prints."""
    section = README.split("## From a table to a policy", 1)[1].split("\n## ", 1)[0]
    steps: list[tuple[str, list[str]]] = []
    for line in section.splitlines():
        if line.startswith("    # "):
            steps[-1][1].append(line.removeprefix("    # "))
        elif line.startswith("    "):
            steps.append((line.split("  #")[0].strip(), []))
    return steps


def normal(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "400")
    return tmp_path


def test_readme_goes_from_a_table_to_a_policy(folder, capsys):
    shown = 0
    for command, output in walk():
        for pattern, less in SHORTER:
            command = re.sub(pattern, less, command)
        if command.startswith(ELSEWHERE):
            continue
        if command.startswith("python "):
            runpy.run_path(str(ROOT / command.removeprefix("python ")))
            continue
        assert main(shlex.split(command)[1:]) == 0, command
        printed = normal(capsys.readouterr().out)
        for part in filter(None, map(normal, re.split("…", " ".join(output)))):
            assert part in printed, f"{command} does not print: {part}\n{printed[-2000:]}"
            shown += 1
    assert shown >= 2
    assert os.path.getsize("policy.onnx") > 1000
