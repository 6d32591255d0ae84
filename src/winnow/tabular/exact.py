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
"""edge: every (s, a, s') has its own weight, as in `Dual`: on a slippery grid it may prefer lucky outcomes.
pair: the edges of one (s, a) share a weight, so outcomes keep their frequencies in the data."""


def linear_program(data: Data, by: By = "pair") -> tuple[float, np.ndarray]:
    """The largest average reward of a flow-conserving distribution on the data, and one such distribution [edges]."""
    spread = _spread(data, by)
    flow = np.vstack([data.drift.T @ spread, np.ones(spread.shape[1])])
    target = np.append(np.zeros(data.grid.states), 1.0)
    solution = linprog(-(data.reward @ spread), A_eq=flow, b_eq=target, method="highs")
    assert solution.status == 0, solution.message
    return -float(solution.fun), spread @ solution.x


Outcomes = Literal["data", "grid"]
"""data: transition probabilities as estimated from the data; grid: the true ones."""


def distance_to_optimum(data: Data, mass: np.ndarray, best: float | None = None, outcomes: Outcomes = "data") -> float:
    """Total variation over pairs (s, a) from weighted data [edges] to the nearest optimal distribution.

    `best` is the optimum for these outcomes, if it is known already. `mass` may sum to less than 1: the missing part
    adds to the distance.
    """
    grid = data.grid
    if outcomes == "data":
        spread = _spread(data, "pair")
        drift = data.drift.T @ spread
        reward = data.reward @ spread
        of_pair = (spread > 0).T @ mass
        best = linear_program(data)[0] if best is None else best
    else:
        reward = grid.transition[..., -1].ravel()
        drift = grid.transition[..., :-1].reshape(-1, grid.states).T - np.repeat(np.eye(grid.states), 4, axis=1)
        drift[0] += reward  # after the goal comes the start
        of_pair = np.bincount(data.pair, mass, minlength=4 * grid.states)
        best = grid.best if best is None else best
    pairs = len(of_pair)
    eye = eye_array(pairs, format="csr")
    equal = csr_array(np.vstack([drift, np.ones(pairs), reward]))
    solution = linprog(  # over an optimal x and its overlap with the weighted data: 1 − distance is the overlap's sum
        np.append(np.zeros(pairs), np.full(pairs, -1.0)),
        A_ub=hstack([-eye, eye]),
        b_ub=np.zeros(pairs),
        A_eq=hstack([equal, csr_array(equal.shape)]),
        b_eq=np.concatenate([np.zeros(grid.states), [1.0, best]]),
        bounds=np.column_stack([np.zeros(2 * pairs), np.append(np.full(pairs, np.inf), of_pair)]),
        method="highs",
    )
    assert solution.status == 0, solution.message
    return max(0.0, float(1 + solution.fun))


def _spread(data: Data, by: By) -> np.ndarray:
    """[edges, variables] how a unit of each variable is distributed over edges."""
    if by == "edge":
        return np.eye(len(data.share))
    _, pair = np.unique(data.pair, return_inverse=True)
    joint = np.where(pair[:, None] == np.arange(pair.max() + 1), data.share[:, None], 0.0)
    return joint / joint.sum(axis=0)


def exact_dual(
    data: Data, temperature: float, discount: float = 1.0, terminal: str = "reset", by: By = "edge"
) -> np.ndarray:
    """log w [edges] at the minimum of λ log E_D[exp(e/λ)] + (1 − γ) ν(s0), with E_D[w] = 1; Newton's method.

    by="pair" replaces e by its mean over the outcomes of (s, a), so that no outcome is preferred to another.
    """
    eye = np.eye(data.grid.states)
    spread = _spread(data, by)
    lean = discount * eye[data.following] - eye[data.state]  # de/dν
    if terminal == "mask":
        lean *= 1 - data.terminal[:, None]
    lean = csr_array(spread.T @ lean)
    reward = spread.T @ data.reward
    member = spread > 0
    log_share = np.log(member.T @ data.share)
    ridge = eye_array(data.grid.states)

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
            # The Hessian is a sparse matrix minus an outer product, (A − m mᵀ) / λ. ν is arbitrary in states without
            # weight.
            solve = splu((lean.T @ (lean * weighted[:, None]) + 1e-9 * ridge).tocsc()).solve
            by_mean = solve(mean)
            step = -heat * (solve(gradient) + by_mean * (by_mean @ gradient) / (1 - by_mean @ mean))
            slope = gradient @ step
            part = 1.0
            while dual(nu + part * step, heat)[0] > value + part * slope / 4 + 1e-15 and part > 1e-6:
                part /= 2
            nu = nu + part * step
    return member @ dual(nu, temperature)[1]


def exact_budget(data: Data, budget: float, least: float = 1e-3) -> tuple[float, np.ndarray]:
    """The λ at which KL(D_w‖D) equals the budget (at least `least`), and its log w."""

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
