"""Playing: episodes of many policies at once, environments on all cores and the actions of all policies in one call.

An episode's seed is made of its run's seed and its own number, so returns depend neither on the number of processes nor
on who shares them, and methods with the same seed are compared on the same episodes. (Exactly, if `act` gives a row
the same action whatever rows are beside it.)
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from winnow import envs
from winnow.envs import EVALUATION, Environment
from winnow.envs.workers import Workers
from winnow.errors import BadInput
from winnow.system.cores import cores_here

Act = Callable[[np.ndarray, slice], np.ndarray]
"""Observations [runs, n, O] of these runs (a slice of all) to actions [runs, n, A] in the environment's units."""

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


class Group(NamedTuple):
    """Seats that step together."""

    runs: slice
    rows: slice  # on the board, where a run's seats lie side by side
    seats: int  # of each run


class Games:
    """Seats for several policies: each has the same number of environments, and all step together.

    They are in two groups, where there are enough of them: while one steps, `act` thinks about the other. A group has
    all seats of half of the runs, so that the parameters of each are read once for all of its seats.
    """

    def __init__(
        self,
        environments: Sequence[str | Environment],
        episodes: int,
        processes: int | None = None,
        seats: int | None = None,
    ) -> None:
        self.runs, self.episodes = len(environments), episodes
        cores = processes or cores_here()
        most = min(seats or max(2, CROWD * cores // self.runs), MOST if self.runs > 1 else 2 * MOST)
        self.seats = -(-episodes // -(-episodes // most))  # as many as leave none without work while others play on
        self.groups = self._grouped(2 if self.runs * self.seats >= max(2, 4 * cores) else 1)
        entries = [envs.lookup(one) if isinstance(one, str) else one for one in environments]
        rows = [entry for entry in entries for _ in range(self.seats)]
        sizes = [group.rows.stop - group.rows.start for group in self.groups]
        self.workers = Workers(rows, processes, [0] * len(rows), groups=sizes, restart=True)
        shapes = [self.workers.shapes[entry.name] for entry in entries]
        if endless := [entry.name for entry, shape in zip(entries, shapes, strict=True) if shape.time_limit is None]:
            self.close()
            raise BadInput(f"{endless[0]}: has no time limit, so an episode might never end; register it with one")
        low, high = np.stack([shape.low for shape in shapes]), np.stack([shape.high for shape in shapes])
        self._centre, self._half = ((low + high) / 2)[:, None], np.where(high > low, (high - low) / 2, 1)[:, None]

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
        """Every run's episodes from number `first` on; runs that do not play are left out.

        `tick` is told how many episodes have ended, when some have.
        """
        run = np.repeat(np.arange(self.runs), self.seats)  # of each row
        start = np.broadcast_to(np.asarray(first), self.runs)[run]
        until = start + self.episodes * (np.ones(self.runs, bool) if plays is None else np.asarray(plays))[run]
        number = start + np.tile(np.arange(self.seats), self.runs)
        returns = np.full((self.runs, self.episodes), np.nan)
        lengths = np.zeros((self.runs, self.episodes), np.int64)
        total, length = np.zeros(len(run)), np.zeros(len(run), np.int64)
        began = time.perf_counter()
        self.workers.reset(EVALUATION + np.asarray(seeds, np.int64)[run], number, until, self.seats)
        going = [place for place in range(len(self.groups)) if self._send(act, place)]
        while going:
            for place in tuple(going):
                board, rows = self.workers.receive(place), self.groups[place].rows
                length[rows] += (number[rows] < until[rows]) & ~board.fresh
                total[rows] += board.reward
                if board.fresh.any():
                    again = rows.start + np.flatnonzero(board.fresh)
                    total[again], length[again], board.fresh[:] = 0, 0, False
                over = rows.start + np.flatnonzero(board.terminal | board.timeout)
                if len(over):
                    spots = run[over], number[over] - start[over]
                    returns[spots], lengths[spots] = total[over], length[over]
                    total[over], length[over] = 0, 0
                    number[over] += self.seats
                    if tick:
                        tick(len(over))
                if not self._send(act, place):
                    going.remove(place)
        return Played(returns, lengths, time.perf_counter() - began)

    def _send(self, act: Act, place: int) -> bool:
        """Let a group take its next step; False where all of its seats have played their last episode."""
        group = self.groups[place]
        board = self.workers.board.rows(group.rows)
        if not board.playing.any():
            return False
        action = act(board.obs.reshape(-1, group.seats, board.obs.shape[1]), group.runs)
        unit = (action - self._centre[group.runs]) / self._half[group.runs]
        self.workers.send(unit.reshape(len(board.obs), -1), place)
        return True

    def close(self) -> None:
        self.workers.close()

    def __enter__(self) -> Games:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
