"""What a Minari dataset holds on disk: the arrays of every episode, from HDF5 (no link is followed) or from Arrow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from winnow.data.columns import Columns, Progress
from winnow.data.dataset import UNKNOWN_ROW
from winnow.data.hdf5 import hard_linked
from winnow.data.minari_spaces import FIELDS, Leaf, leaves
from winnow.data.size_limits import Budget
from winnow.errors import BadInput

METADATA = "metadata.json"
EPISODES_PER_REPORT = 256
"""Episodes between two calls of `progress`."""


class Recording(NamedTuple):
    """All episodes in the order of their numbers: for each leaf of a field, one array an episode."""

    ids: list[int]
    fields: dict[str, list[tuple[Leaf, list[np.ndarray]]]]
    labels: dict[str, np.ndarray]


def episode_numbers(file: Any, where: str) -> list[int]:
    ids = sorted(int(match[1]) for name in file if (match := re.fullmatch(r"episode_(\d+)", str(name))))
    if not ids:
        raise BadInput(f"{where}: holds no episode; record some first")
    return ids


def read_hdf5(
    where: str, folder: Path, spaces: dict[str, Any], own: bool, progress: Progress, choice: Columns
) -> Recording:
    """Through h5py's low-level interface: with thousands of short episodes, opening arrays is what takes the time.

    `truncations` are not read: whether the last step of a stored episode is terminal says the same.
    """
    import h5py

    budget = Budget(where, folder / "main_data.hdf5")
    with h5py.File(folder / "main_data.hdf5", "r") as file:
        ids = episode_numbers(file, where)
        first = hard_linked(file, f"episode_{ids[0]}", where)
        fields: dict[str, list[tuple[Leaf, list[np.ndarray]]]] = {
            field: [(leaf, []) for leaf in leaves(spaces.get(field), first, field, where, choice)]
            for field in (*FIELDS, "rewards", "terminations")
        }
        parts = [(tuple(part.encode() for part in leaf.path), into) for f in fields.values() for leaf, into in f]
        labels: dict[str, list[Any]] = {"seed": [], "source_episode": []}
        labels |= {name: [] for name in ("source", "step", "origin", "source_row") if own}
        reader = Reader(where, budget)
        for done, number in enumerate(ids):
            if done % EPISODES_PER_REPORT == 0:
                progress(done, len(ids))
            episode = reader.group(file.id, b"episode_%d" % number, number)
            for path, into in parts:
                into.append(reader.array(episode, path, number))
            labels["seed"].append(reader.integer(episode, b"seed", -1))
            if own:
                labels["source"].append(reader.integer(episode, b"source_index", -1))
                labels["step"].append(reader.integer(episode, b"offset", 0))
                labels["origin"].append(reader.integer(episode, b"origin", number))
                labels["source_row"].append(reader.integer(episode, b"source_row", UNKNOWN_ROW))
            labels["source_episode"].append(reader.integer(episode, b"source_episode", number) if own else number)
    progress(len(ids), len(ids))
    return Recording(ids, fields, {name: np.array(values) for name, values in labels.items()})


class Reader:
    """Reads small arrays quickly, numbers as one kind of float, and follows no link."""

    def __init__(self, where: str, budget: Budget, kind: type = np.float32) -> None:
        import h5py

        low: Any = h5py
        h5a = low.h5a
        h5d = low.h5d
        h5t = low.h5t
        self.where = where
        self.budget = budget
        self.chunked = h5d.CHUNKED
        self.open_group = low.h5g.open
        self.open_array = h5d.open
        self.hard = low.h5l.TYPE_HARD
        self.all = low.h5s.ALL
        self.open_attribute = h5a.open
        self.has_attribute = h5a.exists
        self.whole = h5t.INTEGER
        # No chunk cache: each array is read once, and making the cache takes longer than reading.
        self.access = low.h5p.create(low.h5p.DATASET_ACCESS)
        self.access.set_chunk_cache(1, 0, 1.0)
        self.inside = (h5d.CHUNKED, h5d.CONTIGUOUS, h5d.COMPACT)
        number, flag = ((np.dtype(dtype), h5t.py_create(np.dtype(dtype))) for dtype in (kind, bool))
        self.memory = {h5t.FLOAT: number, h5t.INTEGER: number, h5t.ENUM: flag}

    def _refusal(self, name: bytes, number: int, what: str) -> BadInput:
        return BadInput(f"{self.where}: {name.decode(errors='replace')}, episode {number}: {what}")

    def _check_link(self, group: Any, name: bytes, number: int) -> None:
        try:
            kind = group.links.get_info(name).type
        except (KeyError, RuntimeError) as error:
            raise self._refusal(name, number, "is missing; record the dataset again") from error
        if kind != self.hard:
            raise self._refusal(name, number, "is a link; winnow reads one file only: copy the data into it")

    def group(self, parent: Any, name: bytes, number: int) -> Any:
        self._check_link(parent, name, number)
        return self.open_group(parent, name)

    def array(self, group: Any, path: tuple[bytes, ...], number: int) -> np.ndarray:
        for part in path[:-1]:
            group = self.group(group, part, number)
        self._check_link(group, path[-1], number)
        data = self.open_array(group, path[-1], self.access)
        created = data.get_create_plist()
        if created.get_layout() not in self.inside or created.get_external_count():
            raise self._refusal(path[-1], number, "is kept in another file; copy the data into this one")
        memory = self.memory.get(data.get_type().get_class())
        if memory is None:
            raise self._refusal(path[-1], number, f"holds {data.dtype}; it must hold numbers (encode images first)")
        chunk = created.get_chunk() if created.get_layout() == self.chunked else None
        self.budget.array(data.shape, memory[0].itemsize, path[-1].decode(), chunk)
        out = np.empty(data.shape, memory[0])
        data.read(self.all, self.all, out, memory[1])
        return out

    def integer(self, episode: Any, name: bytes, usual: int) -> int:
        """A whole number among the attributes. Words are not read: HDF5 keeps them in a heap, and a heap that was
        tampered with can hold its library up for ever."""
        out = np.full((), usual, np.int64)
        if self.has_attribute(episode, name):
            attribute = self.open_attribute(episode, name)
            if attribute.shape == () and attribute.get_type().get_class() == self.whole:
                attribute.read(out)
        return int(out)


def check_arrow(where: str, folder: Path) -> None:
    """Look at Arrow's files before they are used: arrays that do not fit together would end the whole process."""
    from pyarrow import ipc, memory_map

    for file in sorted(folder.glob("*/*.arrow")):
        budget = Budget(where, file)
        with memory_map(str(file)) as mapped, ipc.open_file(mapped) as reader:
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                batch.validate(full=True)
                budget.take(batch.nbytes, file.name)


