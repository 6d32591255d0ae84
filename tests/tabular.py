"""A grid of four small rooms where the exact answer is known, for tests and for results/tabular.

Start in one corner, goal in the other, four moves. Every step costs 0.02 and the goal pays 1, so the scaled reward is
1 at the goal and 0 elsewhere, and returns tell quick episodes from slow ones. Reaching the goal is a terminal, and the
next episode begins at the start: the average scaled reward of a policy is 1 over its mean number of steps.

An *edge* is a distinct (s, a, s'). All exact answers are over edges with their share of the data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq, linprog, minimize
from scipy.special import logsumexp

from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.pack import Pack, Run
from winnow.samplers import Sampler, Uniform
from winnow.types import Array, Batch, Metrics, Spec, Weights, plugin

# fmt: off
ROOMS = ("S..#...",
         ".......",
         "...#...",
         "#.###.#",
         "...#...",
         ".......",
         "...#..G")
# fmt: on
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
STEP_COST = 0.02
LIMIT = 100
"""Steps after which a recording stops: a timeout."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """The rooms as a table. State 0 is the start; the goal is no state but an outcome, with the number `states`."""

    slip: float = 0.0
    """Probability of going to the left of where one meant to go, and of going to the right."""

    @cached_property
    def cells(self) -> list[tuple[int, int]]:
        """The states' places, the start first, and the goal's as the last one."""
        every = [(y, x) for y, line in enumerate(ROOMS) for x, mark in enumerate(line) if mark != "#"]
        return sorted(every, key=lambda cell: "S.G".index(ROOMS[cell[0]][cell[1]]))

    @property
    def states(self) -> int:
        return len(self.cells) - 1

    @cached_property
    def outcome(self) -> np.ndarray:
        """[S, 4] where a move leads when it does not slip. A wall leaves one where one was."""
        number = {cell: i for i, cell in enumerate(self.cells)}
        there = [[(y + dy, x + dx) for dy, dx in MOVES] for y, x in self.cells[:-1]]
        return np.array([[number.get(cell, i) for cell in row] for i, row in enumerate(there)])

    @cached_property
    def transition(self) -> np.ndarray:
        """[S, 4, S + 1] probability of each outcome; the last is the goal."""
        out = np.zeros((self.states, 4, self.states + 1))
        for turn, chance in ((0, 1 - 2 * self.slip), (1, self.slip), (-1, self.slip)):
            for a in range(4):
                np.add.at(out[:, a], (np.arange(self.states), self.outcome[:, (a + turn) % 4]), chance)
        return out

    @cached_property
    def steps_to_goal(self) -> np.ndarray:
        """[S + 1] the least number of moves to the goal."""
        far = np.full(self.states + 1, np.inf)
        far[-1] = 0
        for _ in range(self.states):
            far[:-1] = np.minimum(far[:-1], 1 + far[self.outcome].min(axis=1))
        return far

    def value(self, policy: np.ndarray) -> float:
        """The exact average scaled reward of a policy [S, 4]: 1 over the mean number of steps from start to goal."""
        moves = np.einsum("sa,sat->st", policy, self.transition)
        within = moves[:, :-1]
        seen = np.zeros(self.states, bool)
        seen[0] = True
        for _ in range(self.states):
            seen |= (within[seen] > 1e-9).any(axis=0)
        ends = moves[:, -1] > 1e-9
        for _ in range(self.states):
            ends |= (within[:, ends] > 1e-9).any(axis=1)
        if not ends[seen].all():
            return 0.0  # it may come to where it never leaves
        steps = np.linalg.solve(np.eye(seen.sum()) - within[np.ix_(seen, seen)], np.ones(seen.sum()))
        return float(1 / steps[0])

    @cached_property
    def best(self) -> float:
        """The greatest average scaled reward of any policy, by policy iteration."""
        policy = np.eye(4)[np.argmin(self.steps_to_goal[self.outcome], axis=1)]
        while True:
            moves = np.einsum("sa,sat->st", policy, self.transition)[:, :-1]
            steps = np.append(np.linalg.solve(np.eye(self.states) - moves, np.ones(self.states)), 0)
            ahead = self.transition @ steps
            better = np.eye(4)[np.argmin(ahead - 1e-9 * policy, axis=1)]
            if (better == policy).all():
                return self.value(policy)
            policy = better


# ---------------------------------------------------------------------------------------------------- data


@dataclasses.dataclass(frozen=True)
class Data:
    """Behaviour data from a grid, as a dataset and as its distinct edges."""

    grid: Grid
    dataset: Dataset
    edge: np.ndarray  # [rows] the edge of each row
    state: np.ndarray  # [edges]
    action: np.ndarray
    following: np.ndarray  # the start where the edge reaches the goal
    terminal: np.ndarray  # 1 where it does, and that is also its scaled reward
    share: np.ndarray  # the part of the rows that are this edge; sums to 1

    @property
    def reward(self) -> np.ndarray:
        return self.terminal

    @property
    def pair(self) -> np.ndarray:
        """[edges] one number for (s, a)."""
        return 4 * self.state + self.action

    @cached_property
    def drift(self) -> np.ndarray:
        """[edges, S] what a unit of weight on an edge adds to inflow less outflow of each state."""
        eye = np.eye(self.grid.states)
        return eye[self.following] - eye[self.state]


def collect(grid: Grid, seed: int = 0, episodes: int = 400, random: float = 0.75) -> Data:
    """Episodes of a policy that moves at random three times out of four; those of the shortest length are left out."""
    rng = np.random.default_rng([seed, 77])
    shortest = int(grid.steps_to_goal[0])
    parts: list[np.ndarray] = []
    while len(parts) < episodes:
        state, rows = 0, []
        while state != grid.states and len(rows) < LIMIT:
            good = np.flatnonzero(grid.steps_to_goal[grid.outcome[state]] < grid.steps_to_goal[state])
            action = int(rng.integers(4)) if rng.random() < random else int(rng.choice(good))
            following = int(rng.choice(grid.states + 1, p=grid.transition[state, action]))
            rows.append((state, action, following, following == grid.states, False))
            state = following
        rows[-1] = (*rows[-1][:4], not rows[-1][3])
        if len(rows) > shortest:
            parts.append(np.array(rows))
    state, action, following, terminal, timeout = np.concatenate(parts).T
    place = np.eye(grid.states + 1)[:, :-1]  # the goal is all zeros: it is never left
    dataset = from_arrays(
        place[state],
        np.eye(4 * grid.states)[4 * state + action],  # one column for each pair, so that a linear ψ is a table
        terminal - STEP_COST,
        terminal,
        timeout,
        place[following],
        action_bounds=(-1, 1),
        name=f"rooms{'-slippery' if grid.slip else ''}-{seed}",
    )
    code = (4 * state + action) * (grid.states + 1) + following
    distinct, edge, count = np.unique(code, return_inverse=True, return_counts=True)
    pair, led = np.divmod(distinct, grid.states + 1)
    goal = led == grid.states
    return Data(grid, dataset, edge, pair // 4, pair % 4, np.where(goal, 0, led), goal * 1.0, count / count.sum())


# ------------------------------------------------------------------------------------------- exact answers


def linear_program(data: Data, by: str = "pair") -> tuple[float, np.ndarray]:
    """The greatest average reward of a flow-conserving distribution on the data, and one such distribution [edges].

    by="edge" lets every edge have its own weight, as `Dual` does: where moves slip it may choose lucky outcomes.
    by="pair" lets the edges of one (s, a) occur only as often as they do in the data.
    """
    spread = _spread(data, by)
    flow = np.vstack([data.drift.T @ spread, np.ones(spread.shape[1])])
    target = np.append(np.zeros(data.grid.states), 1.0)
    found = linprog(-(data.reward @ spread), A_eq=flow, b_eq=target, method="highs")
    assert found.status == 0, found.message
    return -float(found.fun), spread @ found.x


def distance_to_optimum(data: Data, weighted: np.ndarray) -> float:
    """Total variation from a distribution [edges] to the nearest optimal one, over pairs (s, a)."""
    best, _ = linear_program(data)
    spread = _spread(data, "pair")
    pairs = spread.shape[1]
    of_pair = np.where(spread > 0, 1.0, 0.0).T @ weighted
    eye = np.eye(pairs)
    equal = np.vstack([data.drift.T @ spread, np.ones(pairs), data.reward @ spread])
    found = linprog(
        np.append(np.zeros(pairs), np.full(pairs, 0.5)),
        A_ub=np.block([[eye, -eye], [-eye, -eye]]),
        b_ub=np.append(of_pair, -of_pair),
        A_eq=np.hstack([equal, np.zeros((len(equal), pairs))]),
        b_eq=np.concatenate([np.zeros(data.grid.states), [1.0, best]]),
        method="highs",
    )
    assert found.status == 0, found.message
    return float(found.fun)


def _spread(data: Data, by: str) -> np.ndarray:
    """[edges, variables] how a unit of each variable of the linear program falls on edges."""
    if by == "edge":
        return np.eye(len(data.share))
    _, pair = np.unique(data.pair, return_inverse=True)
    joint = np.where(pair[:, None] == np.arange(pair.max() + 1), data.share[:, None], 0.0)
    return joint / joint.sum(axis=0)


def exact_dual(data: Data, temperature: float, discount: float = 1.0, terminal: str = "reset") -> np.ndarray:
    """log w [edges] at the minimum of λ log E_D[exp(e/λ)] + (1 − γ) ν(s0), with E_D[w] = 1; Newton's method."""
    eye, log_share = np.eye(data.grid.states), np.log(data.share)
    lean = discount * eye[data.following] - eye[data.state]  # de/dν
    if terminal == "mask":
        lean *= 1 - data.terminal[:, None]

    def score(nu: np.ndarray, heat: float) -> np.ndarray:
        total = (data.reward + lean @ nu) / heat
        return total - logsumexp(total + log_share)

    def loss(nu: np.ndarray, heat: float) -> tuple[float, np.ndarray]:
        total = (data.reward + lean @ nu) / heat
        weighted = data.share * np.exp(score(nu, heat))
        value = heat * float(np.asarray(logsumexp(total + log_share))) + (1 - discount) * nu[0]
        return float(value), weighted @ lean + (1 - discount) * eye[0]

    def curvature(nu: np.ndarray, heat: float) -> np.ndarray:
        weighted = data.share * np.exp(score(nu, heat))
        mean = weighted @ lean
        return (lean.T * weighted @ lean - np.outer(mean, mean)) / heat

    nu = np.zeros(data.grid.states)
    for heat in np.geomspace(max(1.0, temperature), temperature, 12):  # from smooth to sharp
        found = minimize(
            loss, nu, (heat,), "trust-exact", jac=True, hess=curvature, options={"gtol": 1e-11, "maxiter": 500}
        )
        nu = found.x
    return score(nu, temperature)


