"""What samplers share: their protocol, checks of their settings and datasets, and the step from episodes to rows."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from winnow.data.dataset import Dataset
from winnow.errors import BadInput
from winnow.types import check_settings


class Sampler(Protocol):
    """How often each row of a dataset is sampled. A frozen dataclass of settings, made with `winnow.types.plugin`."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        """[rows] float64, ≥ 0, sums to 1."""
        ...


def check(sampler: Sampler) -> None:
    """Refuse settings outside their range."""
    check_settings(sampler, "sampler")


def require_episodes(dataset: Dataset, name: str) -> None:
    if not dataset.has_episodes:
        raise BadInput(
            f"{dataset.meta.name}: is {dataset.meta.kind} data, and {name} needs the returns of whole episodes; "
            "use a method that weighs single rows (dw-uniform, dual-uniform, odpr-a) or uniform"
        )


def over_rows(dataset: Dataset, weight: np.ndarray) -> np.ndarray:
    """[rows] probabilities from the weight of a row of each episode."""
    rows = np.repeat(weight, dataset.episodes.length)
    return rows / rows.sum()


def unit(score: np.ndarray, source: np.ndarray) -> np.ndarray:
    """A score of each episode, scaled to [0, 1]; 0 for all where they do not differ by more than the rounding errors of
    numbers as large as `source`."""
    span = score.max() - score.min()
    # Where the start explains every return, what is left is rounding and no advantage.
    flat = span <= 1e-9 * np.abs(source).max()
    return np.zeros_like(score) if flat else (score - score.min()) / span
