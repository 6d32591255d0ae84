"""How certain the estimates of several runs are, and which method is best: plausible values, sampled for each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from winnow.ope.weighted_reward import Interval

DRAWS = 4_000


@dataclass(frozen=True)
class MethodEstimate:
    """The runs of one dataset, algorithm and method."""

    method: str
    runs: int
    value: Interval
    best: float
    """The probability that its value is the highest of all methods', given the same uncertainty as the interval."""
    weighted: float | None
    """Mean weighted reward over runs."""


def draws(values: np.ndarray, strata: np.ndarray, seed: int, count: int = DRAWS) -> np.ndarray:
    """[count, runs]: samples of plausible values of the runs, from their values [runs, fits, states].

    Two sources of uncertainty are added. Fits differ in their resample of the logged episodes, so their covariance is
    that of the estimates over other logs (Hao et al., 2021); samples are from a t distribution with fits − 1 degrees of
    freedom and that covariance, so what moves all runs together cancels in comparisons. And first states are resampled
    inside each source.
    """
    rng = np.random.default_rng([seed, 2])
    by_fit = values.mean(axis=2)  # [runs, fits]
    by_state = values.mean(axis=1)  # [runs, states]
    centre = by_fit.mean(axis=1)
    samples = np.broadcast_to(centre, (count, len(centre))).copy()
    fits = values.shape[1]
    if fits > 1:
        scale = np.sqrt(rng.chisquare(fits - 1, (count, 1)) / (fits - 1))
        samples += rng.normal(size=(count, fits)) @ (by_fit - centre[:, None]).T / np.sqrt(fits - 1) / scale
    picked = np.empty((count, values.shape[2]), np.int64)
    for label in np.unique(strata):
        inside = np.flatnonzero(strata == label)
        picked[:, inside] = rng.choice(inside, (count, len(inside)))
    for number, value in enumerate(by_state):
        samples[:, number] += value[picked].mean(axis=1) - centre[number]
    return samples


def compare(
    methods: Sequence[str],
    centre: np.ndarray,
    drawn: np.ndarray,
    seed: int,
    promised: Sequence[float | None],
) -> tuple[list[MethodEstimate], np.ndarray, list[str]]:
    """Methods by their value, best first; samples [draws, methods] of their values in that order; and notes.

    methods, centre, drawn, promised: for each run its method, value, samples of its value, and weighted reward

    If methods have several runs, the spread of runs around their method's mean, pooled over methods, measures how much
    another training seed would change. With one run each it can't be measured.
    """
    names = list(dict.fromkeys(methods))
    member = np.array([[method == name for method in methods] for name in names], float)  # [methods, runs]
    sizes = member.sum(axis=1)
    mean = member @ centre / sizes
    samples = drawn @ (member / sizes[:, None]).T
    freedom = int((sizes - 1).sum())
    notes = []
    if freedom:
        rng = np.random.default_rng([seed, 3])
        spread = np.sqrt(((centre - mean @ member) ** 2).sum() / freedom)
        scale = np.sqrt(rng.chisquare(freedom, (len(samples), 1)) / freedom)
        samples += rng.normal(size=samples.shape) * spread / np.sqrt(sizes) / scale
    else:
        notes.append("one run of each method: intervals do not cover other training seeds")
    order = np.argsort(-mean, kind="stable")
    samples = samples[:, order]
    best = np.bincount(samples.argmax(axis=1), minlength=len(names)) / len(samples)
    table = []
    for rank, i in enumerate(order):
        pairs = zip(promised, methods, strict=True)
        rewards = [reward for reward, name in pairs if name == names[i] and reward is not None]
        weighted = float(np.mean(rewards)) if rewards else None
        value = Interval.of(mean[i], samples[:, rank])
        table.append(MethodEstimate(names[i], int(sizes[i]), value, float(best[rank]), weighted))
    return table, samples, notes
