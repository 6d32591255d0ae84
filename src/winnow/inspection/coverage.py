"""A map of the states: standardised observations projected on the two directions in which they vary most."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.scaling import standardise

MAX_FITTED = 100_000
"""Maximum number of rows from which the directions are computed."""
MAX_POINTS = 20_000
"""Maximum number of points on the map."""
CELLS = 48
"""Cells along each side, for saying how much of the map a weighting reaches."""
TAIL = 0.001
"""Fraction of the rows beyond each edge of the map. They are drawn on the edge, so that one outlier does not squeeze
all others."""
BLOCK = 1 << 17


@dataclass(frozen=True)
class Map:
    """The position of every row, and what the axes are."""

    position: np.ndarray  # [rows, 2] in [0, 1], from the left and from below
    axes: tuple[str, str]
    text: str
    drawn: np.ndarray  # rows that are drawn, ascending

    @cached_property
    def cell(self) -> np.ndarray:
        """[rows] the cell each row lies in."""
        column, row = np.minimum((self.position * CELLS).astype(np.int32), CELLS - 1).T
        return CELLS * row + column

    def reach(self, weight: np.ndarray) -> float:
        """Effective number of cells with weight: exp of the entropy over cells, from 1 to all of them."""
        share = np.bincount(self.cell, weight, CELLS * CELLS) / weight.sum()
        share = share[share > 0]
        return float(np.exp(-(share @ np.log(share))))


def project(data: Dataset, seed: int = 0) -> Map | None:
    """The map; None if all states are the same."""
    rng = np.random.default_rng(seed)
    mean, scale = (part.astype(np.float64) for part in data.obs_moments)
    rows = len(data)
    fitted = np.sort(rng.choice(rows, min(rows, MAX_FITTED), replace=False))
    states = standardise(data.rows(fitted).obs, mean, scale)
    variance, direction = np.linalg.eigh(states.T @ states / len(states))
    variance = np.maximum(variance[::-1], 0)
    direction = direction[:, ::-1]
    if variance[0] <= 1e-9:
        return None
    drawn = np.sort(rng.choice(rows, min(rows, MAX_POINTS), replace=False))
    if data.obs_dim == 1:
        columns = np.column_stack([_columns(data, mean, scale, np.eye(1)), data.reward])
        return Map(_unit(columns), ("state", "reward"), "States are one number each: rewards are above it.", drawn)
    main = direction[:, :2] * np.sign(direction[np.abs(direction[:, :2]).argmax(axis=0), [0, 1]])
    explained = variance[:2] / variance.sum()
    text = (
        f"States are projected on the two directions in which they vary most (principal components of the standardised "
        f"observations), which hold {100 * explained.sum():.0f} % of their variance."
    )
    axes = tuple(f"{_named(main[:, i])} ({100 * explained[i]:.0f} % of the variance)" for i in (0, 1))
    return Map(_unit(_columns(data, mean, scale, main)), axes, text, drawn)  # pyright: ignore[reportArgumentType]


def _columns(data: Dataset, mean: np.ndarray, scale: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """All rows along some directions."""
    turned = (direction / scale[:, None]).astype(np.float32)
    out = np.empty((len(data), direction.shape[1]), np.float32)
    for low in range(0, len(data), BLOCK):
        part = slice(low, low + BLOCK)
        out[part] = data.rows(part).obs @ turned
    return out - (mean @ turned).astype(np.float32)


def _unit(columns: np.ndarray) -> np.ndarray:
    low, high = np.quantile(columns, (TAIL, 1 - TAIL), axis=0)
    span = np.where(high > low, high - low, 1)
    middle = np.where(high > low, 0, 0.5)  # what does not vary lies in the middle
    return np.clip((columns - low) / span + middle, 0, 1).astype(np.float32)


def _named(direction: np.ndarray) -> str:
    """The observation's columns that a direction is mostly made of."""
    order = np.argsort(-np.abs(direction))[:3]
    parts = [f"{'−' if direction[i] < 0 else '+'} {abs(direction[i]):.2f}·o{i}" for i in order]
    more = " …" if len(direction) > 3 else ""
    return " ".join(parts).removeprefix("+ ") + more
