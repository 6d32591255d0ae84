"""Batches and datasets under the names that other code gives their columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from winnow.data.arrays import from_arrays
from winnow.data.columns import ALIASES, LAST_RESORT
from winnow.data.dataset import Dataset
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.samplers import Sampler

NEEDED = ("observations", "actions", "rewards", "next_observations", "terminals")
NAMES = {name: ALIASES[name] + LAST_RESORT.get(name, ()) for name in NEEDED} | {
    "start_observations": ("start_observations", "start_observation", "start_obs")
}
"""What a column may be called, by its name in D4RL: as in files. Where a batch has several of these names, the first
counts."""

Data = Dataset | Mapping[str, Any] | str | Path
"""A winnow dataset, the name or path of one, or a dictionary of arrays as `d4rl.qlearning_dataset` gives it."""


def find(batch: Any) -> dict[str, Any]:
    """The columns of a batch under D4RL's names.

    A batch is a mapping, anything with its columns as attributes (a named tuple, a dataclass: d3rlpy's and
    Stable-Baselines' are), or a plain sequence in CORL's order: states, actions, rewards, next states, terminals.
    """
    if isinstance(batch, (list, tuple)) and not hasattr(batch, "_fields"):
        if len(batch) not in (5, 6):
            raise BadInput(
                f"the batch is a sequence of {len(batch)}; give observations, actions, rewards, next observations and "
                "terminals in this order (and start observations, if you have them), or a dictionary"
            )
        return dict(zip(NAMES, batch, strict=False))
    mapping = isinstance(batch, Mapping)
    columns: dict[str, Any] = {}
    for column, names in NAMES.items():
        for name in names:
            value = batch.get(name) if mapping else getattr(batch, name, None)
            if value is not None:
                columns[column] = value
                break
    for column in NEEDED:
        if column not in columns:
            what_it_has = f" (it has {', '.join(map(str, batch))})" if mapping else f" (it is a {type(batch).__name__})"
            raise BadInput(f"the batch has no {column}{what_it_has}; call them one of: {', '.join(NAMES[column])}")
    return columns


def as_dataset(data: Data) -> Dataset:
    """The dataset of what a user has; a dictionary of arrays keeps its rows and their order."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, (str, Path)):
        return open_dataset(data)
    if not isinstance(data, Mapping):
        raise BadInput(
            f"the dataset is a {type(data).__name__}; give a winnow dataset, the path of one, or a dictionary of arrays"
        )
    columns: dict[str, Any] = {"timeouts": next((data[name] for name in ALIASES["timeouts"] if name in data), None)}
    for column in NEEDED:
        columns[column] = next((data[name] for name in NAMES[column] if name in data), None)
        if columns[column] is None and column in NEEDED[:3]:
            raise BadInput(f"the dataset has no {column}; call them one of: {', '.join(NAMES[column])}")
    arrays = {name: value.detach().cpu() if hasattr(value, "detach") else value for name, value in columns.items()}
    made = from_arrays(**arrays, where="dataset", name="arrays")
    given = len(np.asarray(arrays["rewards"]))
    if len(made) != given:
        raise BadInput(
            f"dataset: {given - len(made)} of its {given} rows end at a timeout and have no next observation, so "
            "rows could not keep their numbers; add next_observations"
        )
    return made


def probabilities(data: Data, sampler: str | Sampler = "auto") -> np.ndarray:
    """How often each row is to be drawn: [rows] float64 that sum to 1, for AW, PF, RW or any other sampler.

    By its name a sampler is set as for the published results of IQL; give `AW(temperature=0.2)` to set it yourself.
    """
    from winnow.methods import sampler_for

    dataset = as_dataset(data)
    chosen = sampler_for(sampler, dataset) if isinstance(sampler, str) else sampler
    return chosen.probabilities(dataset)
