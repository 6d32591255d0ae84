"""Environments: a table of them with their time limits and reference scores, and stepping many over processes.

A worker process imports this module, NumPy and its environments, and no jax.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import mmap
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

import numpy as np

from winnow.errors import BadInput


@dataclass(frozen=True)
class Environment:
    """How an environment is made, when an episode is cut off, and the returns that count as 0 and 100."""

    name: str
    source: str | Callable[..., Any]  # a Gymnasium id, or what makes the environment
    time_limit: int | None = None  # None: the environment's own
    reference: tuple[float, float] | None = None
    options: dict[str, Any] = field(default_factory=dict)


# Time limits are Gymnasium's; reference returns are D4RL's (Fu et al., 2020).
TABLE = {
    environment.name: environment
    for environment in (
        Environment("hopper", "Hopper-v5", 1000, (-20.272305, 3234.3)),
        Environment("halfcheetah", "HalfCheetah-v5", 1000, (-280.178953, 12135.0)),
        Environment("walker2d", "Walker2d-v5", 1000, (1.629008, 4592.3)),
        Environment("ant", "Ant-v5", 1000, (-325.6, 3879.7), {"include_cfrc_ext_in_observation": False}),
    )
}


def register(
    name: str,
    source: str | Callable[..., Any],
    time_limit: int | None = None,
    reference: tuple[float, float] | None = None,
    **options: Any,
) -> Environment:
    """Add an environment: a Gymnasium id, or a function of an importable module that makes one."""
    TABLE[name] = Environment(name, source, time_limit, reference, options)
    return TABLE[name]


def lookup(name: str) -> Environment:
    if name not in TABLE:
        near = difflib.get_close_matches(name, TABLE, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(TABLE)}."
        raise BadInput(f"there is no environment {name!r}; {hint} winnow.envs.register adds your own")
    return TABLE[name]


def make(environment: str | Environment) -> Any:
    """A Gymnasium environment. Its time limit truncates an episode, which is a timeout and no terminal."""
    entry = lookup(environment) if isinstance(environment, str) else environment
    try:
        import gymnasium

        with _no_log_file():
            if isinstance(entry.source, str):
                limit = {} if entry.time_limit is None else {"max_episode_steps": entry.time_limit}
                return gymnasium.make(entry.source, disable_env_checker=True, **limit, **entry.options)
            made = entry.source(**entry.options)
            return made if entry.time_limit is None else gymnasium.wrappers.TimeLimit(made, entry.time_limit)
    except ImportError as error:
        raise BadInput(f"{entry.name}: {error}; pip install 'gymnasium[mujoco]'") from error


@contextlib.contextmanager
def _no_log_file() -> Iterator[None]:
    """MuJoCo writes its warnings to a file in the folder it runs in; here they go to stderr."""
    try:
        mujoco: Any = importlib.import_module("mujoco")
    except ImportError:
        yield
        return

    def warn(text: str) -> None:
        if "is deprecated" not in text:  # the task's model file is Gymnasium's to mend
            print(f"MuJoCo: {text}", file=sys.stderr)

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(warn)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


class Shape(NamedTuple):
    """Sizes and bounds of what an environment shows and takes."""

    obs_dim: int
    low: np.ndarray  # [A] bounds of the action
    high: np.ndarray
    time_limit: int | None

    @property
    def action_dim(self) -> int:
        return len(self.low)


def shape(environment: str | Environment) -> Shape:
    made = make(environment)
    obs, action = made.observation_space, made.action_space
    made.close()
    entry = lookup(environment) if isinstance(environment, str) else environment
    flat = all(getattr(space, "shape", None) is not None and len(space.shape) == 1 for space in (obs, action))
    if not flat or not np.all(np.isfinite(action.low)) or not np.all(np.isfinite(action.high)):
        raise BadInput(f"{entry.name}: needs flat observations and flat, bounded actions; it has {obs} and {action}")
    limit = entry.time_limit or getattr(made.spec, "max_episode_steps", None)
    return Shape(obs.shape[0], np.asarray(action.low, np.float64), np.asarray(action.high, np.float64), limit)


def normalised(name: str, returns: Any) -> np.ndarray | None:
    """100 · (G − low) / (high − low) with the reference returns, or None (and a warning) where there are none."""
    reference = TABLE[name].reference if name in TABLE else None
    if reference is None:
        warnings.warn(f"{name}: no reference returns are known, so there is no normalised score", stacklevel=2)
        return None
    return 100 * (np.asarray(returns, np.float64) - reference[0]) / (reference[1] - reference[0])


def physics() -> str:
    """The version of the simulator and of the tasks: data is made again bit for bit only under the same."""
    import gymnasium
    import mujoco

    return f"mujoco {mujoco.__version__}, gymnasium {gymnasium.__version__}"


def episode_seed(base: int, number: int, episode: int) -> int:
    """The seed of an episode: of a base seed, the environment's number and how many episodes it had before."""
    return int(np.random.SeedSequence([base, number, episode]).generate_state(1, np.uint64)[0] >> 1)


