"""Samplers: how often a row is drawn. Probabilities are fixed before training; drawing one costs two look-ups.

A sampler is a frozen dataclass with `probabilities(dataset) -> [rows]`. It needs numpy alone.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol

import numpy as np

from winnow.data.dataset import Dataset
from winnow.errors import BadInput


class Sampler(Protocol):
    def probabilities(self, dataset: Dataset) -> np.ndarray:
        """[rows] float64, ≥ 0, sums to 1."""
        ...


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Every row as often as every other."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        return np.full(len(dataset), 1 / len(dataset))


@dataclasses.dataclass(frozen=True)
class AW:
    """Advantage weighting: rows of episodes that did better than their start promised (Hong et al., 2023).

    A = G − V(s0) with V the least-squares fit of the return on the first observation; p ∝ exp(A/η) with A scaled
    to [0, 1] over rows.
    """

    temperature: float = 0.1
    """η: the lower, the more the best episodes are drawn. The paper's grid: 0.01, 0.1–0.2, 1, 5."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        _need_episodes(dataset, "aw")
        start = dataset.start_obs.astype(np.float64)
        design = np.column_stack([np.ones(len(start)), start])
        fit, *_ = np.linalg.lstsq(design, dataset.returns, rcond=None)
        return _boltzmann(dataset, dataset.returns - design @ fit, self.temperature, "aw")


@dataclasses.dataclass(frozen=True)
class RW:
    """Return weighting: as AW with the return itself in place of the advantage."""

    temperature: float = 0.1
    """η: the lower, the more the best episodes are drawn."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        _need_episodes(dataset, "rw")
        return _boltzmann(dataset, dataset.returns, self.temperature, "rw")


@dataclasses.dataclass(frozen=True)
class PF:
    """Percentage filtering: only the rows of the best episodes, each as often as every other."""

    share: float = 0.1
    """Part of the episodes to keep, by return, at least one. The paper's grid: 0.1, 0.2, 0.5."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        _need_episodes(dataset, "pf")
        if not 0 < self.share <= 1:
            raise BadInput(f"sampler.share is {self.share}; it is a part of the episodes, above 0 and at most 1")
        keep = max(1, int(self.share * len(dataset.episodes) + 1e-9))  # 0.29 × 100 is 29
        best = np.argsort(-dataset.returns, kind="stable")[:keep]
        kept = np.zeros(len(dataset.episodes))
        kept[best] = 1
        rows = np.repeat(kept, dataset.episodes.length)
        return rows / rows.sum()


SAMPLERS: dict[str, type] = {"uniform": Uniform, "aw": AW, "pf": PF, "rw": RW}


def _need_episodes(dataset: Dataset, name: str) -> None:
    if not dataset.has_episodes:
        raise BadInput(
            f"{dataset.meta.name}: is {dataset.meta.kind} data, and {name} needs the returns of whole episodes; "
            "use a method that weighs single rows (dual-uniform, dw-uniform) or uniform"
        )


def _boltzmann(dataset: Dataset, score: np.ndarray, temperature: float, name: str) -> np.ndarray:
    if not temperature > 0:
        raise BadInput(f"sampler.temperature is {temperature}; {name} needs one above 0")
    span = score.max() - score.min()
    # What is left by rounding where the start explains every return is no advantage.
    flat = span <= 1e-9 * np.abs(dataset.returns).max()
    unit = np.zeros_like(score) if flat else (score - score.min()) / span
    weight = np.repeat(np.exp((unit - 1) / temperature), dataset.episodes.length)
    return weight / weight.sum()


# ------------------------------------------------------------------------------------------------ drawing


class Alias(NamedTuple):
    """A table for drawing in constant time: take column i at random, keep it with `keep[i]`, else `other[i]`."""

    keep: np.ndarray  # [rows] float32
    other: np.ndarray  # [rows] int32


def alias_table(probability: np.ndarray) -> Alias:
    """Walker's alias table, built in float64 with sums and searches over whole arrays.

    Lay the deficits of light columns (p < mean) and the surpluses of heavy ones end to end. A light column borrows
    from the heavy one that its deficit begins in. A heavy column whose last borrower reaches beyond its surplus is
    itself short by that overhang, and borrows it from the next heavy column.
    """
    scaled = np.asarray(probability, np.float64) * (len(probability) / np.sum(probability, dtype=np.float64))
    light, heavy = np.flatnonzero(scaled < 1), np.flatnonzero(scaled >= 1)
    keep, other = np.ones(len(scaled)), np.arange(len(scaled))
    if len(light) == 0 or len(heavy) == 0:  # all equal, to rounding
        return Alias(keep.astype(np.float32), other.astype(np.int32))
    deficit = np.cumsum(1 - scaled[light])
    surplus = np.cumsum(scaled[heavy] - 1)
    begins = np.concatenate([[0.0], deficit[:-1]])
    lender = np.minimum(np.searchsorted(surplus, begins, side="right"), len(heavy) - 1)
    keep[light], other[light] = scaled[light], heavy[lender]
    last = np.searchsorted(deficit, surplus, side="left")
    # The last heavy columns may have no borrower at their edge (rounding), and those before any surplus lend nothing.
    short = (last < len(light)) & (surplus > 0)
    overhang = np.where(short, deficit[np.minimum(last, len(light) - 1)] - surplus, 0.0)
    keep[heavy] = np.clip(1 - overhang, 0.0, 1.0)
    other[heavy] = heavy[np.minimum(np.arange(len(heavy)) + 1, len(heavy) - 1)]
    return Alias(keep.astype(np.float32), other.astype(np.int32))
