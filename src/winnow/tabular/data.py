"""Behaviour data from a grid: the episodes as a dataset, and their distinct transitions.

An *edge* is a distinct transition (s, a, s'). All exact answers are over edges with their share of the data.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.tabular.grid import Grid

STEP_COST = 0.02
"""Cost of a step in the dataset's rewards, so that returns distinguish quick episodes from slow ones. Scaled to [0, 1],
the reward is 1 on reaching the goal and 0 elsewhere, as if steps were free."""


@dataclasses.dataclass(frozen=True, eq=False)
class Data:
    """Episodes of a behaviour policy, as a dataset and as their distinct edges."""

    grid: Grid
    dataset: Dataset  # observations are positions (row, column), actions one of four columns
    edge: np.ndarray  # [rows] the edge of each row
    state: np.ndarray  # [edges]
    action: np.ndarray
    following: np.ndarray  # the start if the edge is paid
    terminal: np.ndarray  # 1 if it is paid; also its scaled reward
    share: np.ndarray  # fraction of the rows that are this edge; sums to 1

    @property
    def reward(self) -> np.ndarray:
        return self.terminal

    @property
    def pair(self) -> np.ndarray:
        """[edges] one number for (s, a)."""
        return 4 * self.state + self.action

    @cached_property
    def drift(self) -> np.ndarray:
        """[edges, S] change of each state's inflow minus outflow for a unit of weight on an edge."""
        eye = np.eye(self.grid.states)
        return eye[self.following] - eye[self.state]

    @cached_property
    def tables(self) -> Dataset:
        """The same rows with a column for each state, and one for each pair as the action: a linear network of these
        (`hidden=()`) is a table, so winnow's own weighters learn exact answers from it."""
        one_hot = np.eye(self.grid.states, dtype=np.float32)
        after = one_hot[self.following] * (1 - self.terminal[:, None])  # zero after a terminal
        last = np.append(self.dataset.episodes.start[1:], len(self.dataset)) - 1
        timeout = np.zeros(len(self.dataset), bool)
        timeout[last] = self.terminal[self.edge[last]] == 0
        return from_arrays(
            one_hot[self.state][self.edge],
            np.eye(4 * self.grid.states, dtype=np.float32)[self.pair][self.edge],
            (self.terminal - STEP_COST)[self.edge],
            self.terminal[self.edge],
            timeout,
            after[self.edge],
            action_bounds=(-1, 1),
            name=self.dataset.meta.name,
        )


def collect(grid: Grid, seed: int = 0, episodes: int = 1000, random: float = 0.5, limit: int = 5000) -> Data:
    """Episodes of a policy that moves at random with this probability, otherwise along a shortest path.

    Episodes of the shortest length are left out. An episode times out after `limit` steps.
    """
    rng = np.random.default_rng([seed, 77])
    towards = [np.flatnonzero(grid.least_steps[grid.outcome[s]] < grid.least_steps[s]) for s in range(grid.states)]
    ladder = grid.transition.cumsum(axis=2)
    ladder /= ladder[..., -1:]
    shortest = int(grid.least_steps[0])
    parts: list[np.ndarray] = []
    while len(parts) < episodes:
        state = 0
        rows = []
        while state != grid.states and len(rows) < limit:
            good = towards[state]
            action = int(rng.integers(4)) if rng.random() < random else int(good[rng.integers(len(good))])
            following = int(ladder[state, action].searchsorted(rng.random(), side="right"))
            rows.append((state, action, following, following == grid.states, False))
            state = following
        rows[-1] = (*rows[-1][:4], not rows[-1][3])
        if len(rows) > shortest:
            parts.append(np.array(rows))
    state, action, following, terminal, timeout = np.concatenate(parts).T
    positions = np.array([*grid.cells, grid.cells[0]][: grid.states + 1], np.float32)
    dataset = from_arrays(
        positions[state],
        np.eye(4)[action],
        terminal - STEP_COST,
        terminal,
        timeout,
        positions[following],
        action_bounds=(0, 1),
        name=f"rooms{'-slippery' if grid.slip else ''}-{seed}",
    )
    code = (4 * state + action) * (grid.states + 1) + following
    distinct, edge, count = np.unique(code, return_inverse=True, return_counts=True)
    pair, led = np.divmod(distinct, grid.states + 1)
    paid = led == grid.states
    return Data(grid, dataset, edge, pair // 4, pair % 4, np.where(paid, 0, led), paid * 1.0, count / count.sum())
