"""Measures of weighted behaviour data, and the true value of the policy extracted from it.

Weighted data is given as `log_mass` [edges], the log of each edge's fraction of it. Logs keep the policy exact even in
states with almost no weight.
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
    """`outcomes` defines optimal occupancies: by the data's own outcomes, or in the true grid."""
    mass = np.exp(log_mass)
    return Judged(
        reported=float(mass @ data.reward),
        flow=float(np.abs(mass @ data.drift).sum() / 2),
        distance=distance_to_optimum(data, mass, outcomes=outcomes),
        value=data.grid.value(extracted(data, log_mass)),
    )


def extracted(data: Data, log_mass: np.ndarray) -> np.ndarray:
    """[S, 4] π(a|s) ∝ D(s,a) w(s,a), exact even for tiny weights; uniform in states that are never sampled."""
    top = np.full(data.grid.states, -np.inf)
    np.maximum.at(top, data.state, log_mass)
    drawn = np.isfinite(log_mass)
    part = np.exp(log_mass[drawn] - top[data.state][drawn])
    pair = np.bincount(data.pair[drawn], part, minlength=4 * data.grid.states).reshape(-1, 4)
    total = pair.sum(axis=1, keepdims=True)
    return np.where(total > 0, pair / np.where(total > 0, total, 1), 0.25)


# -------------------------------------------------------------------------------------- weighted data as log mass


def from_rows(data: Data, log_weight: np.ndarray | float = 0.0, sampler: Sampler | None = None) -> np.ndarray:
    """The log mass of rows with these log weights, sampled by a sampler."""
    with np.errstate(divide="ignore"):
        row = np.log((sampler or Uniform()).probabilities(data.dataset)) + log_weight
    top = np.full(len(data.share), -np.inf)
    np.maximum.at(top, data.edge, row)
    possible = np.isfinite(top)[data.edge]
    total = np.bincount(
        data.edge[possible], np.exp(row[possible] - top[data.edge[possible]]), minlength=len(data.share)
    )
    with np.errstate(divide="ignore"):
        return _normalised(np.log(total) + np.where(np.isfinite(top), top, 0.0))


def from_edges(data: Data, log_weight: np.ndarray) -> np.ndarray:
    """The log mass of edges with these log weights."""
    return _normalised(np.log(data.share) + log_weight)


def pairs(data: Data, log_mass: np.ndarray) -> np.ndarray:
    """[S, 4] the fraction of the weighted data of each pair."""
    return np.bincount(data.pair, np.exp(log_mass), minlength=4 * data.grid.states).reshape(-1, 4)


def _normalised(log_mass: np.ndarray) -> np.ndarray:
    return log_mass - np.asarray(logsumexp(log_mass))
