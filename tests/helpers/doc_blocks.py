"""Runs the code blocks of a docs page, one after another, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, code) of each fenced block of a page."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def follow(
    page: str, folder: Path, shorter: Sequence[tuple[str, str]], wanted: Callable[[str], bool] = lambda block: True
) -> str:
    """Run a page's blocks in a folder and return what they print.

    shorter: (pattern, replacement) to make long steps short; everything else runs as written
    wanted: which blocks to run
    """
    script = "set -eu\n"
    for number, (kind, block) in enumerate(blocks(page)):
        if not wanted(block):
            continue
        for pattern, replacement in shorter:
            block = re.sub(pattern, replacement, block)
        if kind == "sh":
            script += block
        else:
            (folder / f"block{number}.py").write_text(block)
            script += f"{sys.executable} block{number}.py\n"
    tools = folder / "bin"
    tools.mkdir()
    (tools / "winnow").write_text(f'#!/bin/sh\nexec {sys.executable} -m winnow "$@"\n')
    (tools / "winnow").chmod(0o755)
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "WINNOW_DATA": str(folder / "data")}
    done = subprocess.run(
        ["sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=540, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
