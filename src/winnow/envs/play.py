"""Playing episodes of many policies at once: environments on all cores, and the actions of all policies in one call.

An episode's seed is derived from its run's seed and its own number. So returns depend neither on the number of
processes nor on which runs are played together, and methods with the same seed are compared on the same episodes.
(Exactly so if `act` computes each row identically whatever else is in the batch.)
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from winnow import envs
from winnow.envs import EVALUATION_SEEDS, Environment
from winnow.envs.workers import Workers
from winnow.errors import BadInput
from winnow.system.cores import cores_here

Act = Callable[[np.ndarray, slice], np.ndarray]
"""From observations [runs, n, O] of a slice of the runs to actions [runs, n, A] in the environment's units."""

MAX_SEATS = 32
"""Maximum number of seats of a run in one batch: up to this size XLA computes each row identically whatever else is in
the batch."""
MAX_ENVS_PER_CORE = 80
"""Approximate limit."""


class Played(NamedTuple):
    """The returns of policies. A run that was left out has NaN returns."""

    returns: np.ndarray  # [runs, episodes] float64, undiscounted
    lengths: np.ndarray  # [runs, episodes] steps of each episode
    seconds: float

    @property
    def rate(self) -> float:
        """Steps per second, summed over all environments."""
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
    """Play episodes `first`, `first` + 1, … of every run. Each run has its own seed; the environment may be one for
    all runs, or one for each."""
    each = environment if isinstance(environment, Sequence) and not isinstance(environment, str) else [environment]
    with Games(list(each) * (len(seeds) // len(each)), episodes, processes, seats) as games:
        return games.play(act, seeds, first)


class Group(NamedTuple):
    """Seats that step together."""

    runs: slice
    rows: slice  # on the board, where a run's seats are adjacent
    seats: int  # of each run


class Games:
    """Environments for several runs, stepped together. Each run has the same number of them, called its seats.

    If there are enough, they form two groups: while one steps, `act` computes the actions of the other. A group has all
    seats of half of the runs, so that each run's parameters are read once for all of its seats.
    """

    def __init__(
        self,
        environments: Sequence[str | Environment],
        episodes: int,
        processes: int | None = None,
        seats: int | None = None,
    ) -> None:
        self.runs = len(environments)
        self.episodes = episodes
        cores = processes or cores_here()
        most = min(
            seats or max(2, MAX_ENVS_PER_CORE * cores // self.runs), MAX_SEATS if self.runs > 1 else 2 * MAX_SEATS
        )
        rounds = -(-episodes // most)
        self.seats = -(-episodes // rounds)  # the fewest that need no more rounds, so no seat is idle for long
        self.groups = self._grouped(2 if self.runs * self.seats >= max(2, 4 * cores) else 1)
        entries = [envs.lookup(entry) if isinstance(entry, str) else entry for entry in environments]
        rows = [entry for entry in entries for _ in range(self.seats)]
        sizes = [group.rows.stop - group.rows.start for group in self.groups]
        self.workers = Workers(rows, processes, [0] * len(rows), groups=sizes, restart=True)
        shapes = [self.workers.shapes[entry.name] for entry in entries]
        if endless := [entry.name for entry, shape in zip(entries, shapes, strict=True) if shape.time_limit is None]:
            self.close()
            raise BadInput(f"{endless[0]}: has no time limit, so an episode might never end; register it with one")
        low = np.stack([shape.low for shape in shapes])
        high = np.stack([shape.high for shape in shapes])
        self._centre = ((low + high) / 2)[:, None]
        self._half = np.where(high > low, (high - low) / 2, 1)[:, None]

    def _grouped(self, count: int) -> list[Group]:
        if self.runs == 1:
            cuts = [self.seats * number // count for number in range(count + 1)]
            return [Group(slice(0, 1), slice(low, high), high - low) for low, high in itertools.pairwise(cuts)]
        cuts = [self.runs * number // count for number in range(count + 1)]
        each = self.seats
        return [Group(slice(low, top), slice(low * each, top * each), each) for low, top in itertools.pairwise(cuts)]

    def play(
        self,
        act: Act,
        seeds: Sequence[int],
        first: int | Sequence[int] = 0,
        plays: Sequence[bool] | None = None,
        tick: Callable[[int], None] | None = None,
    ) -> Played:
        """Play every run's episodes from number `first` on. Runs whose `plays` is False are left out.

        tick: called with the number of episodes that have just ended
        """
        run = np.repeat(np.arange(self.runs), self.seats)  # of each row
        start = np.broadcast_to(np.asarray(first), self.runs)[run]
        until = start + self.episodes * (np.ones(self.runs, bool) if plays is None else np.asarray(plays))[run]
        number = start + np.tile(np.arange(self.seats), self.runs)
        returns = np.full((self.runs, self.episodes), np.nan)
        lengths = np.zeros((self.runs, self.episodes), np.int64)
        total = np.zeros(len(run))
        length = np.zeros(len(run), np.int64)
        began = time.perf_counter()
        self.workers.reset(EVALUATION_SEEDS + np.asarray(seeds, np.int64)[run], number, until, self.seats)
        playing = [index for index in range(len(self.groups)) if self._send(act, index)]
        while playing:
            for index in tuple(playing):
                board = self.workers.receive(index)
                rows = self.groups[index].rows
                length[rows] += (number[rows] < until[rows]) & ~board.fresh
                total[rows] += board.reward
                if board.fresh.any():
                    begun_anew = rows.start + np.flatnonzero(board.fresh)
                    total[begun_anew] = 0
                    length[begun_anew] = 0
                    board.fresh[:] = False
                over = rows.start + np.flatnonzero(board.terminal | board.timeout)
                if len(over):
                    finished = run[over], number[over] - start[over]
                    returns[finished] = total[over]
                    lengths[finished] = length[over]
                    total[over] = 0
                    length[over] = 0
                    number[over] += self.seats
                    if tick:
                        tick(len(over))
                if not self._send(act, index):
                    playing.remove(index)
        return Played(returns, lengths, time.perf_counter() - began)

    def _send(self, act: Act, index: int) -> bool:
        """Start a group's next step. False if all of its seats have played their last episode."""
        group = self.groups[index]
        board = self.workers.board.rows(group.rows)
        if not board.playing.any():
            return False
        action = act(board.obs.reshape(-1, group.seats, board.obs.shape[1]), group.runs)
        unit = (action - self._centre[group.runs]) / self._half[group.runs]
        self.workers.send(unit.reshape(len(board.obs), -1), index)
        return True

    def close(self) -> None:
        self.workers.close()

    def __enter__(self) -> Games:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
