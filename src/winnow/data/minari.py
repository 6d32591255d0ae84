"""Reading Minari datasets: thousands of short episodes in seconds, nested spaces flattened, no environment built.

Weights lie in `infos/weight`, one for each step and, as Minari's infos have it, one entry more at the end.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from winnow.data.columns import Found, Progress, carried
from winnow.data.dataset import LONGEST, UNKNOWN_ROW
from winnow.data.size_limits import Budget, few_columns
from winnow.errors import BadInput
from winnow.system.files import is_file_name, parse_json

METADATA = "metadata.json"
IDS = "winnow_source_episodes"
"""Where a dataset that winnow exported keeps the sources' ids of its episodes, if they are strings."""
FIELDS = {"observations": "observation_space", "actions": "action_space"}
DEEPEST = 8
"""Groups inside each other, where a dataset does not say its spaces."""
LATE = 256
"""Episodes between two calls of `progress`."""


class Leaf(NamedTuple):
    """Where an array lies inside an episode, and its space (None where the dataset does not say)."""

    path: tuple[str, ...]
    space: Any = None


class Recording(NamedTuple):
    """All episodes in the order of their numbers: for each leaf of a field, one array an episode."""

    ids: list[int]
    fields: dict[str, list[tuple[Leaf, list[np.ndarray]]]]
    labels: dict[str, np.ndarray]


def minari_root() -> Path:
    """Where Minari keeps its datasets."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


def is_minari(where: str, path: Path) -> bool:
    return where.startswith("minari:") or (path.is_dir() and _folder(where, path) is not None)


def _folder(where: str, path: Path) -> Path | None:
    if where.startswith("minari:"):
        identity = where.removeprefix("minari:")
        if not all(is_file_name(part) for part in identity.split("/")):
            raise BadInput(f"{where[:200]!r}: is not a Minari id; give one like minari:hopper/mixed-v0")
        path = minari_root() / identity
    return next((folder for folder in (path / "data", path) if (folder / METADATA).is_file()), None)


def minari_metadata(where: str) -> Path:
    """The dataset's metadata: a file that is written anew whenever the dataset changes."""
    folder = _folder(where, Path(where))
    if folder is None:
        fetch = f"minari download {where.removeprefix('minari:')}"
        raise BadInput(f"{where}: there is no such dataset in {minari_root()}; fetch it first ({fetch})")
    return folder / METADATA


def _read_metadata(file: Path) -> dict[str, Any]:
    metadata = parse_json(file.read_bytes())
    if not isinstance(metadata, dict):
        raise ValueError(f"{METADATA} holds no description")
    return metadata


def open_minari(where: str, path: Path, progress: Progress) -> Found:
    """Episodes with one observation more than steps. A stored episode that does not end in a terminal timed out."""
    file = minari_metadata(where if where.startswith("minari:") else str(path))
    folder, metadata = file.parent, _read_metadata(file)
    spaces = {field: _space(metadata.get(name)) for field, name in FIELDS.items()}
    own = carried(metadata.get("winnow"), where)
    if metadata.get("data_format", "hdf5") == "hdf5":
        recording = _read_hdf5(where, folder, spaces, own is not None, progress)
    else:
        recording = _read_arrow(where, folder, spaces, progress)

    steps = np.array([len(reward) for reward in recording.fields["rewards"][0][1]], np.int64)
    flat = {field: _flatten(recording, field, steps, where) for field in recording.fields}
    final = np.cumsum(steps + 1) - 1
    before, after = np.ones((2, int((steps + 1).sum())), bool)
    before[final], after[final - steps] = False, False
    terminals, timeouts = flat["terminations"][:, 0], np.zeros(int(steps.sum()), bool)
    timeouts[np.cumsum(steps)[steps > 0] - 1] = True
    columns = {
        "observations": flat["observations"][before],
        "actions": flat["actions"],
        "rewards": flat["rewards"][:, 0],
        "next_observations": flat["observations"][after],
        "terminals": terminals,
        "timeouts": timeouts & (terminals == 0),
    }
    labels = recording.labels
    if own and IDS in metadata:
        labels["source_episode"] = _text_ids(metadata[IDS], len(steps), where)
    columns |= {name: np.repeat(values, steps) for name, values in labels.items()}
    name = metadata.get("dataset_id") or folder.parent.name
    return Found(columns, list(columns), name, _environment(metadata), _action_bounds(spaces["actions"]), own)