def exact_budget(data: Data, budget: float, least: float = 1e-3) -> tuple[float, np.ndarray]:
    """The λ that spends the budget (not below `least`), and its log w."""

    def left(log_heat: float) -> float:
        return budget - divergence(data, exact_dual(data, float(np.exp(log_heat))))

    if left(np.log(least)) > 0:
        return least, exact_dual(data, least)
    heat = float(np.exp(brentq(left, np.log(least), np.log(10.0), xtol=1e-4)))  # pyright: ignore
    return heat, exact_dual(data, heat)


def divergence(data: Data, log_weight: np.ndarray) -> float:
    """KL(D_w‖D) in nats."""
    return float(data.share * np.exp(log_weight) @ log_weight)


# ---------------------------------------------------------------------------------------- what a form does


class Judged(NamedTuple):
    reported: float  # J(D_w) = Σ p w r̃
    flow: float  # half of Σ_s |inflow − outflow| under the weights: 0 where flow is conserved, at most 1
    distance: float  # total variation to the nearest optimal occupancy
    value: float  # exact average reward of π(a|s) ∝ D(s,a) w(s,a)


def weighted_edges(data: Data, log_weight: np.ndarray, sampler: Sampler | None = None) -> np.ndarray:
    """[edges] the distribution that rows with these log weights make, drawn by a sampler; sums to 1."""
    share = (sampler or Uniform()).probabilities(data.dataset)
    log_weight = np.asarray(log_weight, np.float64)
    row = share * np.exp(log_weight - log_weight[share > 0].max())
    return np.bincount(data.edge, row / row.sum(), minlength=len(data.share))


