"""The weighted reward: what a run's weights promise, and the returns of the logged episodes themselves.

All of it is on held-out rows, with intervals from resampling their episodes inside each source.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.scaling import Scaling
from winnow.packs.step import weigh
from winnow.packs.tables import read
from winnow.training.trained import Trained
from winnow.weighters.diagnostics import diagnose

LEVEL = 0.95
RESAMPLES = 1_000
BLOCK = 65_536
"""Rows that are weighed in one pass."""


class Interval(NamedTuple):
    """An estimate and its 95 % interval. If both ends equal the value, the width is unknown."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, drawn: np.ndarray) -> Interval:
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(drawn, (tail, 1 - tail))
        return cls(float(value), float(low), float(high))


class Weighted(NamedTuple):
    """J(D_w) on held-out rows."""

    reward: Interval  # the mean reward of a step
    episodes: float  # effective number of held-out episodes behind the estimate
    flow: (
        float  # flow residual of the weighted rows (see `weighters.diagnostics`); J is a policy's value only if it is 0
    )


def weighted_reward(
    trained: Trained, held_out: Dataset, seed: int = 0, probability: np.ndarray | None = None
) -> Weighted | None:
    """J(D_w) = Σ p w r / Σ p w over held-out rows, with the sampler's probabilities p and the run's learned weights w.

    The sampler sees the held-out episodes alone: AW's regression and range and PF's threshold are computed from them.
    None if the weighter's state holds a number for each training row.

    probability: the sampler's probabilities of the held-out rows, if the caller has them already
    """
    run = trained.run
    if not run.weighs_any_row:
        return None
    number = np.random.default_rng([seed, 4]).integers(len(held_out.episodes), size=len(held_out))
    scaling = Scaling.of(run.dataset, run.weighter)
    batch = read(held_out.rows(), held_out.start_obs[number], scaling, row=np.arange(len(held_out)))
    score = weigh(run.weighter, trained.weighter_state, batch, BLOCK).astype(np.float64)
    sampled = run.sampler.probabilities(held_out) if probability is None else probability
    weight = sampled * np.exp(score - score.max())
    weight /= weight.sum()
    reward, episodes = mean_reward(held_out, weight, seed)
    flow = float(diagnose(jnp.asarray(weight, jnp.float32), batch)["weight/flow"])
    return Weighted(reward, episodes, flow)


def own_return(held_out: Dataset, discount: float, seed: int) -> Interval | None:
    """The held-out episodes' own discounted return, up to the end of the recording: that of the behaviour policies."""
    if not held_out.has_episodes or held_out.meta.return_range or held_out.episodes.offset.any():
        return None
    steps = np.arange(len(held_out)) - np.repeat(held_out.episodes.start, held_out.episodes.length)
    returns = np.add.reduceat(discount**steps * held_out.reward.astype(np.float64), held_out.episodes.start)
    return Interval.of(returns.mean(), _resampled(held_out, returns, np.ones(len(returns)), seed))


def mean_reward(held_out: Dataset, weight: np.ndarray, seed: int) -> tuple[Interval, float]:
    """The weighted mean reward of a row with its interval over episodes, and the effective number of episodes."""
    rewards, mass = (np.add.reduceat(x, held_out.episodes.start) for x in (weight * held_out.reward, weight))
    samples = _resampled(held_out, rewards, mass, seed)
    return Interval.of(rewards.sum() / mass.sum(), samples), float(mass.sum() ** 2 / (mass**2).sum())


def _resampled(held_out: Dataset, top: np.ndarray, bottom: np.ndarray, seed: int) -> np.ndarray:
    """Σ top / Σ bottom over episodes resampled with replacement inside each source, many times."""
    rng = np.random.default_rng([seed, 5])
    source = held_out.episodes.source
    sums = np.zeros((2, RESAMPLES))
    for label in np.unique(source):
        inside = np.flatnonzero(source == label)
        for number in range(sums.shape[1]):
            times = np.bincount(rng.integers(len(inside), size=len(inside)), minlength=len(inside))
            sums[:, number] += times @ top[inside], times @ bottom[inside]
    kept = sums[1] > 0
    return sums[0, kept] / sums[1, kept]
