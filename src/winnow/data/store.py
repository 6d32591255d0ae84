"""winnow's own dataset file: one safetensors file, laid out as the arena is, so that it is mapped and not read."""

from __future__ import annotations

import dataclasses
import math
import struct
from pathlib import Path

import numpy as np

from winnow.data.dataset import UNKNOWN_ROW, Arena, Dataset, Episodes
from winnow.data.meta import NAMES, Meta
from winnow.errors import BadInput
from winnow.system.files import parse_json, write_tensors

FORMAT = "winnow-dataset-1"
LONGEST_HEADER_BYTES = 10_000_000
"""A description of a dataset is a few thousand bytes long."""
DTYPES = {"F32": np.float32, "I64": np.int64, "I32": np.int32, "BOOL": np.bool_, "U8": np.uint8}
KINDS = {"rows.terminal": "BOOL", "episodes.arena": "I32", "episodes.source": "I32", "episodes.terminated": "BOOL"} | {
    f"episodes.{name}": "I64" for name in ("slot", "length", "seed", "origin", "offset", "row", "id")
}
"""The type of each array; the rest of the rows is F32, but for actions of I32 where they are discrete."""
TEXT_IDS = "episodes.id_text"
"""Ids of episodes that are strings: [episodes, bytes of the longest] UTF-8, padded with zeros."""
MATRICES = ("rows.obs", "rows.action", TEXT_IDS)
KINDS[TEXT_IDS] = "U8"


def save(dataset: Dataset, path: str | Path) -> None:
    """Write the dataset's rows (and no others) to one file."""
    dataset.meta.check(str(path))
    flat = dataset.compact()
    arena = flat.arenas[0]
    table = flat.episodes
    rows = {f.name: getattr(arena, f.name) for f in dataclasses.fields(arena)}
    tensors = {f"rows.{name}": np.ascontiguousarray(column) for name, column in rows.items() if column is not None}
    tensors |= _table_tensors(table)
    # One entry of metadata, since safetensors writes several in an order that changes from one run to the next.
    write_tensors(path, tensors, {FORMAT: flat.meta.to_json()})


def _table_tensors(table: Episodes) -> dict[str, np.ndarray]:
    """The episode table as tensors. What says nothing is left out: rows that are not known, ids that are numbers 0, 1,
    2, … anyway."""
    columns = dict(table.columns)
    ids = columns.pop("id")
    if (table.row == UNKNOWN_ROW).all():
        del columns["row"]
    if ids.dtype.kind == "U":
        text = np.char.encode(ids, "utf-8")
        columns["id_text"] = text.view(np.uint8).reshape(len(text), text.dtype.itemsize)
    elif not np.array_equal(ids, table.origin):
        columns["id"] = ids.astype(np.int64)
    return {f"episodes.{name}": np.ascontiguousarray(column) for name, column in columns.items()}


def _table(tensors: dict[str, np.ndarray]) -> Episodes:
    """The episode table of a file. Files written before rows and ids were kept have neither."""
    names = [field.name for field in dataclasses.fields(Episodes) if field.name not in ("row", "id")]
    columns = {name: np.asarray(tensors[f"episodes.{name}"]) for name in names}
    if "episodes.row" in tensors:
        columns["row"] = np.asarray(tensors["episodes.row"])
    if TEXT_IDS in tensors:
        text = np.ascontiguousarray(tensors[TEXT_IDS])
        if text.shape[1] == 0:
            raise ValueError("ids of episodes have no letters")
        columns["id"] = np.char.decode(text.view(f"S{text.shape[1]}")[:, 0], "utf-8")
    elif "episodes.id" in tensors:
        columns["id"] = np.asarray(tensors["episodes.id"])
    return Episodes.make(**columns)


def is_dataset(path: Path) -> bool:
    """Whether the file is one of ours, by its header."""
    try:
        return FORMAT in _header(path)[0].get("__metadata__", {})
    except BadInput:
        return False


def load(path: str | Path) -> Dataset:
    """Open a dataset file. Rows are mapped: they are read from disk when they are used."""
    path = Path(path)
    header, begin = _header(path)
    described = header.pop("__metadata__", {})
    if FORMAT not in described:
        raise BadInput(f"{path}: is not a winnow dataset; use `winnow data import {path} --out FILE` first")
    size = path.stat().st_size
    try:
        tensors = {name: _map(path, name, entry, begin, size) for name, entry in header.items()}
        fields = [f.name for f in dataclasses.fields(Arena)]
        required = {name: tensors[f"rows.{name}"] for name in fields if name != "propensity"}
        arena = Arena(**required, propensity=tensors.get("rows.propensity"))
        table = _table(tensors)
        meta = Meta.from_json(described[FORMAT])
    except (KeyError, TypeError, ValueError, MemoryError) as error:
        raise BadInput(f"{path}: is damaged ({error}); make it again from its source") from error
    dataset = Dataset((arena,), table, meta, str(path.resolve()))
    _check(dataset, path)
    return dataset


