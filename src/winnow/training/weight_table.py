"""The weight of every row as a table: what `winnow weights` and PyTorch loops write and the weighter `Fixed` reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from winnow.data.dataset import Dataset
from winnow.errors import BadInput
from winnow.system.files import replacing

if TYPE_CHECKING:
    from winnow.training.row_weights import RowWeights


def check_ending(path: Path) -> None:
    """Refuse a name that `write` can't write, before any work is done for it."""
    if path.suffix not in (".parquet", ".npy"):
        raise BadInput(f"{path}: the table is written as .parquet or .npy; choose one of these endings")


def write(path: Path, data: Dataset, found: RowWeights) -> None:
    """The table, one line a row."""
    columns = {
        "row": np.arange(len(data)),
        "episode": data.episode,
        "step": data.step,
        "source": np.asarray(data.meta.sources)[data.source],
        "probability": found.probability,
        "ratio": found.ratio,
        "weight": found.weight,
    }
    with replacing(path) as temporary:
        if path.suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet

            columns["source"] = pa.array(columns["source"]).dictionary_encode()
            pyarrow.parquet.write_table(pa.table(columns), temporary)
        else:
            table = np.empty(len(data), dtype=[(name, column.dtype) for name, column in columns.items()])
            for name, column in columns.items():
                table[name] = column
            with temporary.open("wb") as file:
                np.save(file, table, allow_pickle=False)
