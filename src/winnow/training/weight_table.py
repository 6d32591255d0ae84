"""The weight of every row as a table: what `winnow weights` and PyTorch loops write and the weighter `Fixed` reads.

`row`, `episode` and `step` count in the dataset. `source_row` and `source_episode` are the row's number (from 0) and
its episode's id in the file that the dataset was imported from: join by these.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from winnow.data.dataset import UNKNOWN_ROW, Dataset
from winnow.errors import BadInput
from winnow.system.files import replacing

if TYPE_CHECKING:
    from winnow.training.row_weights import RowWeights

Format = Literal["parquet", "csv", "npy", "lerobot"]
ENDINGS = {"parquet": ".parquet", "csv": ".csv", "npy": ".npy", "lerobot": ".parquet"}


def format_of(path: Path, wanted: Format | None = None) -> Format:
    """The table's format: the one that is asked for, or the one that the file's ending says. Refuses a name that does
    not fit, before any work is done for it."""
    if wanted is not None:
        if path.suffix != ENDINGS[wanted]:
            raise BadInput(f"{path}: a table of format {wanted} must end in {ENDINGS[wanted]}; rename it")
        return wanted
    formats = {ending: name for name, ending in reversed(ENDINGS.items())}
    if path.suffix not in formats:
        raise BadInput(f"{path}: the table must end in {', '.join(formats)}, got {path.name!r}; rename it")
    return next(name for name in get_args(Format) if name == formats[path.suffix])


def columns(data: Dataset, weights: RowWeights) -> dict[str, np.ndarray]:
    """The table's columns. `source_row` is left out where the dataset was not read from a table."""
    table = {"row": np.arange(len(data)), "episode": data.episode, "step": data.step}
    if (data.episodes.row != UNKNOWN_ROW).any():
        table["source_row"] = data.source_row
    return table | {
        "source_episode": data.source_episode,
        "source": np.asarray(data.meta.sources)[data.source],
        "probability": weights.probability,
        "ratio": weights.ratio,
        "weight": weights.weight,
    }


def write(path: Path, data: Dataset, weights: RowWeights, wanted: Format | None = None) -> None:
    """Write the table, one line a row. The names of the data's columns are kept in a Parquet file's metadata."""
    kind = format_of(path, wanted)
    if kind == "lerobot":
        index, weight = lerobot_weights(data, weights, str(path))
        table: dict[str, Any] = {"index": index, "weight": weight}
    else:
        table = columns(data, weights)
    with replacing(path) as temporary:
        if kind == "npy":
            array = np.empty(len(data), dtype=[(name, column.dtype) for name, column in table.items()])
            for name, column in table.items():
                array[name] = column
            with temporary.open("wb") as file:
                np.save(file, array, allow_pickle=False)
        else:
            _write_arrow(temporary, table, data, kind)


def _write_arrow(path: Path, table: dict[str, Any], data: Dataset, kind: Format) -> None:
    import json

    import pyarrow as pa
    from pyarrow import csv, parquet

    arrays = {name: pa.array(column) for name, column in table.items()}
    if kind == "csv":
        csv.write_csv(pa.table(arrays), path)
        return
    for name, array in arrays.items():
        if pa.types.is_string(array.type):
            arrays[name] = array.dictionary_encode()
    names = {"observations": data.meta.obs_names, "actions": data.meta.action_names}
    metadata = {"winnow.columns": json.dumps({key: value for key, value in names.items() if value})}
    parquet.write_table(pa.table(arrays).replace_schema_metadata(metadata), path)


def lerobot_weights(data: Dataset, weights: RowWeights, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Frame numbers and their weights, for LeRobot's sample weighting of type `static`. A frame that is in the dataset
    several times gets the sum of its weights."""
    row = data.source_row
    if (row == UNKNOWN_ROW).any() or len(data.meta.sources) > 1:
        raise BadInput(
            f"{where}: LeRobot's weights need the number of each frame in one LeRobot dataset; train on a dataset "
            "that `winnow data import` read from it"
        )
    index, position = np.unique(row, return_inverse=True)
    return index, np.bincount(position, weights.weight, len(index))
