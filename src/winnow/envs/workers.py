"""Many environments at a time, over processes: what they are asked and what they show lies in shared memory.

A worker process imports this module, NumPy and its environments, and no jax.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import mmap
import os
import subprocess
import tempfile
import traceback
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from winnow.envs import Environment, described, episode_seed, lookup, made_of, make, no_log_file, shape
from winnow.envs.locomotion import several
from winnow.system import processes
from winnow.system.cores import cores_here

ENDLESS = int(np.iinfo(np.int64).max)
LIVES = 3
"""A worker that dies so often and finishes no episode in between is given up."""


class WorkerError(RuntimeError):
    """An environment worker died or an environment in it raised an error."""


class Board(NamedTuple):
    """What the caller and the workers share, a row for each environment. Short rows are filled up with zeros."""

    action: np.ndarray  # [N, A] in [-1, 1], or a score for each choice
    obs: np.ndarray  # [N, O] where the next action is taken: after an episode's end, the first of the next one
    next_obs: np.ndarray  # [N, O] where the last action led to: at an episode's end, its true final observation
    reward: np.ndarray  # [N]
    terminal: np.ndarray  # [N] the task ended
    timeout: np.ndarray  # [N] the time limit cut the episode off
    base: np.ndarray  # [N] base seed
    episode: np.ndarray  # [N] number of the episode that is being played
    stride: np.ndarray  # [N] from one episode's number to the next one's
    until: np.ndarray  # [N] an environment that has come to this number waits for the next reset
    fresh: np.ndarray  # [N] its worker died and it began its episode again: it waits until the caller clears this

    @property
    def playing(self) -> np.ndarray:
        return self.episode < self.until

    def rows(self, part: slice) -> Board:
        return Board(*(column[part] for column in self))


def _layout(count: int, obs_dim: int, action_dim: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shapes and types of the shared arrays, in the order in which they lie: those of wide numbers first."""
    wide, middle, narrow = np.dtype(np.int64), np.dtype(np.float32), np.dtype(np.bool_)
    return {
        "reward": ((count,), np.dtype(np.float64)),
        "base": ((count,), wide),
        "episode": ((count,), wide),
        "stride": ((count,), wide),
        "until": ((count,), wide),
        "action": ((count, action_dim), middle),
        "obs": ((count, obs_dim), middle),
        "next_obs": ((count, obs_dim), middle),
        "terminal": ((count,), narrow),
        "timeout": ((count,), narrow),
        "fresh": ((count,), narrow),
    }


def _board(file: IO[bytes], sizes: Sequence[int]) -> Board:
    """The shared arrays in a file that every process maps into its memory."""
    layout = _layout(*sizes)
    counts = {name: int(np.prod(shape)) for name, (shape, _) in layout.items()}
    total = sum(counts[name] * kind.itemsize for name, (_, kind) in layout.items())
    if os.fstat(file.fileno()).st_size < total:
        os.truncate(file.fileno(), total)
    memory, place, arrays = mmap.mmap(file.fileno(), total), 0, {}
    for name, (size, kind) in layout.items():
        arrays[name] = np.frombuffer(memory, kind, counts[name], place).reshape(size)
        place += counts[name] * kind.itemsize
    return Board(**arrays)


