"""winnow's own dataset file: one safetensors file, laid out as the arena is, so that it is mapped and not read."""

from __future__ import annotations

import dataclasses
import json
import struct
from pathlib import Path

import numpy as np

from winnow.data.dataset import Arena, Dataset, Episodes, Meta
from winnow.errors import BadInput
from winnow.files import write_tensors

FORMAT = "winnow-dataset-1"
DTYPES = {"F32": np.float32, "I64": np.int64, "I32": np.int32, "BOOL": np.bool_, "U8": np.uint8}


def save(dataset: Dataset, path: str | Path) -> None:
    """Write the dataset's rows (and no others) to one file."""
    flat = dataset.compact()
    arena, table = flat.arenas[0], flat.episodes
    tensors = {f"rows.{f.name}": np.ascontiguousarray(getattr(arena, f.name)) for f in dataclasses.fields(arena)}
    tensors |= {f"episodes.{name}": np.ascontiguousarray(column) for name, column in table.columns.items()}
    # One entry of metadata, since safetensors writes several in an order that changes from one run to the next.
    write_tensors(path, tensors, {FORMAT: flat.meta.to_json()})


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
        tensors = {name: _map(path, entry, begin, size) for name, entry in header.items()}
        arena = Arena(**{f.name: tensors[f"rows.{f.name}"] for f in dataclasses.fields(Arena)})
        table = Episodes(**{f.name: np.asarray(tensors[f"episodes.{f.name}"]) for f in dataclasses.fields(Episodes)})
        meta = Meta.from_json(described[FORMAT])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path}: is damaged ({error}); make it again from its source") from error
    dataset = Dataset((arena,), table, meta, str(path.resolve()))
    _check(dataset, path)
    return dataset


def _header(path: Path) -> tuple[dict, int]:
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else size
            if length > min(size - 8, 100_000_000):
                raise BadInput(f"{path}: is cut short or is not a safetensors file; copy or make it again")
            header = json.loads(file.read(length))
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror}); check the name") from error
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path}: is not a safetensors file; give a dataset that winnow wrote") from error
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict):
        raise BadInput(f"{path}: is not a safetensors file; give a dataset that winnow wrote")
    return header, 8 + length


def _map(path: Path, entry: dict, begin: int, size: int) -> np.ndarray:
    low, high = entry["data_offsets"]
    dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"])
    if not 0 <= low <= high or begin + high > size:
        raise BadInput(f"{path}: is cut short; copy or make it again")
    if dtype.itemsize * int(np.prod(shape)) != high - low:
        raise ValueError("a tensor's shape and size differ")
    if high == low:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", offset=begin + low, shape=shape)


def _check(dataset: Dataset, path: Path) -> None:
    """The table must lie inside the arena, and the numbers must be finite."""
    arena, table = dataset.arenas[0], dataset.episodes
    if arena.obs.ndim != 2 or arena.action.ndim != 2 or len(table) == 0:
        raise BadInput(f"{path}: is damaged (shapes); make it again from its source")
    if not len(arena.obs) == len(arena.action) == len(arena.reward) == len(arena.terminal):
        raise BadInput(f"{path}: is damaged (columns of different lengths); make it again from its source")
    if len({len(column) for column in table.columns.values()}) != 1 or (table.length < 1).any():
        raise BadInput(f"{path}: is damaged (episode table); make it again from its source")
    inside = (table.slot >= 0) & (table.slot + table.length < arena.slots) & (table.arena == 0)
    if not inside.all() or (table.source < 0).any() or (table.source >= len(dataset.meta.sources)).any():
        raise BadInput(f"{path}: is damaged (episode {int(np.argmin(inside))} lies outside it); make it again")
    for field in ("obs", "action", "reward"):
        column = getattr(arena, field)
        for low in range(0, len(column), 1 << 20):
            bad = ~np.isfinite(column[low : low + (1 << 20)])
            if bad.any():
                row = low + int(np.argwhere(bad)[0][0])
                raise BadInput(f"{path}: {field}, slot {row}: is not a finite number; make it again from its source")
