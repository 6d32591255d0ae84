"""Many environments stepped by several processes; actions, observations and rewards lie in shared memory.

A worker process imports this module, NumPy and its environments, but not jax.
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

from winnow.envs import Environment, describe, episode_seed, from_description, lookup, make, no_log_file, shape
from winnow.envs.locomotion import make_several
from winnow.system import processes
from winnow.system.cores import cores_here

ENDLESS = int(np.iinfo(np.int64).max)
MAX_DEATHS = 3
"""A worker that dies this often without finishing an episode in between is given up."""
CLOSE_SECONDS = 5
"""How long a worker gets to exit by itself."""


class WorkerError(RuntimeError):
    """An environment worker died, or one of its environments raised an error."""


class Board(NamedTuple):
    """The arrays that the caller and the workers share: a row for each environment, padded with zeros."""

    action: np.ndarray  # [N, A] in [-1, 1], or a score for each choice
    obs: np.ndarray  # [N, O] observation for the next action: after an episode's end, the first of the next episode
    next_obs: np.ndarray  # [N, O] observation after the last action: at an episode's end, its true final observation
    reward: np.ndarray  # [N]
    terminal: np.ndarray  # [N] the task ended
    timeout: np.ndarray  # [N] the time limit cut the episode off
    base: np.ndarray  # [N] base seed
    episode: np.ndarray  # [N] number of the episode that is being played
    stride: np.ndarray  # [N] difference between the numbers of one episode and the next
    until: np.ndarray  # [N] an environment whose episode number has reached this waits for the next reset
    fresh: np.ndarray  # [N] its worker died and the episode began anew: it waits until the caller clears this flag

    @property
    def playing(self) -> np.ndarray:
        return self.episode < self.until

    def rows(self, part: slice) -> Board:
        return Board(*(column[part] for column in self))


def _layout(count: int, obs_dim: int, action_dim: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shapes and types of the shared arrays, in their order in memory: the widest types first, so all are aligned."""
    shapes: dict[Any, dict[str, tuple[int, ...]]] = {
        np.float64: {"reward": (count,)},
        np.int64: {"base": (count,), "episode": (count,), "stride": (count,), "until": (count,)},
        np.float32: {"action": (count, action_dim), "obs": (count, obs_dim), "next_obs": (count, obs_dim)},
        np.bool_: {"terminal": (count,), "timeout": (count,), "fresh": (count,)},
    }
    return {name: (size, np.dtype(kind)) for kind, sizes in shapes.items() for name, size in sizes.items()}


def _board(file: IO[bytes], sizes: Sequence[int]) -> Board:
    """The shared arrays, in a file that every process maps into its memory."""
    layout = _layout(*sizes)
    counts = {name: int(np.prod(shape)) for name, (shape, _) in layout.items()}
    total = sum(counts[name] * kind.itemsize for name, (_, kind) in layout.items())
    if os.fstat(file.fileno()).st_size < total:
        os.truncate(file.fileno(), total)
    memory = mmap.mmap(file.fileno(), total)
    offset = 0
    arrays = {}
    for name, (size, kind) in layout.items():
        arrays[name] = np.frombuffer(memory, kind, counts[name], offset).reshape(size)
        offset += counts[name] * kind.itemsize
    return Board(**arrays)


