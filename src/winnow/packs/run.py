"""One training run, its sampling probabilities, and the grouping of runs into packs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from winnow.data.dataset import Dataset
from winnow.errors import BadInput
from winnow.samplers import Sampler
from winnow.types import Algorithm, Spec, Weighter, action_kind_of


@dataclass(frozen=True)
class Run:
    """One training run: dataset, algorithm, sampler, weighter and seed."""

    dataset: Dataset
    algorithm: Algorithm
    sampler: Sampler
    weighter: Weighter
    seed: int = 0
    name: str = "run"
    method: str = ""
    """The method by the name that was asked for (`dw-aw`, `auto`); empty where its parts were chosen on their own."""
    resolved: str = ""
    """The method that `auto` chose; else the same name."""

    @property
    def group(self) -> str:
        """The name without the seed: runs of one group differ in nothing else."""
        return self.name.removesuffix(f".seed{self.seed}")

    def __post_init__(self) -> None:
        algorithm = type(self.algorithm).__name__
        if getattr(self.algorithm, "reads_next_action", False) and self.dataset.meta.kind == "bag":
            raise BadInput(
                f"{self.dataset.meta.name}: {algorithm} reads the action that follows each row, and bag data has no "
                "order; choose another algorithm"
            )
        kind = action_kind_of(self.algorithm)
        if kind != self.dataset.action_kind:
            raise BadInput(
                f"{self.dataset.meta.name}: has {self.dataset.action_kind} actions, and "
                f"{algorithm} is for {kind} ones; give an algorithm by name (bc, iql, cql), which "
                "means the one that fits the data"
            )

    @property
    def spec(self) -> Spec:
        return Spec(self.dataset.obs_dim, self.dataset.action_dim, len(self.dataset), self.dataset.action_kind)

    @property
    def shape(self) -> Hashable:
        """Runs of equal shape are compiled into one program."""
        structure = jax.tree.structure((self.algorithm, self.weighter))
        return structure, self.dataset.obs_dim, self.dataset.action_dim

    @property
    def drawing(self) -> Hashable:
        """Runs with an equal key have the same sampling probabilities."""
        return id(self.dataset), self.sampler

    @property
    def weighs_any_row(self) -> bool:
        """Whether the weighter can weigh rows outside the dataset: whether its state holds nothing per row."""

        def shapes(rows: int) -> Any:
            spec = self.spec._replace(rows=rows)
            state = jax.eval_shape(lambda key: self.weighter.init(key, spec), jax.random.key(0))
            return jax.tree.map(lambda leaf: leaf.shape, state)

        return shapes(self.spec.rows) == shapes(self.spec.rows + 1)


Drawn = Mapping[Hashable, np.ndarray]
"""Sampling probabilities of each row, by `Run.drawing`."""


def probabilities(runs: Sequence[Run]) -> Drawn:
    """Sampling probabilities, computed once for each pair of dataset and sampler, not for every seed."""
    each = {run.drawing: run for run in runs}
    return {drawing: run.sampler.probabilities(run.dataset) for drawing, run in each.items()}


def packs(runs: Sequence[Run], largest: int | None = None) -> list[list[Run]]:
    """Runs grouped by shape, in packs of at most `largest`. Shapes keep the order in which they first appear."""
    groups: dict[Hashable, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.shape, []).append(run)
    size = largest or len(runs)
    return [group[low : low + size] for group in groups.values() for low in range(0, len(group), size)]
