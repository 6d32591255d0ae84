"""One training run: what it is, how often it draws each row, and which runs go into one program."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from winnow.data.dataset import Dataset
from winnow.samplers import Sampler
from winnow.types import Algorithm, Spec, Weighter


@dataclass(frozen=True)
class Run:
    """One training run: a dataset, how it is drawn from, how rows are weighed, what is learnt, and a seed."""

    dataset: Dataset
    algorithm: Algorithm
    sampler: Sampler
    weighter: Weighter
    seed: int = 0
    name: str = "run"

    @property
    def spec(self) -> Spec:
        return Spec(self.dataset.obs_dim, self.dataset.action_dim, len(self.dataset))

    @property
    def shape(self) -> Hashable:
        """Runs with the same one are compiled into one program."""
        structure = jax.tree.structure((self.algorithm, self.weighter))
        return structure, self.dataset.obs_dim, self.dataset.action_dim

    @property
    def drawing(self) -> Hashable:
        """Runs with the same one draw rows with the same probabilities."""
        return id(self.dataset), self.sampler

    @property
    def weighs_any_row(self) -> bool:
        """Whether the weighter can weigh rows that are not in the dataset: its state has no number for each row."""

        def shapes(rows: int) -> Any:
            spec = self.spec._replace(rows=rows)
            state = jax.eval_shape(lambda key: self.weighter.init(key, spec), jax.random.key(0))
            return jax.tree.map(lambda leaf: leaf.shape, state)

        return shapes(self.spec.rows) == shapes(self.spec.rows + 1)


Drawn = Mapping[Hashable, np.ndarray]
"""Samplers' probabilities, under `Run.drawing`."""


def probabilities(runs: Sequence[Run]) -> Drawn:
    """How often each row of each run's dataset is drawn: once for every dataset and sampler, not for every seed."""
    each = {run.drawing: run for run in runs}
    return {drawing: run.sampler.probabilities(run.dataset) for drawing, run in each.items()}


def packs(runs: Sequence[Run], largest: int | None = None) -> list[list[Run]]:
    """Runs grouped by shape, in the order in which shapes first appear, in packs of at most `largest`."""
    groups: dict[Hashable, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.shape, []).append(run)
    size = largest or len(runs)
    return [group[low : low + size] for group in groups.values() for low in range(0, len(group), size)]