def _text_ids(ids: Any, episodes: int, where: str) -> np.ndarray:
    valid = isinstance(ids, list) and len(ids) == episodes
    if not valid or not all(isinstance(text, str) and text.isprintable() and len(text) <= LONGEST for text in ids):
        raise BadInput(f"{where}: {IDS} must be one short string an episode; export the dataset again")
    return np.array(ids, str)


def minari_weights(where: str) -> np.ndarray:
    """[rows] the weights in `infos/weight`, in the order of `open_minari`'s rows."""
    file = minari_metadata(where)
    metadata = _read_metadata(file)
    hdf5 = metadata.get("data_format", "hdf5") == "hdf5"
    each = (_hdf5_weights if hdf5 else _arrow_weights)(where, file.parent)
    parts = []
    for number, (weight, steps) in each:
        if weight.ndim != 1 or len(weight) not in (steps, steps + 1):
            raise BadInput(
                f"{where}: infos/weight, episode {number}: has shape {list(weight.shape)} for {steps} steps; it must "
                "have one number for each step"
            )
        parts.append(weight[:steps])
    return np.concatenate(parts)


def _hdf5_weights(where: str, folder: Path) -> Iterator[tuple[int, tuple[np.ndarray, int]]]:
    import h5py

    reader = _Reader(where, Budget(where, folder / "main_data.hdf5"), np.float64)
    with h5py.File(folder / "main_data.hdf5", "r") as file:
        for number in _episode_ids(file, where):
            episode = reader.group(file.id, b"episode_%d" % number, number)
            steps = len(reader.array(episode, (b"rewards",), number))
            yield number, (reader.array(episode, (b"infos", b"weight"), number), steps)


def _arrow_weights(where: str, folder: Path) -> Iterator[tuple[int, tuple[np.ndarray, int]]]:
    from minari.dataset.minari_storage import MinariStorage

    _check_arrow(where, folder)
    storage = MinariStorage.read(folder)
    for number, episode in enumerate(storage.get_episodes(range(storage.total_episodes))):
        if "weight" not in (episode["infos"] or {}):
            raise BadInput(f"{where}: infos/weight, episode {number}: is missing; write it with `winnow weights`")
        yield number, (np.asarray(episode["infos"]["weight"], np.float64), len(episode["rewards"]))


# ------------------------------------------------------------------------------------------------ what is stored


def _episode_ids(file: Any, where: str) -> list[int]:
    ids = sorted(int(match[1]) for name in file if (match := re.fullmatch(r"episode_(\d+)", str(name))))
    if not ids:
        raise BadInput(f"{where}: holds no episode; record some first")
    return ids


def _read_hdf5(where: str, folder: Path, spaces: dict[str, Any], own: bool, progress: Progress) -> Recording:
    """Through h5py's low-level interface: with thousands of short episodes, opening arrays is what takes the time.

    `truncations` are not read: whether the last step of a stored episode is terminal says the same.
    """
    import h5py

    budget = Budget(where, folder / "main_data.hdf5")
    with h5py.File(folder / "main_data.hdf5", "r") as file:
        ids = _episode_ids(file, where)
        first = hard_linked(file, f"episode_{ids[0]}", where)
        fields: dict[str, list[tuple[Leaf, list[np.ndarray]]]] = {
            field: [(leaf, []) for leaf in _leaves(spaces.get(field), first, field, where)]
            for field in (*FIELDS, "rewards", "terminations")
        }
        parts = [(tuple(part.encode() for part in leaf.path), into) for f in fields.values() for leaf, into in f]
        labels: dict[str, list[Any]] = {"seed": [], "source_episode": []}
        labels |= {name: [] for name in ("source", "step", "origin", "source_row") if own}
        reader = _Reader(where, budget)
        for done, number in enumerate(ids):
            if done % LATE == 0:
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