class Workers:
    """Environments stepped together by several processes.

    Every episode has a seed of its own, so results do not depend on the number of processes. Environments may be of
    several kinds; they are dealt out in turn, so that each process gets some of every kind. `numbers` go into the
    seeds: one for each environment, its position by default.

    `groups` are the sizes of consecutive groups of environments. Each group is stepped by a command of its own: one
    group steps while the caller computes the actions of another. With `restart`, a process that dies is replaced, and
    its environments begin their episodes anew. `Board.fresh` marks them: the caller must drop what it has recorded of
    these episodes and clear the flag.
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
        kinds = self.shapes.values()
        count = len(self.environments)
        edges = itertools.accumulate(groups or [count], initial=0)
        self.parts = [slice(low, high) for low, high in itertools.pairwise(edges)]  # the rows of each group
        self.processes = max(1, min(*(groups or []), count, processes or cores_here()))
        self._rows_of = [slice(number, count, self.processes) for number in range(self.processes)]  # of each process
        self._sizes = (count, max(kind.obs_dim for kind in kinds), max(kind.action_dim for kind in kinds))
        self._children: list[subprocess.Popen[bytes]] = []
        self._pending = [0] * self.processes  # answers that each child has still to give
        self._deaths = [(0, 0)] * self.processes  # for each child: deaths in a row, and episodes finished by then
        # The file has no name: it is gone when the last process that has it open ends, however that happens.
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=shared)  # noqa: SIM115
        try:
            self.board = _board(self._file, self._sizes)
            self._reached = self.board.episode.copy()  # as last received by the caller: a dying worker may be ahead
            for number in range(self.processes):
                self._children.append(self._start(number))
            self._wait()
        except BaseException:
            self.close()
            raise

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        groups = []
        for part in self.parts:
            rows = [row for row in range(len(self.environments))[part] if row % self.processes == number]
            seats = [(self.numbers[row], describe(self.environments[row])) for row in rows]
            groups.append({"rows": (rows[0], rows[-1] + 1, self.processes), "seats": seats})
        job = json.dumps({"file": self._file.fileno(), "sizes": self._sizes, "groups": groups})
        child = subprocess.Popen(
            processes.python_command("winnow.envs.workers:serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=processes.simulator_env(),
            pass_fds=(self._file.fileno(),),
        )
        self._request(number, child, job.encode() + b"\n")
        return child

    def reset(
        self,
        seed: int | Sequence[int] | np.ndarray,
        episode: int | Sequence[int] | np.ndarray = 0,
        until: int | Sequence[int] | np.ndarray = ENDLESS,
        stride: int | Sequence[int] | np.ndarray = 1,
    ) -> np.ndarray:
        """Begin the episode with this base seed and number in every environment. Returns the first observations [N, O].

        The episodes that follow have numbers `stride` apart. An environment whose next number is not below `until`
        waits for the next reset.
        """
        while any(self._pending):
            self._wait()
        columns = {"base": seed, "episode": episode, "until": until, "stride": stride, "fresh": False}
        for name, value in columns.items():
            getattr(self.board, name)[:] = value
        self._reached[:] = self.board.episode
        for number, child in enumerate(self._children):
            self._request(number, child, b"r")
        self._wait()
        return self.board.obs

    def send(self, action: np.ndarray, group: int = 0) -> None:
        """Start a step of a group with actions [n, A] in [-1, 1], without waiting for it."""
        self.board.action[self.parts[group]] = action
        for number, child in enumerate(self._children):
            self._request(number, child, b"%d" % group)

    def receive(self, group: int = 0) -> Board:
        """Wait for a group's oldest unreceived step. Its next step overwrites the arrays."""
        self._wait()
        rows = self.parts[group]
        self._reached[rows] = self.board.episode[rows]
        return self.board.rows(rows)

    def step(self, action: np.ndarray) -> Board:
        self.send(action)
        return self.receive()

    def close(self) -> None:
        for child in self._children:
            processes.close_pipes(child)
        for child in self._children:
            try:
                child.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._children = []
        self._file.close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, number: int, child: subprocess.Popen[bytes], message: bytes) -> None:
        assert child.stdin
        self._pending[number] += 1
        with contextlib.suppress(BrokenPipeError):  # it died: the next `_read_answer` notices
            child.stdin.write(message)
            child.stdin.flush()

    def _wait(self) -> None:
        """Read the oldest answer of each child that has one to give."""
        for number in range(self.processes):
            if self._pending[number]:
                self._read_answer(number)

    def _read_answer(self, number: int) -> None:
        """Read one answer. A child that died is replaced, or is an error."""
        child = self._children[number]
        assert child.stdout
        answer = child.stdout.read(1)
        if answer == b"k":
            self._pending[number] -= 1
            return
        rows = range(len(self.environments))[self._rows_of[number]]
        names = ", ".join(f"{self.environments[row].name} {row}" for row in rows[:4]) + ", …" * (len(rows) > 4)
        worker = f"environment worker {number} ({names})"
        if answer == b"e":
            text = child.stdout.read().decode(errors="replace")
            raise WorkerError(f"{worker} stopped with an error:\n{text}")
        code = child.wait()
        if not self.restart:
            raise WorkerError(f"{worker} died with exit code {code}")
        deaths, before = self._deaths[number]
        finished = int(self._reached[self._rows_of[number]].sum())
        self._deaths[number] = (deaths + 1 if finished == before else 1, finished)
        if self._deaths[number][0] >= MAX_DEATHS:
            raise WorkerError(f"{worker} died {MAX_DEATHS} times in a row, the last time with exit code {code}")
        self._replace(number)

    def _replace(self, number: int) -> None:
        """Start a new process in place of a dead one. Unanswered requests to the dead one are dropped."""
        processes.close_pipes(self._children[number])
        rows = self.board.rows(self._rows_of[number])
        rows.episode[:] = self._reached[self._rows_of[number]]
        for column in (rows.reward, rows.terminal, rows.timeout):
            column[:] = 0
        rows.fresh[:] = rows.playing
        self._pending[number] = 0
        self._children[number] = self._start(number)
        self._request(number, self._children[number], b"r")
        while self._pending[number]:
            self._read_answer(number)


