"""Numbers that make a dataset's rewards, actions and observations fit a learner: computed once, applied to batches."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from winnow.data.dataset import Dataset
from winnow.errors import BadInput

RANGE = 1000.0
"""Return-range scaling makes full episodes' returns span this much (the convention of IQL's locomotion settings)."""


def reward_transform(dataset: Dataset, kind: str) -> tuple[float, float]:
    """(scale, shift) so that the learner's reward is scale · r + shift.

    `return-range` uses the returns of full episodes (the sources' where the dataset holds fragments of them: the range
    over short fragments makes rewards many times larger), `stored-range` those of what is stored. Without episodes both
    span a thousand steps at the least and at the greatest reward.
    """
    if kind == "none":
        return 1.0, 0.0
    if kind == "minus-one":
        return 1.0, -1.0
    if kind not in ("return-range", "stored-range"):
        raise BadInput(f"reward_scaling is {kind!r}; choose none, return-range, stored-range or minus-one")
    if not dataset.has_episodes:
        low, high = (RANGE * float(edge) for edge in (dataset.reward.min(), dataset.reward.max()))
    elif kind == "return-range":
        low, high = dataset.return_range
    else:
        low = float(dataset.returns.min())
        high = float(dataset.returns.max())
    return (RANGE / (high - low), 0.0) if high > low else (1.0, 0.0)


def weighter_reward_transform(dataset: Dataset, kind: str) -> tuple[float, float]:
    """(scale, shift) of the raw rewards for a weighter: `min-max` brings them to [0, 1], `std` divides them by their
    standard deviation and leaves them where they are."""
    if kind == "std":
        deviation = float(dataset.reward.astype(np.float64).std())
        return (1 / deviation, 0.0) if deviation > 0 else (1.0, 0.0)
    if kind != "min-max":
        raise BadInput(f"reward_scaling of a weighter is {kind!r}; choose min-max or std")
    low = float(dataset.reward.min())
    high = float(dataset.reward.max())
    return (1 / (high - low), -low / (high - low)) if high > low else (1.0, -low)


def action_transform(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """(centre, half width) of the action bounds: the learner's action is (a − centre) / half. 0 and 1 for each choice
    of a discrete action, whose columns need no scaling."""
    if dataset.action_kind == "discrete":
        return np.zeros(dataset.action_dim, np.float32), np.ones(dataset.action_dim, np.float32)
    low = np.asarray(dataset.meta.action_low, np.float32)
    high = np.asarray(dataset.meta.action_high, np.float32)
    return (low + high) / 2, (high - low) / 2


def standardise(obs: Any, mean: Any, deviation: Any) -> Any:
    """(obs − mean) / deviation, of NumPy's arrays, JAX's and PyTorch's."""
    return (obs - mean) / deviation


def unit_actions(action: np.ndarray, centre: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Stored actions as learners read them: scaled to [-1, 1], or a discrete action [n, 1] as one-hot rows [n, K]."""
    if action.dtype.kind == "i":
        return (action == np.arange(len(centre))).astype(np.float32)
    return (action - centre) / half


class Scaling(NamedTuple):
    """What brings rows to the scale that a weighter reads, whichever rows they are: numbers of one dataset."""

    mean: np.ndarray
    std: np.ndarray
    action_centre: np.ndarray
    action_half: np.ndarray
    reward: tuple[float, float]

    @classmethod
    def of(cls, dataset: Dataset, weighter: Any) -> Scaling:
        """`weighter` is asked for `standardise` (True if it does not say) and `reward_scaling` (min-max)."""
        mean, std = dataset.obs_moments
        if not getattr(weighter, "standardise", True):
            mean = np.zeros_like(mean)
            std = np.ones_like(std)
        reward = weighter_reward_transform(dataset, getattr(weighter, "reward_scaling", "min-max"))
        return cls(mean, std, *action_transform(dataset), reward)
