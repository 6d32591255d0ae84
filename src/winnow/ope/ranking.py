"""How sure estimates of several runs are, and which method is best: draws of where their values could as well lie."""

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
    """The probability that its value is the highest of all methods', as far as the interval reaches."""
    weighted: float | None
    """Mean over runs."""


def draws(values: np.ndarray, strata: np.ndarray, seed: int, count: int = DRAWS) -> np.ndarray:
    """[draws, runs]: where the runs' values could as well lie, from values [runs, fits, states].

    Two parts are added. Fits differ by their resample of the logged episodes, so their covariance is that of an
    estimate over other logs (Hao et al., 2021); draws are from a t distribution with fits − 1 degrees of freedom and
    that covariance, so that what moves all runs together cancels in comparisons. First states are resampled inside
    each source.
    """
    rng = np.random.default_rng([seed, 2])
    by_fit, by_state = values.mean(axis=2), values.mean(axis=1)  # [runs, fits], [runs, states]
    centre = by_fit.mean(axis=1)
    found = np.broadcast_to(centre, (count, len(centre))).copy()
    fits = values.shape[1]
    if fits > 1:
        scale = np.sqrt(rng.chisquare(fits - 1, (count, 1)) / (fits - 1))
        found += rng.normal(size=(count, fits)) @ (by_fit - centre[:, None]).T / np.sqrt(fits - 1) / scale
    picked = np.empty((count, values.shape[2]), np.int64)
    for label in np.unique(strata):
        inside = np.flatnonzero(strata == label)
        picked[:, inside] = rng.choice(inside, (count, len(inside)))
    for number, value in enumerate(by_state):
        found[:, number] += value[picked].mean(axis=1) - centre[number]
    return found


def compare(
    methods: Sequence[str],
    centre: np.ndarray,
    drawn: np.ndarray,
    seed: int,
    promised: Sequence[float | None],
) -> tuple[list[MethodEstimate], np.ndarray, list[str]]:
    """Methods by their value, best first; draws [draws, methods] of their values in that order; and what to say of it.

    methods, centre, drawn, promised: for each run its method, value, draws of it, and weighted reward

    Where methods have several runs, their spread around the method's mean, pooled over methods, says how much another
    training seed would change; with one run each it can't be seen.
    """
    names = list(dict.fromkeys(methods))
    member = np.array([[one == name for one in methods] for name in names], float)  # [methods, runs]
    sizes = member.sum(axis=1)
    mean = member @ centre / sizes
    found = drawn @ (member / sizes[:, None]).T
    freedom, notes = int((sizes - 1).sum()), []
    if freedom:
        rng = np.random.default_rng([seed, 3])
        spread = np.sqrt(((centre - mean @ member) ** 2).sum() / freedom)
        scale = np.sqrt(rng.chisquare(freedom, (len(found), 1)) / freedom)
        found += rng.normal(size=found.shape) * spread / np.sqrt(sizes) / scale
    else:
        notes.append("one run of each method: intervals do not cover other training seeds")
    order = np.argsort(-mean, kind="stable")
    found = found[:, order]
    best = np.bincount(found.argmax(axis=1), minlength=len(names)) / len(found)
    table = []
    for place, i in enumerate(order):
        given = [one for one, name in zip(promised, methods, strict=True) if name == names[i] and one is not None]
        value = Interval.of(mean[i], found[:, place])
        table.append(
            MethodEstimate(names[i], int(sizes[i]), value, float(best[place]), float(np.mean(given)) if given else None)
        )
    return table, found, notes