class Workers:
    """Environments stepped together by several processes.

    Every episode has a seed of its own, so what is played does not depend on the number of processes. Environments may
    differ in kind; they are dealt out in turn, so that each process gets some of every kind. `numbers` are the numbers
    that go into the seeds, the position by default.

    `groups` are the sizes of stretches that the environments are split into. Each steps on a command of its own: one
    steps while the caller thinks about another. With `restart`, a process that dies is started again, its
    environments begin their episodes anew, and `Board.fresh` marks them: the caller forgets what it has of these
    episodes and clears the mark.
    """

    def __init__(
        self,
        environments: Sequence[str | Environment],
        processes: int | None = None,
        numbers: Sequence[int] | None = None,
        *,
        groups: Sequence[int] | None = None,
        restart: bool = False,
    ) -> None:
        self.environments = [lookup(e) if isinstance(e, str) else e for e in environments]
        self.numbers = range(len(self.environments)) if numbers is None else numbers
        self.restart = restart
        self.shapes = {entry.name: shape(entry) for entry in self.environments}
        kinds, count = self.shapes.values(), len(self.environments)
        edges = itertools.accumulate(groups or [count], initial=0)
        self.parts = [slice(low, high) for low, high in itertools.pairwise(edges)]  # the rows of each group
        self.processes = max(1, min(*(groups or []), count, processes or cores_here()))
        self._mine = [slice(number, count, self.processes) for number in range(self.processes)]
        self._sizes = (count, max(kind.obs_dim for kind in kinds), max(kind.action_dim for kind in kinds))
        self._children: list[subprocess.Popen[bytes]] = []
        self._owed = [0] * self.processes  # answers that a child has still to give
        self._deaths = [(0, 0)] * self.processes  # how often it died since it had finished so many episodes
        # No name leads to the file: it is gone when the last process that has it is, whatever ends that one.
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=shared)  # noqa: SIM115
        try:
            self.board = _board(self._file, self._sizes)
            self._reached = self.board.episode.copy()  # as the caller has seen it: a dying worker may be ahead
            for number in range(self.processes):
                self._children.append(self._start(number))
            self._wait()
        except BaseException:
            self.close()
            raise

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        groups = []
        for part in self.parts:
            rows = range(len(self.environments))[part]
            mine = [row for row in rows if row % self.processes == number]
            seats = [(self.numbers[row], described(self.environments[row])) for row in mine]
            groups.append({"rows": (mine[0], mine[-1] + 1, self.processes), "seats": seats})
        job = json.dumps({"file": self._file.fileno(), "sizes": self._sizes, "groups": groups})
        child = subprocess.Popen(
            processes.call("winnow.envs.workers:serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=processes.simulating(),
            pass_fds=(self._file.fileno(),),
        )
        self._tell(number, child, job.encode() + b"\n")
        return child

    def reset(
        self,
        seed: int | Sequence[int] | np.ndarray,
        episode: int | Sequence[int] | np.ndarray = 0,
        until: int | Sequence[int] | np.ndarray = ENDLESS,
        stride: int | Sequence[int] | np.ndarray = 1,
    ) -> np.ndarray:
        """Begin in every environment the episode of this base seed and number; the first observations [N, O].

        After it come those whose numbers are a `stride` apart, as long as they are below `until`; then an environment
        waits.
        """
        while any(self._owed):
            self._wait()
        columns = {"base": seed, "episode": episode, "until": until, "stride": stride, "fresh": False}
        for name, value in columns.items():
            getattr(self.board, name)[:] = value
        self._reached[:] = self.board.episode
        for number, child in enumerate(self._children):
            self._tell(number, child, b"r")
        self._wait()
        return self.board.obs

    def send(self, action: np.ndarray, group: int = 0) -> None:
        """Let every environment of a group take its action [n, A] in [-1, 1], and do not wait for it."""
        self.board.action[self.parts[group]] = action
        for number, child in enumerate(self._children):
            self._tell(number, child, b"%d" % group)

    def receive(self, group: int = 0) -> Board:
        """Wait for the step that a group was sent first. The arrays are overwritten by the next one."""
        self._wait()
        rows = self.parts[group]
        self._reached[rows] = self.board.episode[rows]
        return self.board.rows(rows)

    def step(self, action: np.ndarray) -> Board:
        self.send(action)
        return self.receive()

    def close(self) -> None:
        for child in self._children:
            processes.hang_up(child)
        for child in self._children:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._children = []
        self._file.close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tell(self, number: int, child: subprocess.Popen[bytes], words: bytes) -> None:
        assert child.stdin
        self._owed[number] += 1
        with contextlib.suppress(BrokenPipeError):  # it died: the wait that follows says so
            child.stdin.write(words)
            child.stdin.flush()

    def _wait(self) -> None:
        """Take the oldest answer that each child owes."""
        for number in range(self.processes):
            if self._owed[number]:
                self._hear(number)

    def _hear(self, number: int) -> None:
        child = self._children[number]
        assert child.stdout
        answer = child.stdout.read(1)
        if answer == b"k":
            self._owed[number] -= 1
            return
        rows = range(len(self.environments))[self._mine[number]]
        names = ", ".join(f"{self.environments[row].name} {row}" for row in rows[:4]) + ", …" * (len(rows) > 4)
        worker = f"environment worker {number} ({names})"
        if answer == b"e":
            text = child.stdout.read().decode(errors="replace")
            raise WorkerError(f"{worker} stopped with an error:\n{text}")
        code = child.wait()
        if not self.restart:
            raise WorkerError(f"{worker} died with exit code {code}")
        deaths, before = self._deaths[number]
        finished = int(self._reached[self._mine[number]].sum())
        self._deaths[number] = (deaths + 1 if finished == before else 1, finished)
        if self._deaths[number][0] >= LIVES:
            raise WorkerError(f"{worker} died {LIVES} times in a row, the last time with exit code {code}")
        self._revive(number)

    def _revive(self, number: int) -> None:
        """A new process in the place of a dead one. What was asked of that one is not asked again."""
        processes.hang_up(self._children[number])
        rows = self.board.rows(self._mine[number])
        rows.episode[:] = self._reached[self._mine[number]]
        for column in (rows.reward, rows.terminal, rows.timeout):
            column[:] = 0
        rows.fresh[:] = rows.playing
        self._owed[number] = 0
        self._children[number] = self._start(number)
        self._tell(number, self._children[number], b"r")
        while self._owed[number]:
            self._hear(number)


# ------------------------------------------------------------------------------------------ inside a worker


def serve() -> None:
    """A worker's life: read what to play, then reset and step on command until the caller is gone."""
    commands, answers = processes.answering()
    try:
        with no_log_file():
            job = json.loads(commands.readline())
            with os.fdopen(job["file"], "r+b") as file:
                board = _board(file, job["sizes"])
            groups = [Seats(board.rows(slice(*group["rows"])), group["seats"]) for group in job["groups"]]
            gc.freeze()  # nothing that is there by now is ever garbage: do not look through it again and again
            _answer(answers, b"k")
            while command := commands.read(1):
                if command == b"r":
                    for group in groups:
                        group.begin()
                else:
                    groups[int(command)].step()
                _answer(answers, b"k")
    except BrokenPipeError:
        pass
    except Exception:
        with contextlib.suppress(BrokenPipeError):
            _answer(answers, b"e" + traceback.format_exc().encode())


def _answer(answers: IO[bytes], words: bytes) -> None:
    answers.write(words)
    answers.flush()


class Seats:
    """A worker's environments of one group, and their rows of the shared arrays."""

    def __init__(self, board: Board, seats: Sequence[tuple[int, dict[str, Any]]]) -> None:
        self.board, self.numbers = board, [number for number, _ in seats]
        kinds: dict[str, list[int]] = {}
        for row, (_, said) in enumerate(seats):
            kinds.setdefault(json.dumps(said), []).append(row)
        self.tables = [Table(board, rows, made_of(json.loads(said))) for said, rows in kinds.items()]
        self.table = {row: table for table in self.tables for row in table.rows}

    def begin(self) -> None:
        """Begin the episodes that the board says."""
        for row in np.flatnonzero(self.board.playing).tolist():
            self._begin(row)

    def _begin(self, row: int) -> None:
        seed = episode_seed(int(self.board.base[row]), self.numbers[row], int(self.board.episode[row]))
        self.table[row].begin(row, seed)

    def step(self) -> None:
        """Those that play take their actions; where an episode ends the next one begins, if there is one."""
        board = self.board
        for column in (board.reward, board.terminal, board.timeout):
            column[:] = 0
        playing = board.playing & ~board.fresh
        for table in self.tables:
            table.step(playing)
        over = board.terminal | board.timeout
        board.episode[over] += board.stride[over]
        for row in np.flatnonzero(over & board.playing).tolist():
            self._begin(row)


class Table:
    """Seats of one kind of environment."""

    def __init__(self, board: Board, rows: Sequence[int], entry: Environment) -> None:
        self.board, self.rows = board, np.array(rows)
        self.number = {row: number for number, row in enumerate(rows)}
        self.envs = several(lambda: make(entry), len(rows))
        kind = shape(entry, self.envs.env)
        self.obs, self.action, self.shape = slice(kind.obs_dim), slice(kind.action_dim), kind
        self.low, self.span, self.kind = kind.low, kind.high - kind.low, self.envs.action_kind

    def begin(self, row: int, seed: int) -> None:
        self.board.obs[row, self.obs] = self.envs.reset(self.number[row], seed)

    def step(self, playing: np.ndarray) -> None:
        board, numbers = self.board, np.flatnonzero(playing[self.rows])
        if not len(numbers):
            return
        rows = self.rows[numbers]
        if self.shape.first_choice is not None:
            action = self.shape.choice(board.action[rows, self.action])
        else:
            unit = np.clip(board.action[rows, self.action].astype(np.float64), -1, 1)
            action = (self.low + (unit + 1) / 2 * self.span).astype(self.kind)
        seen = self.envs.step(numbers.tolist(), action)
        board.obs[rows, self.obs] = board.next_obs[rows, self.obs] = seen.obs
        board.reward[rows], board.terminal[rows], board.timeout[rows] = seen.reward, seen.terminal, seen.timeout
