"""A dataset in many Parquet files, read a block of rows at a time: for a pass over more rows than fit in memory.

Columns are found as `winnow data import` finds them, and a block is checked as a dataset is. An episode lies in one
file, its rows in order.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from winnow.data.arrays import NoSuccessor
from winnow.data.arrow import arrow_array
from winnow.data.assemble import assemble, episode_ids
from winnow.data.choices import UNSAID, Actions
from winnow.data.columns import Columns, FileContent, read_selected, select
from winnow.data.dataset import Dataset, Kind
from winnow.data.size_limits import Budget, few_columns
from winnow.data.sources import readable
from winnow.errors import BadInput

BLOCK = 8_192
"""Rows of a file that are in memory at a time, at the most."""
ENDS = {"timeouts", "next_observations", "episode"}
"""One of these must say where an episode that is not terminal ends."""
A_PARQUET_FILE = "a Parquet file"


class Shard(NamedTuple):
    """One file of the set."""

    path: Path
    rows: int
    first: int
    """Rows of the set before this file's first."""

    @property
    def stamp(self) -> str:
        """Changes when the file does."""
        facts = self.path.stat()
        return f"{facts.st_size}-{facts.st_mtime_ns}"


class Block(NamedTuple):
    """Consecutive rows of a file, and those of them that have a successor as a dataset."""

    first: int
    """Rows of the file before the block's first."""
    length: int
    row: np.ndarray
    """Which rows of the block the dataset's rows are."""
    dataset: Dataset | None
    """None where no row has a successor."""
    episode: np.ndarray | None = None
    """[length] the file's own ids of episodes, where it has a column of them."""


def shards(pattern: str) -> tuple[list[Shard], list[str]]:
    """The files that a pattern or a folder names, in the order of their names; and what is wrong with the others."""
    folder = Path(pattern)
    candidates = folder.glob("*.parquet") if folder.is_dir() else map(Path, glob.glob(pattern, recursive=True))
    paths = sorted(path.resolve() for path in candidates if path.is_file())
    if not paths:
        raise BadInput(f"{pattern}: names no file; give a folder of .parquet files, or a pattern in quotes")
    good = []
    bad = []
    first = 0
    for path in paths:
        try:
            with _opened(path) as file:
                rows = file.metadata.num_rows
        except BadInput as error:
            bad.append(str(error))
            continue
        good.append(Shard(path, rows, first))
        first += rows
    return good, bad


def _opened(path: Path) -> Any:
    """Columns are read page by page: a row group may be larger than a block."""
    from pyarrow.parquet import ParquetFile

    with readable(str(path), A_PARQUET_FILE):
        return ParquetFile(path, buffer_size=1 << 18, pre_buffer=False)


def blocks(shard: Shard, kind: Kind, size: int = BLOCK, actions: Actions = UNSAID) -> Iterator[Block]:
    """All rows of a file in order. The last row of a block waits for the next one if that holds its successor."""
    import pyarrow as pa

    where = str(shard.path)
    with _opened(shard.path) as file, readable(where, A_PARQUET_FILE):
        names = file.schema_arrow.names
        budget = Budget(where, shard.path)
        few_columns(len(names), where)
        first = 0
        waiting = None
        for batch in file.iter_batches(size - 1, columns=_wanted(names, kind, where)):
            budget.take(batch.nbytes, "a row")
            table = pa.Table.from_batches([batch])
            if len(table) == 0:
                continue
            if waiting is not None:
                table = pa.concat_tables([waiting, table]).unify_dictionaries()
            block = _block(table, names, kind, where, first, actions)
            left_out = block.dataset is None or block.row[-1] < block.length - 1
            waiting = table.slice(len(table) - 1) if left_out and first + len(table) < shard.rows else None
            length = block.length - (waiting is not None)
            ids = None if block.episode is None else block.episode[:length]
            block = block._replace(length=length, episode=ids)
            yield block
            first += block.length


def _wanted(names: list[str], kind: Kind, where: str) -> list[str]:
    """The columns to read, or what is missing, before any row is read."""
    fields = select(names, Columns(), where).fields
    if kind == "episodes" and not set(fields) & ENDS:
        raise BadInput(
            f"{where}: an episode cut by a time limit can't be told from a step; add one of the columns timeouts, "
            "next_observations or episode"
        )
    return list(dict.fromkeys(name for columns in fields.values() for name in columns))


def _block(table: Any, names: list[str], kind: Kind, where: str, first: int, actions: Actions) -> Block:
    count = len(table)
    ids = None
    try:
        selection = select(table.column_names, Columns(), where)
        columns, _ = read_selected(selection, lambda name: arrow_array(table[name], name, where), where)
        for name in ("source", "source_row"):  # what matters is which row of the block a row is
            columns.pop(name, None)
        ids = episode_ids(columns["episode"], where) if "episode" in columns else None
        dataset = assemble(FileContent(columns, names, where), where, kind, None, None, actions)
    except NoSuccessor:
        return Block(first, count, np.zeros(0, np.int64), None, ids)
    except BadInput as error:
        raise BadInput(_moved(str(error), where, first)) from error
    return Block(first, count, dataset.source_row, dataset, ids)


def _moved(text: str, where: str, first: int) -> str:
    """What is said of rows of a block, said of the file's."""
    about = text.removeprefix(where)

    def shifted(match: re.Match[str]) -> str:
        numbers = re.sub(r"\d+", lambda number: str(int(number[0]) + first), match[2])
        return f"row{match[1]} {numbers}"

    moved = re.sub(r"\brow(s?) (\d+(?:, \d+)*)", shifted, about)
    return text.removesuffix(about) + moved
