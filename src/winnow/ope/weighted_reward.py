"""The weighted reward: what a run's weights promise, and what the logged episodes earned themselves.

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
    """An estimate and its 95 % interval; no width is known where the ends are the value itself."""

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
    episodes: float  # effective number of held-out episodes that it rests on
    flow: float  # flow residual of the weighted rows (see `weighters.diagnostics`): J is a policy's only where it is 0


def weighted_reward(
    one: Trained, held: Dataset, seed: int = 0, probability: np.ndarray | None = None
) -> Weighted | None:
    """J(D_w) = Σ p w r / Σ p w over held-out rows: p the sampler's probabilities of them, w the run's learnt weights.

    A sampler looks at the held-out episodes alone (AW's regression and range, PF's threshold are theirs); `probability`
    is what it gives them, where that is known already. None where the weighter's state has a number for each training
    row.
    """
    run = one.run
    if not run.weighs_any_row:
        return None
    start = held.start_obs[np.random.default_rng([seed, 4]).integers(len(held.episodes), size=len(held))]
    batch = read(held.rows(), start, Scaling.of(run.dataset, run.weighter), row=np.arange(len(held)))
    score = weigh(run.weighter, one.weighter_state, batch, BLOCK).astype(np.float64)
    sampled = run.sampler.probabilities(held) if probability is None else probability
    weight = sampled * np.exp(score - score.max())
    weight /= weight.sum()
    reward, episodes = mean_reward(held, weight, seed)
    flow = float(diagnose(jnp.asarray(weight, jnp.float32), batch)["weight/flow"])
    return Weighted(reward, episodes, flow)


def own_return(held: Dataset, discount: float, seed: int) -> Interval | None:
    """The held-out episodes' own discounted return, up to where the recording ends: what the data's makers earned."""
    if not held.has_episodes or held.meta.return_range or held.episodes.offset.any():
        return None
    steps = np.arange(len(held)) - np.repeat(held.episodes.start, held.episodes.length)
    returns = np.add.reduceat(discount**steps * held.reward.astype(np.float64), held.episodes.start)
    return Interval.of(returns.mean(), _resampled(held, returns, np.ones(len(returns)), seed))


def mean_reward(held: Dataset, weight: np.ndarray, seed: int) -> tuple[Interval, float]:
    """The weighted mean reward of a row with its interval over episodes, and how many episodes it rests on."""
    earned, mass = (np.add.reduceat(x, held.episodes.start) for x in (weight * held.reward, weight))
    drawn = _resampled(held, earned, mass, seed)
    return Interval.of(earned.sum() / mass.sum(), drawn), float(mass.sum() ** 2 / (mass**2).sum())


def _resampled(held: Dataset, top: np.ndarray, bottom: np.ndarray, seed: int) -> np.ndarray:
    """Σ top / Σ bottom over episodes drawn with replacement inside each source, many times."""
    rng, source = np.random.default_rng([seed, 5]), held.episodes.source
    sums = np.zeros((2, RESAMPLES))
    for label in np.unique(source):
        inside = np.flatnonzero(source == label)
        for number in range(sums.shape[1]):
            times = np.bincount(rng.integers(len(inside), size=len(inside)), minlength=len(inside))
            sums[:, number] += times @ top[inside], times @ bottom[inside]
    kept = sums[1] > 0
    return sums[0, kept] / sums[1, kept]