# ------------------------------------------------------------------------------------------- many at a time


class WorkerError(RuntimeError):
    """An environment worker died or an environment in it raised an error."""


class Board(NamedTuple):
    """What the caller and the workers share, a row for each environment. Short rows are filled up with zeros."""

    action: np.ndarray  # [N, A] in [-1, 1]
    obs: np.ndarray  # [N, O] where the next action is taken: after an episode's end, the first of the next one
    next_obs: np.ndarray  # [N, O] where the last action led to: at an episode's end, its true final observation
    reward: np.ndarray  # [N]
    terminal: np.ndarray  # [N] the task ended
    timeout: np.ndarray  # [N] the time limit cut the episode off
    base: np.ndarray  # [N] base seed
    episode: np.ndarray  # [N] number of the episode that is being played


def _layout(count: int, obs_dim: int, action_dim: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shapes and types of the shared arrays, in the order in which they lie: those of wide numbers first."""
    wide, middle, narrow = np.dtype(np.int64), np.dtype(np.float32), np.dtype(np.bool_)
    return {
        "reward": ((count,), np.dtype(np.float64)),
        "base": ((count,), wide),
        "episode": ((count,), wide),
        "action": ((count, action_dim), middle),
        "obs": ((count, obs_dim), middle),
        "next_obs": ((count, obs_dim), middle),
        "terminal": ((count,), narrow),
        "timeout": ((count,), narrow),
    }


def _board(file: IO[bytes], sizes: tuple[int, int, int]) -> Board:
    """The shared arrays in a file that every process maps into its memory."""
    layout = _layout(*sizes)
    counts = {name: int(np.prod(shape)) for name, (shape, _) in layout.items()}
    total = sum(counts[name] * kind.itemsize for name, (_, kind) in layout.items())
    if os.fstat(file.fileno()).st_size < total:
        os.truncate(file.fileno(), total)
    memory, place, arrays = mmap.mmap(file.fileno(), total), 0, {}
    for name, (shape, kind) in layout.items():
        arrays[name] = np.frombuffer(memory, kind, counts[name], place).reshape(shape)
        place += counts[name] * kind.itemsize
    return Board(**arrays)


class Workers:
    """Environments stepped together by several processes.

    Every episode has a seed of its own, so what is played does not depend on the number of processes. Environments may
    differ in kind; they are dealt out in turn, so that each process gets some of every kind. `numbers` are the numbers
    that go into the seeds, the position by default.
    """

    def __init__(
        self,
        environments: Sequence[str | Environment],
        processes: int | None = None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        self.environments = [lookup(e) if isinstance(e, str) else e for e in environments]
        kinds = {entry.name: shape(entry) for entry in self.environments}
        count = len(self.environments)
        self.processes = max(1, min(count, processes or os.cpu_count() or 1))
        numbers = range(count) if numbers is None else numbers
        sizes = (count, max(k.obs_dim for k in kinds.values()), max(k.action_dim for k in kinds.values()))
        self._children: list[subprocess.Popen[bytes]] = []
        self._mine = [range(p, count, self.processes) for p in range(self.processes)]
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.NamedTemporaryFile(prefix="winnow-", dir=shared) as file:
            self.board = _board(file.file, sizes)
            try:
                for mine in self._mine:
                    rows = [(i, numbers[i], self.environments[i]) for i in mine]
                    self._start({"file": file.name, "sizes": sizes, "rows": rows})
                self._wait()
            except BaseException:
                self.close()
                raise

    def _start(self, job: dict[str, Any]) -> None:
        # Not multiprocessing's spawn: that runs the caller's main module again in the child, and jax with it.
        surroundings = {"MUJOCO_GL": "disable", **os.environ, "OMP_NUM_THREADS": "1"}
        surroundings["PYTHONPATH"] = os.pathsep.join(os.path.abspath(p) for p in sys.path)
        command = [sys.executable, "-c", "from winnow.envs import serve; serve()"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=surroundings)
        self._children.append(child)
        try:
            payload = pickle.dumps(job)
        except Exception as error:
            names = ", ".join(sorted({entry.name for _, _, entry in job["rows"]}))
            raise BadInput(f"{names}: can't be sent to a worker ({error}); register a function of a module") from error
        self._tell(child, struct.pack("<Q", len(payload)) + payload)

    def reset(
        self, seed: int | Sequence[int] | np.ndarray, episode: int | Sequence[int] | np.ndarray = 0
    ) -> np.ndarray:
        """Begin in every environment the episode of this base seed and number; the first observations [N, O]."""
        self.board.base[:] = seed
        self.board.episode[:] = episode
        for child in self._children:
            self._tell(child, b"r")
        self._wait()
        return self.board.obs

    def send(self, action: np.ndarray) -> None:
        """Let every environment take its action [N, A] in [-1, 1], and do not wait for it."""
        self.board.action[:] = action
        for child in self._children:
            self._tell(child, b"s")

    def receive(self) -> Board:
        """Wait for the step that was sent. The arrays are overwritten by the next one."""
        self._wait()
        return self.board

    def step(self, action: np.ndarray) -> Board:
        self.send(action)
        return self.receive()

    def close(self) -> None:
        for child in self._children:
            for pipe in (child.stdin, child.stdout):
                with contextlib.suppress(OSError):
                    if pipe:
                        pipe.close()
        for child in self._children:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._children = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tell(self, child: subprocess.Popen[bytes], words: bytes) -> None:
        assert child.stdin
        with contextlib.suppress(BrokenPipeError):  # it died: the wait that follows says so
            child.stdin.write(words)
            child.stdin.flush()

    def _wait(self) -> None:
        for number, child in enumerate(self._children):
            assert child.stdout
            answer = child.stdout.read(1)
            if answer == b"k":
                continue
            names = ", ".join(f"{self.environments[i].name} {i}" for i in self._mine[number])
            if answer == b"e":
                text = pickle.loads(child.stdout.read())
                raise WorkerError(f"environment worker {number} ({names}) stopped with an error:\n{text}")
            raise WorkerError(f"environment worker {number} ({names}) died with exit code {child.wait()}")


# ------------------------------------------------------------------------------------------ inside a worker


def serve() -> None:
    """A worker's life: read what to play, then reset and step on command until the caller is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to handle
    commands, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what an environment prints must not be taken for an answer
    try:
        with _no_log_file():
            (length,) = struct.unpack("<Q", commands.read(8))
            job = pickle.loads(commands.read(length))
            with open(job["file"], "r+b") as file:
                board = _board(file, job["sizes"])
            seats = [Seat(board, *row) for row in job["rows"]]
            _answer(answers, b"k")
            while command := commands.read(1):
                for seat in seats:
                    seat.begin() if command == b"r" else seat.step()
                _answer(answers, b"k")
    except BrokenPipeError:
        pass
    except Exception:
        with contextlib.suppress(BrokenPipeError):
            _answer(answers, b"e" + pickle.dumps(traceback.format_exc()))


def _answer(answers: IO[bytes], words: bytes) -> None:
    answers.write(words)
    answers.flush()


class Seat:
    """One environment of a worker, and its row of the shared arrays."""

    def __init__(self, board: Board, row: int, number: int, environment: Environment) -> None:
        self.env, self.number = make(environment), number
        self.board = Board(*(column[row : row + 1] for column in board))
        space = self.env.action_space
        self.low, self.high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
        self.kind, self.obs_dim = space.dtype, self.env.observation_space.shape[0]

    def begin(self) -> None:
        base, episode = int(self.board.base[0]), int(self.board.episode[0])
        obs, _ = self.env.reset(seed=episode_seed(base, self.number, episode))
        self.board.obs[0, : self.obs_dim] = obs

    def step(self) -> None:
        board = self.board
        unit = np.clip(board.action[0, : len(self.low)].astype(np.float64), -1, 1)
        action = (self.low + (unit + 1) / 2 * (self.high - self.low)).astype(self.kind)
        obs, reward, terminated, truncated, _ = self.env.step(action)
        board.next_obs[0, : self.obs_dim] = obs
        board.reward[0] = reward
        board.terminal[0], board.timeout[0] = terminated, truncated and not terminated
        if terminated or truncated:
            board.episode[0] += 1
            self.begin()
        else:
            board.obs[0, : self.obs_dim] = obs
