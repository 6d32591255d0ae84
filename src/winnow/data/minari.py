"""Reading Minari datasets: thousands of short episodes in seconds, nested spaces flattened, no environment built.

Weights lie in `infos/weight`, one for each step and, as Minari's infos have it, one entry more at the end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from winnow.data.choices import UNSAID, Actions
from winnow.data.columns import OPTIONS, Columns, FileContent, Progress, carried
from winnow.data.dataset import LONGEST
from winnow.data.minari_files import (
    METADATA,
    Reader,
    Recording,
    check_arrow,
    episode_numbers,
    read_arrow,
    read_hdf5,
)
from winnow.data.minari_spaces import FIELDS, Leaf, flattened
from winnow.data.size_limits import Budget, few_columns
from winnow.errors import BadInput
from winnow.system.files import is_file_name, parse_json

IDS = "winnow_source_episodes"
"""Where a dataset that winnow exported keeps the sources' ids of its episodes, if they are strings."""


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


def open_minari(where: str, path: Path, progress: Progress, choice: Columns) -> FileContent:
    """Episodes with one observation more than steps. A stored episode that does not end in a terminal timed out."""
    file = minari_metadata(where if where.startswith("minari:") else str(path))
    folder = file.parent
    metadata = _read_metadata(file)
    spaces = {field: _space(metadata.get(name)) for field, name in FIELDS.items()}
    own = carried(metadata.get("winnow"), where)
    if any(getattr(choice, option) for option in OPTIONS if option != "observations"):
        raise BadInput(
            f"{where}: a Minari dataset says itself what its actions, rewards and ends are; name only the keys of the "
            "observation (--observations, --drop)"
        )
    if metadata.get("data_format", "hdf5") == "hdf5":
        recording = read_hdf5(where, folder, spaces, own is not None, progress, choice)
    else:
        recording = read_arrow(where, folder, spaces, progress, choice)

    steps = np.array([len(reward) for reward in recording.fields["rewards"][0][1]], np.int64)
    parts = {field: _flatten(recording, field, steps, where) for field in recording.fields}
    flat = {field: np.concatenate([part for _, part in each], axis=1) for field, each in parts.items()}
    final = np.cumsum(steps + 1) - 1
    before, after = np.ones((2, int((steps + 1).sum())), bool)
    before[final] = False
    after[final - steps] = False
    terminals = flat["terminations"][:, 0]
    timeouts = np.zeros(int(steps.sum()), bool)
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
    actions = UNSAID
    if choices := getattr(spaces["actions"], "n", None):  # a Discrete space: its columns are one-hot
        columns["actions"] = columns["actions"].argmax(axis=1)
        actions = Actions("discrete", int(choices))
    bounds = _action_bounds(spaces["actions"])
    content = FileContent(columns, list(columns), name, _environment(metadata), bounds, own, actions)
    widths = [(leaf, part.shape[1]) for leaf, part in parts["observations"]]
    if note := flattened(widths):
        content.notes = (note,)
        content.labels["observations"] = tuple(text for leaf, width in widths for text in leaf.column_names(width))
    return content


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

    reader = Reader(where, Budget(where, folder / "main_data.hdf5"), np.float64)
    with h5py.File(folder / "main_data.hdf5", "r") as file:
        for number in episode_numbers(file, where):
            episode = reader.group(file.id, b"episode_%d" % number, number)
            steps = len(reader.array(episode, (b"rewards",), number))
            yield number, (reader.array(episode, (b"infos", b"weight"), number), steps)


def _arrow_weights(where: str, folder: Path) -> Iterator[tuple[int, tuple[np.ndarray, int]]]:
    from minari.dataset.minari_storage import MinariStorage

    check_arrow(where, folder)
    storage = MinariStorage.read(folder)
    for number, episode in enumerate(storage.get_episodes(range(storage.total_episodes))):
        if "weight" not in (episode["infos"] or {}):
            raise BadInput(f"{where}: infos/weight, episode {number}: is missing; write it with `winnow weights`")
        yield number, (np.asarray(episode["infos"]["weight"], np.float64), len(episode["rewards"]))


# ------------------------------------------------------------------------------------------------ what it means


def _space(text: Any) -> Any:
    from minari.serialization import deserialize_space

    return deserialize_space(text) if text else None


def _flatten(recording: Recording, field: str, steps: np.ndarray, where: str) -> list[tuple[Leaf, np.ndarray]]:
    """All episodes of a field: for each leaf, an array [rows, columns]."""
    more = int(field == "observations")
    parts = []
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
        parts.append((leaf, np.concatenate(_numbers(np.concatenate(arrays), leaf.space, name, where), axis=1)))
    return parts


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

    flat = None if space is None or isinstance(space, spaces.Discrete) else spaces.flatten_space(space)
    if not isinstance(flat, spaces.Box) or not (np.isfinite(flat.low).all() and np.isfinite(flat.high).all()):
        return None
    return flat.low, flat.high


def _environment(metadata: dict[str, Any]) -> str | None:
    spec = metadata.get("env_spec")
    spec = parse_json(spec) if isinstance(spec, str) else spec
    return spec.get("id") if isinstance(spec, dict) else None