class _Reader:
    """Reads small arrays quickly, numbers as one kind of float, and follows no link."""

    def __init__(self, where: str, budget: Budget, kind: type = np.float32) -> None:
        import h5py

        low: Any = h5py
        h5a, h5d, h5t = low.h5a, low.h5d, low.h5t
        self.where, self.budget, self.chunked = where, budget, h5d.CHUNKED
        self.open_group, self.open_array, self.hard, self.all = low.h5g.open, h5d.open, low.h5l.TYPE_HARD, low.h5s.ALL
        self.open_attribute, self.has_attribute, self.whole = h5a.open, h5a.exists, h5t.INTEGER
        # No chunk cache: each array is read once, and making the cache takes longer than reading.
        self.access = low.h5p.create(low.h5p.DATASET_ACCESS)
        self.access.set_chunk_cache(1, 0, 1.0)
        self.inside = (h5d.CHUNKED, h5d.CONTIGUOUS, h5d.COMPACT)
        number, flag = ((np.dtype(one), h5t.py_create(np.dtype(one))) for one in (kind, bool))
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


def hard_linked(group: Any, name: str, where: str) -> Any:
    """A member of an HDF5 group that lies in the same file."""
    import h5py

    link = group.get(name, getlink=True)
    if link is None:
        raise BadInput(f"{where}: has no {name}; found: {', '.join(group)}")
    if not isinstance(link, h5py.HardLink):
        raise BadInput(f"{where}: {name} is a link; winnow reads one file only: copy the data into it")
    return group[name]


def _check_arrow(where: str, folder: Path) -> None:
    """Look at Arrow's files before they are used: arrays that do not fit together would end the whole process."""
    from pyarrow import ipc, memory_map

    for file in sorted(folder.glob("*/*.arrow")):
        budget = Budget(where, file)
        with memory_map(str(file)) as mapped, ipc.open_file(mapped) as reader:
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                batch.validate(full=True)
                budget.take(batch.nbytes, file.name)


