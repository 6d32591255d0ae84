"""`winnow completion`: its script, in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from winnow.cli import COMMANDS

ASK = """
source <(winnow completion bash)
complete -p winnow >&2
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _winnow
printf '%s\\n' "${COMPREPLY[@]}"
"""

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which `winnow` is this one."""
    script = tmp_path / "winnow"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m winnow "$@"\n')
    script.chmod(0o755)
    return f"{tmp_path}{os.pathsep}{os.environ['PATH']}"


def completed(path: str, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", *words], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stderr == "complete -o default -F _winnow winnow\n"
    return done.stdout.split()


def test_commands_are_completed(path: str) -> None:
    assert set(completed(path, "winnow", "")) == {name.split()[0] for name in COMMANDS}
    assert completed(path, "winnow", "data", "m") == ["make", "mix"]


def test_options_are_completed(path: str) -> None:
    assert completed(path, "winnow", "data", "make", "--o") == ["--out"]
    assert "--algorithm.expectile" in completed(path, "winnow", "train", "--algorithm.")


def test_files_and_what_is_unknown_are_left_to_bash(path: str) -> None:
    assert not completed(path, "winnow", "inspect", "a.hdf")
    assert not completed(path, "winnow", "no/thing", "--x")