def _header(path: Path) -> tuple[dict, int]:
    try:
        if path.exists() and not path.is_file():  # a pipe would have to be waited for
            raise BadInput(f"{path}: must be a file; give a dataset that winnow wrote")
        with path.open("rb") as file:
            size = path.stat().st_size
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
            if length > min(size - 8, LONGEST_HEADER_BYTES):
                raise BadInput(f"{path}: is cut short or is not a safetensors file; copy or make it again")
            header = parse_json(file.read(length))
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror}); check the name") from error
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path}: is not a safetensors file; give a dataset that winnow wrote") from error
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict):
        raise BadInput(f"{path}: is not a safetensors file; give a dataset that winnow wrote")
    return header, 8 + length


def _map(path: Path, name: str, entry: dict, begin: int, size: int) -> np.ndarray:
    low, high = entry["data_offsets"]
    dtype = np.dtype(DTYPES[entry["dtype"]])
    shape = tuple(entry["shape"])
    if entry["dtype"] != KINDS.get(name, "F32") and (name, entry["dtype"]) != ("rows.action", "I32"):
        raise ValueError(f"{name} is of type {entry['dtype']}")
    if len(shape) != (2 if name in MATRICES else 1) or not all(
        isinstance(number, int) and not isinstance(number, bool) for number in (low, high, *shape)
    ):
        raise ValueError(f"the shape of {name} is invalid")
    if not 0 <= low <= high or begin + high > size:
        raise ValueError("it is cut short")
    if min(shape) < 0 or dtype.itemsize * math.prod(shape) != high - low:
        raise ValueError("a tensor's shape and size differ")
    if high == low:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", offset=begin + low, shape=shape)


def _check(dataset: Dataset, path: Path) -> None:
    """The table must lie inside the arena, and the numbers must be finite."""
    arena = dataset.arenas[0]
    table = dataset.episodes
    if arena.obs.ndim != 2 or arena.action.ndim != 2 or len(table) == 0:
        raise BadInput(f"{path}: is damaged (shapes); make it again from its source")
    if not len(arena.obs) == len(arena.action) == len(arena.reward) == len(arena.terminal):
        raise BadInput(f"{path}: is damaged (columns of different lengths); make it again from its source")
    if len({len(column) for column in table.columns.values()}) != 1 or (table.length < 1).any():
        raise BadInput(f"{path}: is damaged (episode table); make it again from its source")
    if dataset.action_kind == "discrete":
        _check_choices(dataset, path)
    elif arena.action.dtype.kind != "f" or len(dataset.meta.action_low) != dataset.action_dim or dataset.obs_dim == 0:
        raise BadInput(f"{path}: is damaged (its bounds are not those of its actions); make it again from its source")
    for name, width in zip(NAMES, (dataset.obs_dim, arena.action.shape[1]), strict=True):
        if len(getattr(dataset.meta, name)) not in (0, width):
            raise BadInput(f"{path}: is damaged ({name} does not name {width} columns); make it again from its source")
    if (table.row < UNKNOWN_ROW).any():
        raise BadInput(f"{path}: is damaged (numbers of source rows are negative); make it again from its source")
    if table.id.dtype.kind == "U" and not all(map(str.isprintable, np.unique(table.id).tolist())):
        raise BadInput(f"{path}: is damaged (an episode's id is not printable); make it again from its source")
    for column in (arena.terminal, table.terminated):
        if (column.view(np.uint8) > 1).any():
            raise BadInput(f"{path}: is damaged (a flag is neither 0 nor 1); make it again from its source")
    # Every episode has slots of its own: a few rows can't be claimed over and over.
    inside = (table.slot >= 0) & (table.length < arena.slots) & (table.slot < arena.slots) & (table.arena == 0)
    inside &= table.slot + np.where(inside, table.length, 0) < arena.slots
    if inside.all() and table.length.sum() + len(table) > arena.slots:
        raise BadInput(f"{path}: is damaged (its episodes hold more rows than there are); make it again")
    if not inside.all() or (table.source < 0).any() or (table.source >= len(dataset.meta.sources)).any():
        raise BadInput(f"{path}: is damaged (episode {int(np.argmin(inside))} lies outside it); make it again")
    for field in ("obs", "action", "reward", "propensity"):
        column = getattr(arena, field)
        if column is None:
            continue
        for low in range(0, len(column), 1 << 20):
            bad = ~np.isfinite(column[low : low + (1 << 20)])
            if bad.any():
                row = low + int(np.argwhere(bad)[0][0])
                raise BadInput(f"{path}: {field}, slot {row}: is not a finite number; make it again from its source")


def _check_choices(dataset: Dataset, path: Path) -> None:
    """Actions must be one column of numbers of choices, and propensities as many."""
    arena = dataset.arenas[0]
    if arena.action.dtype.kind != "i" or arena.action.shape[1] != 1 or dataset.obs_dim == 0:
        raise BadInput(f"{path}: is damaged (its actions are no column of choices); make it again from its source")
    if arena.propensity is not None and len(arena.propensity) != len(arena.action):
        raise BadInput(f"{path}: is damaged (columns of different lengths); make it again from its source")
    wrong = (arena.action < 0) | (arena.action >= dataset.action_dim)
    if wrong.any():
        slot = int(np.argmax(wrong))
        raise BadInput(
            f"{path}: action, slot {slot}: must be below {dataset.action_dim}, the number of choices; make it again"
        )
