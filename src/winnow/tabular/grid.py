"""Rooms on a grid as a table: where each move leads, what a policy earns, and the best one.

There are four moves. Reaching the goal pays 1 and leads back to the start, so the average reward of a policy is 1 over
its mean number of steps from start to start.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.sparse import csc_array
from scipy.sparse.linalg import splu

# fmt: off
FOUR_ROOMS = (".....#.....",  # the rooms of Sutton, Precup and Singh (1999), and 16 moves from S to G
              ".S.........",
              ".....#.....",
              ".....#.....",
              ".....###.##",
              "#.####.....",
              ".....#.....",
              ".....#.....",
              "...........",
              ".....#...G.",
              ".....#.....")
# fmt: on
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Up, right, down, left: (row, column)."""
REACHED = 1e-9
"""Smaller probabilities count as 0."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """State 0 is the start. The outcome with the number `states` is the payment, followed by state 0."""

    slip: float = 0.0
    """Probability of moving to the left of the intended direction, and of moving to the right."""
    rooms: tuple[str, ...] = FOUR_ROOMS
    pays: Literal["leaving", "entering"] = "leaving"
    """leaving: the goal is a state, and any move from it pays and leads to the start; entering: the move into it
    does."""

    @cached_property
    def cells(self) -> list[tuple[int, int]]:
        """The positions of all states, the start first and the goal last."""
        every = [(y, x) for y, line in enumerate(self.rooms) for x, mark in enumerate(line) if mark != "#"]
        return sorted(every, key=lambda cell: "S.G".index(self.rooms[cell[0]][cell[1]]))

    @property
    def states(self) -> int:
        return len(self.cells) - (self.pays == "entering")

    @cached_property
    def outcome(self) -> np.ndarray:
        """[S, 4] the next state if the move does not slip. A move into a wall stays in place."""
        number = {cell: i for i, cell in enumerate(self.cells)}
        there = [[(y + dy, x + dx) for dy, dx in MOVES] for y, x in self.cells[: self.states]]
        out = np.array([[number.get(cell, i) for cell in row] for i, row in enumerate(there)])
        if self.pays == "leaving":
            out[-1] = self.states
        return out

    @cached_property
    def transition(self) -> np.ndarray:
        """[S, 4, S + 1] probability of each outcome; the last is the payment."""
        out = np.zeros((self.states, 4, self.states + 1))
        for turn, chance in ((0, 1 - 2 * self.slip), (1, self.slip), (-1, self.slip)):
            for a in range(4):
                np.add.at(out[:, a], (np.arange(self.states), self.outcome[:, (a + turn) % 4]), chance)
        return out

    @cached_property
    def least_steps(self) -> np.ndarray:
        """[S + 1] the smallest number of steps to the payment."""
        far = np.full(self.states + 1, np.inf)
        far[-1] = 0
        for _ in range(self.states):
            far[:-1] = np.minimum(far[:-1], 1 + far[self.outcome].min(axis=1))
        return far

    # ----------------------------------------------------------------------------------------- policies [S, 4]

    def occupancy(self, policy: np.ndarray) -> np.ndarray | None:
        """[S, 4] the long-run frequency of each pair (s, a); None if the policy may get stuck."""
        moves = np.einsum("sa,sat->st", policy, self.transition)
        within = moves[:, :-1]
        seen = np.zeros(self.states, bool)
        seen[0] = True
        for _ in range(self.states):
            seen |= (within[seen] > REACHED).any(axis=0)
        ends = moves[:, -1] > REACHED
        for _ in range(self.states):
            ends |= (within[:, ends] > REACHED).any(axis=1)
        if not ends[seen].all():
            return None
        visits = np.zeros(self.states)
        stays = csc_array(np.eye(seen.sum()) - within[np.ix_(seen, seen)].T)
        visits[seen] = splu(stays).solve(np.eye(seen.sum())[0])
        return policy * (visits / visits.sum())[:, None]

    def value(self, policy: np.ndarray) -> float:
        """The exact average reward of a policy: 1 over the mean number of steps from start to start."""
        often = self.occupancy(policy)
        return 0.0 if often is None else float((often * self.transition[..., -1]).sum())

    @cached_property
    def optimal(self) -> np.ndarray:
        """[S, 4] the best policy, by policy iteration; it is uniform over equally good moves."""
        policy = np.eye(4)[np.argmin(self.least_steps[self.outcome], axis=1)]
        while True:
            moves = np.einsum("sa,sat->st", policy, self.transition)[:, :-1]
            steps = np.append(splu(csc_array(np.eye(self.states) - moves)).solve(np.ones(self.states)), 0)
            ahead = self.transition @ steps
            better = np.eye(4)[np.argmin(ahead - 1e-9 * policy, axis=1)]
            if (better == policy).all():
                as_good = ahead < ahead.min(axis=1, keepdims=True) + 1e-9
                return as_good / as_good.sum(axis=1, keepdims=True)
            policy = better

    @cached_property
    def best(self) -> float:
        """The largest average reward of any policy."""
        return self.value(self.optimal)