def edge_log_weights(data: Data, log_weight: np.ndarray) -> np.ndarray:
    """[edges] log w with E_D[w] = 1, from log w by row."""
    out = np.zeros(len(data.share))
    out[data.edge] = log_weight
    return out - np.asarray(logsumexp(out, b=data.share))


def judge(data: Data, log_weight: np.ndarray, sampler: Sampler | None = None) -> Judged:
    """What weights [rows] do to the data. A state that has no weight at all keeps its most weighty actions."""
    weighted = weighted_edges(data, log_weight, sampler)
    return Judged(
        reported=float(weighted @ data.reward),
        flow=float(np.abs(weighted @ data.drift).sum() / 2),
        distance=distance_to_optimum(data, weighted),
        value=data.grid.value(extracted(data, log_weight, sampler)),
    )


def extracted(data: Data, log_weight: np.ndarray, sampler: Sampler | None = None) -> np.ndarray:
    """[S, 4] π(a|s) ∝ D(s,a) w(s,a); uniform in states that are never drawn."""
    share = (sampler or Uniform()).probabilities(data.dataset)
    with np.errstate(divide="ignore"):
        total = np.log(share) + log_weight
    top = np.full(data.grid.states, -np.inf)
    np.maximum.at(top, data.state[data.edge], total)
    drawn = np.isfinite(total)
    row = np.exp(total[drawn] - top[data.state[data.edge]][drawn])
    pair = np.bincount(data.pair[data.edge][drawn], row, minlength=4 * data.grid.states).reshape(-1, 4)
    mass = pair.sum(axis=1, keepdims=True)
    return np.where(mass > 0, pair / np.where(mass > 0, mass, 1), 0.25)


