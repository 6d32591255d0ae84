"""The `--help` text of every command."""

from __future__ import annotations

import contextlib
import io
import os
import textwrap

WIDTH = 84
"""Columns of the terminal for which help is formatted, so that it fits a page."""


def helps(_: str) -> str:
    from winnow.cli import COMMANDS, overview

    parts = [f"```text\n{overview()}\n```"]
    parts += [f"## winnow {name}\n\n```text\n{help_of(name)}\n```" for name in COMMANDS]
    return "\n\n".join(parts)


def help_of(name: str) -> str:
    from winnow.cli import main

    os.environ |= {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main([*name.split(), "--help"])
    lines = output.getvalue().strip().splitlines()
    # Options are already wrapped at that width; the sentences above them are not.
    return "\n".join(line.rstrip() if line[:1].isspace() else textwrap.fill(line, WIDTH) for line in lines)