def read_arrow(where: str, folder: Path, spaces: dict[str, Any], progress: Progress, choice: Columns) -> Recording:
    """Minari's Arrow and Parquet folders, through Minari itself."""
    from minari.dataset.minari_storage import MinariStorage

    if None in spaces.values():  # Minari would build the environment to learn its spaces
        raise BadInput(f"{where}: {METADATA} does not say its spaces; save it in Minari's hdf5 format")
    check_arrow(where, folder)
    storage = MinariStorage.read(folder)
    ids = list(range(storage.total_episodes))
    fields: dict[str, list[tuple[Leaf, list[np.ndarray]]]] = {
        field: [(leaf, []) for leaf in leaves(spaces[field], None, field, where, choice)] for field in FIELDS
    }
    fields |= {field: [(Leaf((field,)), [])] for field in ("rewards", "terminations")}
    for done, episode in enumerate(storage.get_episodes(ids)):
        progress(done, len(ids))
        for leaf, into in (pair for field in fields.values() for pair in field):
            value: Any = episode
            for part in leaf.path:
                value = value[int(part.removeprefix("_index_")) if isinstance(value, tuple) else part]
            into.append(np.asarray(value))
    progress(len(ids), len(ids))
    seeds = [metadata.get("seed") for metadata in storage.get_episode_metadata(ids)]
    labels = {"seed": np.array([-1 if seed is None else seed for seed in seeds], np.int64)}
    return Recording(ids, fields, labels | {"source_episode": np.array(ids, np.int64)})
