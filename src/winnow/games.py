"""Playing: episodes of many policies at once, environments on all cores and the actions of all policies in one call.

An episode's seed is made of its run's seed and its own number, so returns depend neither on the number of processes nor
on who shares them, and methods with the same seed are compared on the same episodes. (Exactly, if `act` gives a row
the same action whatever rows are beside it.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from winnow import envs
from winnow.envs import EVALUATION, Environment
from winnow.errors import BadInput

Act = Callable[[np.ndarray], np.ndarray]
"""Observations [runs, n, O] to actions [runs, n, A] in the environment's units."""

MOST = 32
"""Seats of a run that step together, at the most: up to here XLA gives a row the same action in any company."""
CROWD = 80
"""Environments for each core, about, at the most."""


class Played(NamedTuple):
    """What policies earned. A run that was left out has NaN returns."""

    returns: np.ndarray  # [runs, episodes] float64, undiscounted
    lengths: np.ndarray  # [runs, episodes] steps of each episode
    seconds: float

    @property
    def rate(self) -> float:
        """Steps a second of all environments."""
        return float(self.lengths.sum()) / self.seconds


def play(
    environment: str | Environment | Sequence[str | Environment],
    act: Act,
    seeds: Sequence[int],
    episodes: int = 20,
    first: int | Sequence[int] = 0,
    *,
    processes: int | None = None,
    seats: int | None = None,
) -> Played:
    """Episodes `first`, `first` + 1, … of every run: a seed each, and an environment each or the same for all."""
    each = environment if isinstance(environment, Sequence) and not isinstance(environment, str) else [environment]
    with Games(list(each) * (len(seeds) // len(each)), episodes, processes, seats) as games:
        return games.play(act, seeds, first)


class Games:
    """Seats for several policies: each has the same number of environments, and all step together.

    The seats are in two groups, where there are enough of them: while one steps, `act` thinks about the other.
    """

    def __init__(
        self,
        environments: Sequence[str | Environment],
        episodes: int,
        processes: int | None = None,
        seats: int | None = None,
    ) -> None:
        self.runs, self.episodes = len(environments), episodes
        cores = processes or envs.cores_here()
        most = min(seats or max(2, CROWD * cores // self.runs), 2 * MOST)
        wanted = -(-episodes // -(-episodes // most))  # as many as leave none without work while others play on
        self.groups = 2 if wanted > 1 and self.runs * wanted >= 4 * cores else 1
        self.seats = min(MOST, -(-wanted // self.groups))  # of a run in a group
        entries = [envs.lookup(one) if isinstance(one, str) else one for one in environments]
        rows = [entry for _ in range(self.groups) for entry in entries for _ in range(self.seats)]
        self.workers = envs.Workers(rows, processes, [0] * len(rows), groups=self.groups, restart=True)
        shapes = [self.workers.shapes[entry.name] for entry in entries]
        if endless := [entry.name for entry, shape in zip(entries, shapes, strict=True) if shape.time_limit is None]:
            self.close()
            raise BadInput(f"{endless[0]}: has no time limit, so an episode might never end; register it with one")
        low, high = np.stack([shape.low for shape in shapes]), np.stack([shape.high for shape in shapes])
        self._centre, self._half = ((low + high) / 2)[:, None], np.where(high > low, (high - low) / 2, 1)[:, None]

    def play(
        self,
        act: Act,
        seeds: Sequence[int],
        first: int | Sequence[int] = 0,
        plays: Sequence[bool] | None = None,
        tick: Callable[[int], None] | None = None,
    ) -> Played:
        """Every run's episodes from number `first` on; runs that do not play are left out.

        `tick` is told how many episodes have ended, when some have.
        """
        shape = (self.groups, self.runs, self.seats)
        start = np.broadcast_to(np.asarray(first), self.runs)[:, None]
        stop = np.where(np.ones(self.runs, bool) if plays is None else plays, start[:, 0] + self.episodes, start[:, 0])
        seat = np.arange(self.groups)[:, None, None] * self.seats + np.arange(self.seats)
        number = np.broadcast_to(start + seat, shape).copy()
        base, until = (np.broadcast_to(x[:, None], shape) for x in (EVALUATION + np.asarray(seeds, np.int64), stop))
        returns = np.full((self.runs, self.episodes), np.nan)
        lengths = np.zeros((self.runs, self.episodes), np.int64)
        total, length = np.zeros(shape), np.zeros(shape, np.int64)
        stride = self.groups * self.seats
        began = time.perf_counter()
        self.workers.reset(base.ravel(), number.ravel(), until.ravel(), stride)
        going = [group for group in range(self.groups) if self._send(act, group)]
        while going:
            for group in tuple(going):
                board = self.workers.receive(group)
                fresh = board.fresh.reshape(shape[1:])
                length[group] += (number[group] < until[group]) & ~fresh
                total[group] += board.reward.reshape(shape[1:])
                if fresh.any():
                    total[group][fresh], length[group][fresh], board.fresh[:] = 0, 0, False
                over = np.argwhere((board.terminal | board.timeout).reshape(shape[1:]))
                for run, place in over:
                    spot = run, number[group, run, place] - start[run, 0]
                    returns[spot], lengths[spot] = total[group, run, place], length[group, run, place]
                    total[group, run, place], length[group, run, place] = 0, 0
                    number[group, run, place] += stride
                if tick and len(over):
                    tick(len(over))
                if not self._send(act, group):
                    going.remove(group)
        return Played(returns, lengths, time.perf_counter() - began)

    def _send(self, act: Act, group: int) -> bool:
        """Let a group take its next step; False where all of its seats have played their last episode."""
        board = self.workers.board.rows(self.workers.parts[group])
        if not board.playing.any():
            return False
        action = act(board.obs.reshape(self.runs, self.seats, -1))
        self.workers.send(((action - self._centre) / self._half).reshape(len(board.obs), -1), group)
        return True

    def close(self) -> None:
        self.workers.close()

    def __enter__(self) -> Games:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
