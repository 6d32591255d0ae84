"""Reading robomimic's HDF5 files: a group `data` of demonstrations, each with actions, rewards, dones and `obs`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from winnow.data.columns import Columns, FileContent, Progress, read_selected, select
from winnow.data.hdf5 import hard_linked
from winnow.errors import BadInput

DEMO = re.compile(r"demo_(\d+)")
ROW_KEYS = ("actions", "rewards", "dones", "states")
"""Arrays of a demonstration beside its observations."""
MIN_IMAGE_DIMS = 3
"""Dimensions of an array of pictures, one a row, at the least."""


def is_robomimic(names: list[str]) -> bool:
    return "data" in names and "observations" not in names


def open_robomimic(
    file: Any, where: str, path: Path, progress: Progress, choice: Columns, read: Callable[[Any, str], np.ndarray]
) -> FileContent:
    """All demonstrations in the order of their numbers; each is an episode with the name of the demonstration.

    read: an array of a group, checked
    """
    data = hard_linked(file, "data", where)
    numbers = sorted(int(match[1]) for name in data if (match := DEMO.fullmatch(str(name))))
    if not numbers:
        raise BadInput(f"{where}: its group `data` must hold demonstrations (demo_0, …); flatten other files first")
    demos = [hard_linked(data, f"demo_{number}", where) for number in numbers]
    first = demos[0]
    keys = list(hard_linked(first, "obs", where)) if "obs" in first else []
    images = [key for key in keys if len(hard_linked(first["obs"], key, where).shape) >= MIN_IMAGE_DIMS]
    plain = [key for key in keys if key not in images]
    rows = [name for name in ROW_KEYS if name in first]
    chosen = _with_usual(choice, plain, images, rows, where)
    selection = select([*plain, *(name for name in rows if name not in plain)], chosen, where)
    selection = selection.guessed_where_not_named(choice)
    lengths = np.array([len(hard_linked(demo, "actions", where)) for demo in demos])

    def column(name: str, group: str = "obs") -> np.ndarray:
        parts = []
        for number, demo, length in zip(numbers, demos, lengths, strict=True):
            holder = demo if name in rows and name not in plain else hard_linked(demo, group, where)
            array = read(holder, name)
            if len(array) != length:
                raise BadInput(
                    f"{where}: demo_{number}: {name} must have {length} rows, as actions has, got {len(array)}; make "
                    "the file again"
                )
            parts.append(array.reshape(length, -1) if array.ndim > 1 else array)
        progress(len(parts), len(demos))
        return np.concatenate(parts)

    arrays, labels = read_selected(selection, column, where)
    last = np.zeros(int(lengths.sum()), bool)
    last[np.cumsum(lengths) - 1] = True
    notes = [selection.note()]
    if "terminals" in arrays:
        done = np.ravel(arrays["terminals"]) != 0
        early = int((done & ~last).sum())
        if early:
            name = selection.fields["terminals"][0]
            notes.append(f"{early:,} rows are `{name}` before the last row of a demonstration: not taken as ends")
        arrays["terminals"] = done & last
    arrays["timeouts"] = last & ~np.asarray(arrays.get("terminals", np.zeros(len(last), bool)), bool)
    arrays["episode"] = np.repeat([f"demo_{number}" for number in numbers], lengths)
    observed = selection.fields["observations"]
    if "next_obs" in first and all(key in first["next_obs"] and key in plain for key in observed):
        following, _ = read_selected(
            selection._replace(fields={"next_observations": observed}), lambda name: column(name, "next_obs"), where
        )
        arrays |= following
    return FileContent(
        arrays,
        [*keys, *rows],
        path.stem,
        labels=labels,
        notes=tuple(notes),
    )


def _with_usual(choice: Columns, plain: list[str], images: list[str], rows: list[str], where: str) -> Columns:
    """The user's choice, and robomimic's usual names for what was not chosen."""
    instead = f"name others: --observations {','.join(plain)}" if plain else "it has no others that hold numbers"
    asked = [key for key in choice.observations if key in images]
    if asked or (images and not choice.observations):
        raise BadInput(f"{where}: {(asked or images)[0]} holds images, which winnow does not read; {instead}")
    if not plain and not choice.observations:
        raise BadInput(
            f"{where}: its demonstrations must have observations (obs); make them with robomimic's "
            "dataset_states_to_obs.py, or take the simulator's states (--observations states)"
        )
    if "rewards" not in rows and not (choice.reward or choice.reward_from):
        raise BadInput(
            f"{where}: its demonstrations must have rewards; make them with robomimic's dataset_states_to_obs.py, or "
            "name a key (--reward KEY, or --reward-from KEY for progress)"
        )
    usual: dict[str, Any] = {"observations": tuple(plain), "actions": ("actions",), "terminal": "dones"}
    if not choice.reward_from:
        usual["reward"] = "rewards"
    known = {*plain, *rows}
    filled = {
        option: value
        for option, value in usual.items()
        if not getattr(choice, option) and {value} & known | {*value} & known and choice.timeout != value
    }
    return dataclasses.replace(choice, **filled)
