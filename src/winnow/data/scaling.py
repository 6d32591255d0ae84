"""Numbers that make a dataset's rewards, actions and observations fit a learner: computed once, applied to batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from winnow.data.dataset import Dataset
from winnow.errors import BadInput

RANGE = 1000.0
"""Return-range scaling makes full episodes' returns span this much (the convention of IQL's locomotion settings)."""


def reward_transform(dataset: Dataset, kind: str) -> tuple[float, float]:
    """(scale, shift) so that the learner's reward is scale · r + shift.

    `return-range` uses the returns of full episodes (the sources' where the dataset holds pieces of them: the range
    over short pieces would make rewards many times larger). Without episodes it spans a thousand steps at the least
    and at the greatest reward.
    """
    if kind == "none":
        return 1.0, 0.0
    if kind == "minus-one":
        return 1.0, -1.0
    if kind != "return-range":
        raise BadInput(f"reward_scaling is {kind!r}; choose none, return-range or minus-one")
    if dataset.has_episodes:
        low, high = dataset.return_range
    else:
        low, high = (RANGE * float(edge) for edge in (dataset.reward.min(), dataset.reward.max()))
    return (RANGE / (high - low), 0.0) if high > low else (1.0, 0.0)


def unit_transform(dataset: Dataset) -> tuple[float, float]:
    """(scale, shift) that brings the dataset's raw rewards to [0, 1]: what weighters read."""
    low, high = float(dataset.reward.min()), float(dataset.reward.max())
    return (1 / (high - low), -low / (high - low)) if high > low else (1.0, -low)


def action_transform(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """(centre, half width) of the action bounds: the learner's action is (a − centre) / half."""
    low, high = np.asarray(dataset.meta.action_low, np.float32), np.asarray(dataset.meta.action_high, np.float32)
    return (low + high) / 2, (high - low) / 2


class Scaling(NamedTuple):
    """What brings rows to the scale that weighters read, whichever rows they are: numbers of one dataset."""

    mean: np.ndarray
    std: np.ndarray
    action_centre: np.ndarray
    action_half: np.ndarray
    unit: tuple[float, float]

    @classmethod
    def of(cls, dataset: Dataset) -> Scaling:
        return cls(*dataset.obs_moments, *action_transform(dataset), unit_transform(dataset))
