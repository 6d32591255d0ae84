"""Tables that fit a terminal: names without their common prefix, elided in the middle, and no empty columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LEAST_NAME = 16
"""Characters that a name keeps, however narrow the terminal is."""
GAP = 2
"""Spaces between two columns."""


def common_prefix(names: Sequence[str]) -> str:
    """What all names begin with, up to a dot; nothing for a single name."""
    if len(set(names)) < 2:
        return ""
    first = min(names)
    last = max(names)
    alike = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[: first.rfind(".", 0, alike) + 1]


def elided(name: str, width: int) -> str:
    """A name in at most so many characters: its middle is left out, since names differ at their ends."""
    if len(name) <= width:
        return name
    front = (width - 1) // 2
    return f"{name[:front]}…{name[len(name) - (width - 1 - front) :]}"


def fitted(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> Table:
    """A table whose first column holds names: they lose their common prefix, which the title then shows, and their
    middles where the terminal is narrow. Columns without any value are left out; heads may break at spaces."""
    from rich.table import Column, Table
    from rich.text import Text

    kept = [0] + [at for at in range(1, len(heads)) if any(row[at] for row in rows)]
    widths = [max([*map(len, heads[at].split()), *(len(row[at]) for row in rows)]) for at in kept[1:]]
    prefix = common_prefix([row[0] for row in rows])
    room = max(LEAST_NAME, console.width - sum(widths) - GAP * len(widths))
    if prefix:
        title = f"{title} · {prefix}…" if title else f"{prefix}…"
    columns = [Column(heads[0], no_wrap=True)]
    columns += [Column(heads[at], justify="right", min_width=width) for at, width in zip(kept[1:], widths, strict=True)]
    table = Table(
        *columns, box=None, padding=(0, GAP, 0, 0), pad_edge=False, title=Text(title) if title else None,
        title_justify="left",
    )  # fmt: skip
    for row in rows:
        name = elided(row[0].removeprefix(prefix), room)
        table.add_row(Text(name), *(Text(row[at]) for at in kept[1:]))
    return table
