"""Episodes as strips, and single transitions: which ones to show, and what along them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from winnow.data.dataset import Dataset
from winnow.inspection.weightings import Weighting

EACH = 5
"""Episodes of each group."""
STRETCHES = 240
"""Stretches of a strip, at the most."""
LISTED = 10
"""Heaviest and lightest rows that are named."""


@dataclass(frozen=True)
class Strip:
    """An episode in equal stretches: mean reward, and the mean of each weighting, in each."""

    episode: int
    reward: np.ndarray
    weights: list[np.ndarray]


@dataclass(frozen=True)
class Extremes:
    """The rows with the most or the least weight, and how many share the very first one's."""

    rows: np.ndarray
    alike: int


def groups(returns: np.ndarray) -> dict[str, np.ndarray]:
    """The best, typical and worst episodes by return; all of them where they are few."""
    order = np.argsort(-returns, kind="stable")
    if len(order) <= 3 * EACH:
        return {"all episodes, best first": order}
    middle = (len(order) - EACH) // 2
    return {"best": order[:EACH], "typical": order[middle : middle + EACH], "worst": order[-EACH:]}


def strip(data: Dataset, episode: int, weightings: Sequence[Weighting]) -> Strip:
    start = int(data.episodes.start[episode])
    length = int(data.episodes.length[episode])
    cuts = np.unique(np.linspace(0, length, min(length, STRETCHES) + 1).astype(int))
    columns = (data.reward, *(weighting.weight for weighting in weightings))
    reward, *weights = (
        np.add.reduceat(column[start : start + length].astype(np.float64), cuts[:-1]) / np.diff(cuts)
        for column in columns
    )
    return Strip(episode, reward, weights)


def heaviest(weight: np.ndarray) -> Extremes:
    return _first(-weight)


def lightest(weight: np.ndarray) -> Extremes:
    return _first(weight)


def _first(value: np.ndarray) -> Extremes:
    """Least values first, and where they are alike the first rows first."""
    count = min(LISTED, len(value))
    edge = np.partition(value, count - 1)[count - 1]
    below = np.flatnonzero(value < edge)
    at = np.flatnonzero(value == edge)
    rows = np.concatenate([below, at[: count - len(below)]])
    rows = rows[np.lexsort((rows, value[rows]))]
    return Extremes(rows, int(np.count_nonzero(value == value[rows[0]])))
