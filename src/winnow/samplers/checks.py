"""Whether what a fitted sampler samples agrees with the logged returns; what is sampled instead where it does not.

A value function that is fitted to logged data can be wrong without a sign of it in the fit: on a log of a plant, whose
sensors drifted before a fault, one of the worst episodes got 90.8 % of all samples. So the samples are compared with
the returns, which are known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from winnow.data.dataset import Dataset
from winnow.samplers.base import Sampler
from winnow.samplers.returns import AW
from winnow.system.progress import warn

LARGEST_SHARE = 0.3
"""The largest part of the samples that one episode may have."""
LARGE_EPISODE = 0.2
"""An episode with this part of the rows may have a larger part of the samples."""
LEAST_EFFECTIVE = 0.02
LEAST_EFFECTIVE_ROWS = 1_000
"""Samples are too concentrated if a smaller part of the rows is effective, and fewer rows than that. In a large set
with one good row in a hundred the effective share is small in the best of samples, and the rows are enough."""


class Concentration(NamedTuple):
    """How concentrated samples are, and what they return."""

    effective_share: float
    """1 / Σp², as a part of the rows."""
    largest: int
    """The episode with the most samples."""
    largest_share: float
    """Its part of the samples."""
    mean_return: float
    """Mean return of the episodes that rows are sampled from."""
    uniform_return: float
    """The same if all rows are sampled alike."""


def concentration(dataset: Dataset, probability: np.ndarray) -> Concentration:
    """Of samples of a dataset that has episodes."""
    share = np.bincount(dataset.episode, probability, len(dataset.episodes))
    largest = int(share.argmax())
    return Concentration(
        effective_share=float(1 / (probability @ probability) / len(dataset)),
        largest=largest,
        largest_share=float(share[largest]),
        mean_return=float(share @ dataset.returns),
        uniform_return=float(dataset.episodes.length @ dataset.returns / len(dataset)),
    )


def disagreement(dataset: Dataset, probability: np.ndarray, rare: bool = False) -> str:
    """Why these samples must not be trusted; empty if nothing speaks against them.

    rare: few rows may be effective
    """
    got = concentration(dataset, probability)
    rounding = 1e-9 * float(np.abs(dataset.returns).max())
    if got.mean_return < got.uniform_return - rounding:
        means = f"{got.mean_return:.4g}, below the {got.uniform_return:.4g} of uniform samples"
        return f"the mean return of its samples is {means}"
    rows = dataset.episodes.length[got.largest] / len(dataset)
    if got.largest_share > LARGEST_SHARE and rows < LARGE_EPISODE:
        return f"one episode, with {rows:.1%} of the rows, has {got.largest_share:.1%} of its samples"
    few = got.effective_share < LEAST_EFFECTIVE and got.effective_share * len(dataset) < LEAST_EFFECTIVE_ROWS
    if few and not rare:
        return f"only {got.effective_share:.2%} of the rows are effective in its samples"
    return ""


_fallbacks: dict[tuple[str, Sampler], str] = {}


def checked(dataset: Dataset, sampler: Sampler, name: str, probability: np.ndarray) -> np.ndarray:
    """The probabilities of a fitted sampler, if they agree with the returns; else those of AW, or uniform ones."""
    reason = disagreement(dataset, probability)
    if not reason:
        return probability
    instead = AW().probabilities(dataset)
    other = "aw"
    if disagreement(dataset, instead, rare=True):
        instead = np.full(len(dataset), 1 / len(dataset))
        other = "uniform"
    line = f"{dataset.meta.name}: {name} is not used, because {reason}; {other} is used instead"
    key = (dataset.fingerprint, sampler)
    if key not in _fallbacks:
        warn(line)
    _fallbacks[key] = line
    return instead


def fallback(dataset: Dataset, sampler: Sampler) -> str:
    """The line that said why a sampler's own probabilities were not used on a dataset; empty if they were, or if they
    were not asked for yet."""
    return _fallbacks.get((dataset.fingerprint, sampler), "") if _fallbacks else ""
