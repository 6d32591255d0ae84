"""How much a file may become when it is opened: a small file that claims to hold a great deal is not believed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from winnow.errors import BadInput

FREE = 256 << 20
"""Bytes that any file may become."""
RATIO = 100
"""How many times its own size it may become beyond that. Recordings shrink to a half or a tenth when packed."""
OF_A_PIECE = 1_500
"""Bytes that HDF5 takes for each piece of an array that is read."""
MOST_COLUMNS = 10_000
"""Columns of a table, and arrays inside an episode."""


class Budget:
    """The bytes that are left for what a file holds."""

    def __init__(self, where: str, file: Path) -> None:
        self.where = where
        self.size = file.stat().st_size
        self.left = FREE + RATIO * self.size

    def take(self, count: int, name: str) -> None:
        """So many more, before they are read."""
        self.left -= count
        if self.left < 0:
            raise BadInput(
                f"{self.where}: {name} claims more than a file of {self.size:,} bytes can mean; write it again without "
                "compression if it is true"
            )

    def array(self, shape: Sequence[int], width: int, name: str, chunk: Sequence[int] | None = None) -> None:
        """An array of HDF5, a piece of it to unpack, and what the library keeps of every piece."""
        piece = 0
        pieces = 0
        if chunk:
            piece = math.prod(chunk)
            pieces = math.prod(-(-size // max(part, 1)) for size, part in zip(shape, chunk, strict=True))
        self.take(max(width, 4) * max(math.prod(shape), piece) + OF_A_PIECE * pieces, name)


def few_columns(count: int, where: str) -> None:
    if count > MOST_COLUMNS:
        raise BadInput(f"{where}: has {count:,} columns; winnow reads at most {MOST_COLUMNS:,}")
