"""What weights do to behaviour data, and what the policy they make is worth in the true grid.

Weighted data is the log of the part that each edge has of it, `log_mass` [edges]. As logs, since a policy must do
right even in states that have next to no weight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from winnow.samplers import Sampler, Uniform
from winnow.tabular.data import Data
from winnow.tabular.exact import Outcomes, distance_to_optimum


class Judged(NamedTuple):
    reported: float  # J(D_w) = Σ p w r̃
    flow: float  # half of Σ_s |inflow − outflow| under the weights: 0 where flow is conserved, at most 1
    distance: float  # total variation to the nearest optimal occupancy
    value: float  # exact average reward of π(a|s) ∝ D(s,a) w(s,a)


def judge(data: Data, log_mass: np.ndarray, outcomes: Outcomes = "data") -> Judged:
    """`outcomes` says what an optimal occupancy is: by the data's own outcomes, or in the true grid."""
    mass = np.exp(log_mass)
    return Judged(
        reported=float(mass @ data.reward),
        flow=float(np.abs(mass @ data.drift).sum() / 2),
        distance=distance_to_optimum(data, mass, outcomes=outcomes),
        value=data.grid.value(extracted(data, log_mass)),
    )


def extracted(data: Data, log_mass: np.ndarray) -> np.ndarray:
    """[S, 4] π(a|s) ∝ D(s,a) w(s,a), also where nearly nothing is left; uniform in states that are never drawn."""
    top = np.full(data.grid.states, -np.inf)
    np.maximum.at(top, data.state, log_mass)
    drawn = np.isfinite(log_mass)
    part = np.exp(log_mass[drawn] - top[data.state][drawn])
    pair = np.bincount(data.pair[drawn], part, minlength=4 * data.grid.states).reshape(-1, 4)
    total = pair.sum(axis=1, keepdims=True)
    return np.where(total > 0, pair / np.where(total > 0, total, 1), 0.25)


# -------------------------------------------------------------------------------------- weighted data as log mass


def from_rows(data: Data, log_weight: np.ndarray | float = 0.0, sampler: Sampler | None = None) -> np.ndarray:
    """Of rows with these log weights, drawn by a sampler."""
    with np.errstate(divide="ignore"):
        row = np.log((sampler or Uniform()).probabilities(data.dataset)) + log_weight
    top = np.full(len(data.share), -np.inf)
    np.maximum.at(top, data.edge, row)
    some = np.isfinite(top)[data.edge]
    total = np.bincount(data.edge[some], np.exp(row[some] - top[data.edge[some]]), minlength=len(data.share))
    with np.errstate(divide="ignore"):
        return _normalised(np.log(total) + np.where(np.isfinite(top), top, 0.0))


def from_edges(data: Data, log_weight: np.ndarray) -> np.ndarray:
    """Of log w by edge."""
    return _normalised(np.log(data.share) + log_weight)


def pairs(data: Data, log_mass: np.ndarray) -> np.ndarray:
    """[S, 4] the part that each pair has of weighted data."""
    return np.bincount(data.pair, np.exp(log_mass), minlength=4 * data.grid.states).reshape(-1, 4)


def _normalised(log_mass: np.ndarray) -> np.ndarray:
    return log_mass - np.asarray(logsumexp(log_mass))