# ------------------------------------------------------------------------------------------ inside a worker


def serve() -> None:
    """Main function of a worker: read which environments to make, then reset and step them until the caller is gone."""
    commands, answers = processes.serve_pipes()
    try:
        with no_log_file():
            job = json.loads(commands.readline())
            with os.fdopen(job["file"], "r+b") as file:
                board = _board(file, job["sizes"])
            groups = [Seats(board.rows(slice(*group["rows"])), group["seats"]) for group in job["groups"]]
            gc.freeze()  # nothing allocated so far is ever garbage: exempt it from every later collection
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


def _answer(answers: IO[bytes], message: bytes) -> None:
    answers.write(message)
    answers.flush()


class Seats:
    """A worker's environments of one group, and their rows of the shared arrays."""

    def __init__(self, board: Board, seats: Sequence[tuple[int, dict[str, Any]]]) -> None:
        self.board = board
        self.numbers = [number for number, _ in seats]
        kinds: dict[str, list[int]] = {}
        for row, (_, description) in enumerate(seats):
            kinds.setdefault(json.dumps(description), []).append(row)
        self.kinds = [
            SameKind(board, rows, from_description(json.loads(description))) for description, rows in kinds.items()
        ]
        self.kind_of = {row: kind for kind in self.kinds for row in kind.rows}

    def begin(self) -> None:
        """Begin the episodes whose numbers are on the board."""
        for row in np.flatnonzero(self.board.playing).tolist():
            self._begin(row)

    def _begin(self, row: int) -> None:
        seed = episode_seed(int(self.board.base[row]), self.numbers[row], int(self.board.episode[row]))
        self.kind_of[row].begin(row, seed)

    def step(self) -> None:
        """Step every environment that is playing. Where an episode ends, the next one begins, if there is one."""
        board = self.board
        for column in (board.reward, board.terminal, board.timeout):
            column[:] = 0
        playing = board.playing & ~board.fresh
        for kind in self.kinds:
            kind.step(playing)
        over = board.terminal | board.timeout
        board.episode[over] += board.stride[over]
        for row in np.flatnonzero(over & board.playing).tolist():
            self._begin(row)


class SameKind:
    """A group's environments of one kind."""

    def __init__(self, board: Board, rows: Sequence[int], entry: Environment) -> None:
        self.board = board
        self.rows = np.array(rows)
        self.number = {row: number for number, row in enumerate(rows)}
        self.envs = make_several(lambda: make(entry), len(rows))
        sizes = shape(entry, self.envs.env)
        self.obs = slice(sizes.obs_dim)
        self.action = slice(sizes.action_dim)
        self.shape = sizes
        self.span = sizes.high - sizes.low

    def begin(self, row: int, seed: int) -> None:
        self.board.obs[row, self.obs] = self.envs.reset(self.number[row], seed)

    def step(self, playing: np.ndarray) -> None:
        board = self.board
        numbers = np.flatnonzero(playing[self.rows])
        if not len(numbers):
            return
        rows = self.rows[numbers]
        if self.shape.first_choice is not None:
            action = self.shape.choice(board.action[rows, self.action])
        else:
            unit = np.clip(board.action[rows, self.action].astype(np.float64), -1, 1)
            action = (self.shape.low + (unit + 1) / 2 * self.span).astype(self.envs.action_dtype)
        stepped = self.envs.step(numbers.tolist(), action)
        board.obs[rows, self.obs] = stepped.obs
        board.next_obs[rows, self.obs] = stepped.obs
        board.reward[rows] = stepped.reward
        board.terminal[rows] = stepped.terminal
        board.timeout[rows] = stepped.timeout