# ------------------------------------------------------------------------------------------------- running


@plugin
class Idle:
    """An algorithm that learns nothing: only the weighter is looked at."""

    standardise: bool = True
    reward_scaling: str = "none"

    def init(self, key: Array, spec: Spec) -> tuple[()]:
        return ()

    def update(self, state: tuple[()], batch: Batch, weights: Weights, key: Array) -> tuple[tuple[()], Metrics]:
        return state, {}

    def act(self, state: tuple[()], obs: Array) -> Array:
        return jnp.zeros((*obs.shape[:-1], 1))


RATES = ("learning_rate", "temperature_rate")
STAGES = ((1.0, 500), (0.3, 400), (0.1, 400), (0.03, 400), (0.01, 300), (1e-3, 300), (1e-4, 300))


def train(
    runs: Iterable[tuple[Data, Any, int]], stages: Sequence[tuple[float, int]] = STAGES, batch_size: int = 2048
) -> Pack:
    """A pack of (data, weighter, seed), trained in stages of (factor of the learning rates, steps).

    A rate that falls lets weights settle: at λ = 0.01 an error of 0.001 in ν is one of 10 % in w.
    """
    pack = Pack(
        [Run(data.dataset, Idle(), Uniform(), weighter, seed) for data, weighter, seed in runs],
        sum(steps for _, steps in stages),
        batch_size,
    )
    first = pack.lanes.weighter
    for factor, steps in stages:
        slower = {name: factor * getattr(first, name) for name in RATES if hasattr(first, name)}
        pack.lanes = pack.lanes._replace(weighter=dataclasses.replace(first, **slower))
        pack.advance(steps)
    pack.wait()
    return pack


def table_of_nu(pack: Pack, number: int, data: Data) -> np.ndarray:
    """[S] ν of every state, from the linear network of `Dual(hidden=())` on standardised one-hot observations."""
    mean, std = (np.float64(moment) for moment in data.dataset.obs_moments)
    (layer,) = jax.tree.map(np.float64, pack.lane(number)[1].weighter.params["nu"])
    return ((np.eye(data.grid.states) - mean) / std @ layer["w"] + layer["b"])[:, 0]
