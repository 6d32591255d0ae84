"""Exact answers over the edges of behaviour data: the linear program, the dual by Newton's method."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.optimize import brentq, linprog
from scipy.sparse import csr_array, eye_array, hstack
from scipy.sparse.linalg import splu
from scipy.special import logsumexp

from winnow.tabular.data import Data

By = Literal["edge", "pair"]
"""edge: every (s, a, s') has its own weight, as in `Dual`: where moves slip it may choose lucky outcomes.
pair: the edges of one (s, a) share a weight, so they occur as often as they do in the data."""


def linear_program(data: Data, by: By = "pair") -> tuple[float, np.ndarray]:
    """The greatest average reward of a flow-conserving distribution on the data, and one such distribution [edges]."""
    spread = _spread(data, by)
    flow = np.vstack([data.drift.T @ spread, np.ones(spread.shape[1])])
    target = np.append(np.zeros(data.grid.states), 1.0)
    found = linprog(-(data.reward @ spread), A_eq=flow, b_eq=target, method="highs")
    assert found.status == 0, found.message
    return -float(found.fun), spread @ found.x


Outcomes = Literal["data", "grid"]
"""data: pairs lead where they led in the data, as far as one can know from it; grid: where they lead in truth."""


def distance_to_optimum(data: Data, mass: np.ndarray, best: float | None = None, outcomes: Outcomes = "data") -> float:
    """Total variation over pairs (s, a) from weighted data [edges] to the nearest optimal distribution.

    `best` is the optimum of these outcomes, where it is known already. What is not in `mass` (it may sum to less than
    1) is part of the distance.
    """
    grid = data.grid
    if outcomes == "data":
        spread = _spread(data, "pair")
        drift, reward, of_pair = data.drift.T @ spread, data.reward @ spread, (spread > 0).T @ mass
        best = linear_program(data)[0] if best is None else best
    else:
        reward = grid.transition[..., -1].ravel()
        drift = grid.transition[..., :-1].reshape(-1, grid.states).T - np.repeat(np.eye(grid.states), 4, axis=1)
        drift[0] += reward  # paid, and back at the start
        of_pair = np.bincount(data.pair, mass, minlength=4 * grid.states)
        best = grid.best if best is None else best
    pairs = len(of_pair)
    eye = eye_array(pairs, format="csr")
    equal = csr_array(np.vstack([drift, np.ones(pairs), reward]))
    found = linprog(  # over an optimal x and what it has in common with the weighted data: 1 − distance is their sum
        np.append(np.zeros(pairs), np.full(pairs, -1.0)),
        A_ub=hstack([-eye, eye]),
        b_ub=np.zeros(pairs),
        A_eq=hstack([equal, csr_array(equal.shape)]),
        b_eq=np.concatenate([np.zeros(grid.states), [1.0, best]]),
        bounds=np.column_stack([np.zeros(2 * pairs), np.append(np.full(pairs, np.inf), of_pair)]),
        method="highs",
    )
    assert found.status == 0, found.message
    return max(0.0, float(1 + found.fun))


def _spread(data: Data, by: By) -> np.ndarray:
    """[edges, variables] how a unit of each variable falls on edges."""
    if by == "edge":
        return np.eye(len(data.share))
    _, pair = np.unique(data.pair, return_inverse=True)
    joint = np.where(pair[:, None] == np.arange(pair.max() + 1), data.share[:, None], 0.0)
    return joint / joint.sum(axis=0)


def exact_dual(
    data: Data, temperature: float, discount: float = 1.0, terminal: str = "reset", by: By = "edge"
) -> np.ndarray:
    """log w [edges] at the minimum of λ log E_D[exp(e/λ)] + (1 − γ) ν(s0), with E_D[w] = 1; Newton's method.

    by="pair" puts the mean of e over the outcomes of (s, a) in its place, so no outcome is preferred to another.
    """
    eye, spread = np.eye(data.grid.states), _spread(data, by)
    lean = discount * eye[data.following] - eye[data.state]  # de/dν
    if terminal == "mask":
        lean *= 1 - data.terminal[:, None]
    lean, reward = csr_array(spread.T @ lean), spread.T @ data.reward
    member = spread > 0
    log_share, ridge = np.log(member.T @ data.share), eye_array(data.grid.states)

    def dual(nu: np.ndarray, heat: float) -> tuple[float, np.ndarray]:
        """The dual's value, and log w."""
        score = (reward + lean @ nu) / heat
        level = float(np.asarray(logsumexp(score + log_share)))
        return heat * level + (1 - discount) * nu[0], score - level

    nu = np.zeros(data.grid.states)
    for heat in np.geomspace(max(1.0, temperature), temperature, 12):  # from smooth to sharp
        for _ in range(200):
            value, log_weight = dual(nu, heat)
            weighted = np.exp(log_share + log_weight)
            mean = lean.T @ weighted
            gradient = mean + (1 - discount) * eye[0]
            if np.abs(gradient).max() < 1e-11:
                break
            # The curvature is a sparse matrix less a product, (A − m mᵀ) / λ. ν is free where nothing has weight.
            solve = splu((lean.T @ (lean * weighted[:, None]) + 1e-9 * ridge).tocsc()).solve
            by_mean = solve(mean)
            step = -heat * (solve(gradient) + by_mean * (by_mean @ gradient) / (1 - by_mean @ mean))
            slope, part = gradient @ step, 1.0
            while dual(nu + part * step, heat)[0] > value + part * slope / 4 + 1e-15 and part > 1e-6:
                part /= 2
            nu = nu + part * step
    return member @ dual(nu, temperature)[1]


def exact_budget(data: Data, budget: float, least: float = 1e-3) -> tuple[float, np.ndarray]:
    """The λ that spends the budget (not below `least`), and its log w."""

    def left(log_heat: float) -> float:
        return budget - divergence(data, exact_dual(data, float(np.exp(log_heat))))

    sharpest = exact_dual(data, least)
    if divergence(data, sharpest) < budget:
        return least, sharpest
    heat = float(np.exp(brentq(left, np.log(least), np.log(10.0), xtol=1e-4)))  # pyright: ignore
    return heat, exact_dual(data, heat)


def divergence(data: Data, log_weight: np.ndarray) -> float:
    """KL(D_w‖D) in nats."""
    return float(data.share * np.exp(log_weight) @ log_weight)