def _read_arrow(where: str, folder: Path, spaces: dict[str, Any], progress: Progress) -> Recording:
    """Minari's Arrow and Parquet folders, through Minari itself."""
    from minari.dataset.minari_storage import MinariStorage

    if None in spaces.values():  # Minari would build the environment to learn its spaces
        raise BadInput(f"{where}: {METADATA} does not say its spaces; save it in Minari's hdf5 format")
    _check_arrow(where, folder)
    storage = MinariStorage.read(folder)
    ids = list(range(storage.total_episodes))
    fields: dict[str, list[tuple[Leaf, list[np.ndarray]]]] = {
        field: [(leaf, []) for leaf in _leaves(spaces[field], None, field, where)] for field in FIELDS
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
    seeds = [one.get("seed") for one in storage.get_episode_metadata(ids)]
    labels = {"seed": np.array([-1 if seed is None else seed for seed in seeds], np.int64)}
    return Recording(ids, fields, labels | {"source_episode": np.array(ids, np.int64)})


# ------------------------------------------------------------------------------------------------ what it means


def _space(text: Any) -> Any:
    from minari.serialization import deserialize_space

    return deserialize_space(text) if text else None


def _leaves(space: Any, episode: Any, field: str, where: str) -> list[Leaf]:
    """The arrays of a possibly nested space, in the order of `gymnasium.spaces.flatten`."""
    from gymnasium import spaces

    plain = (spaces.Box, spaces.MultiBinary)
    if field == "observations":
        plain += (spaces.Discrete, spaces.MultiDiscrete)

    def walk(space: Any, path: tuple[str, ...]) -> list[Leaf]:
        if isinstance(space, spaces.Dict):
            inside = [((*path, *key.split("/")), inner) for key, inner in space.spaces.items()]
        elif isinstance(space, spaces.Tuple):
            inside = [((*path, f"_index_{i}"), inner) for i, inner in enumerate(space.spaces)]
        elif isinstance(space, plain):
            return [Leaf(path, space)]
        else:
            reads = "numbers" if field == "observations" else "continuous actions (Box)"
            raise BadInput(f"{where}: {field} have the space {space}; winnow reads {reads}")
        return [leaf for inner_path, inner in inside for leaf in walk(inner, inner_path)]

    found: list[Leaf] = []

    def look(group: Any, path: tuple[str, ...]) -> None:
        node = hard_linked(group, path[-1], where)
        few_columns(len(found), where)  # groups may hold each other, and so themselves
        if not hasattr(node, "keys"):
            found.append(Leaf(path))
            return
        if len(path) > DEEPEST:
            raise BadInput(f"{where}: {field} lie in more than {DEEPEST} groups, one in the other; flatten them first")
        for key in sorted(node, key=lambda key: (len(key), key) if key.startswith("_index_") else (0, key)):
            look(node, (*path, key))

    if space is not None:
        return walk(space, (field,))
    look(episode, (field,))
    return found


def _flatten(recording: Recording, field: str, steps: np.ndarray, where: str) -> np.ndarray:
    """All episodes of a field as [rows, columns]."""
    more = int(field == "observations")
    columns = []
    for leaf, arrays in recording.fields[field]:
        name = "/".join(leaf.path)
        for number, array, count in zip(recording.ids, arrays, steps + more, strict=True):
            if array.shape[:1] != (count,):
                raise BadInput(
                    f"{where}: {name}, episode {number}: has {len(array)} entries for {count - more} steps; it must "
                    f"have {count}"
                )
            if array.shape[1:] != arrays[0].shape[1:]:
                shapes = f"{list(array.shape[1:])} a step, the first episode {list(arrays[0].shape[1:])}"
                raise BadInput(f"{where}: {name}, episode {number}: has shape {shapes}; they must agree")
        columns += _numbers(np.concatenate(arrays), leaf.space, name, where)
    return np.concatenate(columns, axis=1)


def _numbers(array: np.ndarray, space: Any, name: str, where: str) -> list[np.ndarray]:
    """What a space's values are when flattened: themselves, or one column a choice."""
    from gymnasium import spaces

    array = array.reshape(len(array), -1)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        counts = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        choice = array.astype(np.int64) - np.ravel(space.start)
        few_columns(int(min(counts.astype(float).sum(), 1e9)), f"{where}: {name}")
        if choice.shape[1] != len(counts) or ((choice < 0) | (choice >= counts)).any():
            raise BadInput(f"{where}: {name} lie outside their space {space}; correct the space or the data")
        return [(choice[:, [i]] == np.arange(count)).astype(np.float32) for i, count in enumerate(counts)]
    width = array.shape[1] if space is None else int(np.prod(space.shape))
    if array.shape[1] != width:
        raise BadInput(f"{where}: {name} have {array.shape[1]} numbers a step, their space has {width}")
    return [array]


def _action_bounds(space: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """Least and greatest action; None where the space does not bound it."""
    from gymnasium import spaces

    flat = None if space is None else spaces.flatten_space(space)
    if not isinstance(flat, spaces.Box) or not (np.isfinite(flat.low).all() and np.isfinite(flat.high).all()):
        return None
    return flat.low, flat.high


def _environment(metadata: dict[str, Any]) -> str | None:
    spec = metadata.get("env_spec")
    spec = parse_json(spec) if isinstance(spec, str) else spec
    return spec.get("id") if isinstance(spec, dict) else None
