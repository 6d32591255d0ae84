"""Environments: a table of them with their time limits and reference scores, and stepping many over processes.

A worker process imports this module, NumPy and its environments, and no jax.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.metadata
import importlib.util
import itertools
import json
import mmap
import os
import re
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

import numpy as np

from winnow import children
from winnow.errors import BadInput


@dataclass(frozen=True)
class Environment:
    """How an environment is made, when an episode is cut off, and the returns that count as 0 and 100."""

    name: str
    source: str | Callable[..., Any]  # a Gymnasium id, or what makes the environment
    time_limit: int | None = None  # None: the environment's own
    reference: tuple[float, float] | None = None
    options: dict[str, Any] = field(default_factory=dict)


def ant_of_d4rl() -> Any:
    """Ant as D4RL recorded it: 84 contact forces follow the 27 numbers, and all are zero (D4RL's issue 143)."""
    import gymnasium

    ant = gymnasium.make("Ant-v5", disable_env_checker=True, include_cfrc_ext_in_observation=False)
    space = gymnasium.spaces.Box(-np.inf, np.inf, (111,), np.float64)
    return gymnasium.wrappers.TransformObservation(ant, lambda obs: np.concatenate([obs, np.zeros(84)]), space)


ROBOTICS = "winnow.robotics:"
"""Begins the Gymnasium ids that need the extra `robotics`: the module that registers them."""

_ANTMAZE, _KITCHEN, _ADROIT = (f"{ROBOTICS}winnow/{kind}-v0" for kind in ("AntMaze", "Kitchen", "Adroit"))
_TASKS = ("microwave", "kettle", "light switch")

# Time limits and reference returns are D4RL's (Fu et al., 2020). Where two are the same task, only their data differ.
TABLE = {
    environment.name: environment
    for environment in (
        Environment("hopper", "Hopper-v5", 1000, (-20.272305, 3234.3)),
        Environment("halfcheetah", "HalfCheetah-v5", 1000, (-280.178953, 12135.0)),
        Environment("walker2d", "Walker2d-v5", 1000, (1.629008, 4592.3)),
        Environment("ant", "Ant-v5", 1000, (-325.6, 3879.7), {"include_cfrc_ext_in_observation": False}),
        Environment("ant-v2", ant_of_d4rl, 1000, (-325.6, 3879.7)),
        Environment("antmaze-umaze", _ANTMAZE, 700, (0.0, 1.0), {"maze": "umaze"}),
        Environment("antmaze-umaze-diverse", _ANTMAZE, 700, (0.0, 1.0), {"maze": "umaze"}),
        Environment("antmaze-medium-play", _ANTMAZE, 1000, (0.0, 1.0), {"maze": "medium"}),
        Environment("antmaze-medium-diverse", _ANTMAZE, 1000, (0.0, 1.0), {"maze": "medium"}),
        Environment("antmaze-large-play", _ANTMAZE, 1000, (0.0, 1.0), {"maze": "large"}),
        Environment("antmaze-large-diverse", _ANTMAZE, 1000, (0.0, 1.0), {"maze": "large"}),
        Environment("kitchen-complete", _KITCHEN, 280, (0.0, 4.0), {"tasks": [*_TASKS, "slide cabinet"]}),
        Environment("kitchen-partial", _KITCHEN, 280, (0.0, 4.0), {"tasks": [*_TASKS, "slide cabinet"]}),
        Environment("kitchen-mixed", _KITCHEN, 280, (0.0, 4.0), {"tasks": [*_TASKS, "bottom burner"]}),
        Environment("pen", _ADROIT, 100, (96.262799, 3076.8331017826877), {"task": "pen"}),
        Environment("hammer", _ADROIT, 200, (-274.856578, 12794.134825156867), {"task": "hammer"}),
        Environment("door", _ADROIT, 200, (-56.512833, 2880.5693087298737), {"task": "door"}),
        Environment("relocate", _ADROIT, 200, (-6.425911, 4233.877797728884), {"task": "relocate"}),
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
    """An environment of the table, with D4RL's version or without; or one by its Gymnasium id, without a reference."""
    found = _listed(name) or _registered(name)
    if found is None:
        import gymnasium

        near = difflib.get_close_matches(name, [*TABLE, *gymnasium.registry], n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(TABLE)}."
        more = "" if importlib.util.find_spec("gymnasium_robotics") else ", pip install 'winnow[robotics]' adds robots"
        raise BadInput(f"there is no environment {name!r}; {hint} winnow.envs.register adds your own{more}")
    return found


def _listed(name: str) -> Environment | None:
    return TABLE.get(name) or TABLE.get(re.sub(r"-v\d+$", "", name))


def _registered(name: str) -> Environment | None:
    import gymnasium

    if name not in gymnasium.registry:
        with contextlib.suppress(ImportError):
            importlib.import_module(ROBOTICS.removesuffix(":"))
    if (spec := gymnasium.registry.get(name)) is None:
        return None
    module = ROBOTICS if str(spec.entry_point).startswith("gymnasium_robotics") else ""
    return Environment(name, module + name)


def make(environment: str | Environment) -> Any:
    """A Gymnasium environment. Its time limit truncates an episode, which is a timeout and no terminal.

    Observations in parts become one array, laid side by side in the order of `gymnasium.spaces.flatten`.
    """
    import gymnasium

    entry = lookup(environment) if isinstance(environment, str) else environment
    try:
        with no_log_file(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*is out of date", DeprecationWarning)  # the data asks for that version
            if isinstance(entry.source, str):
                limit = {} if entry.time_limit is None else {"max_episode_steps": entry.time_limit}
                made = gymnasium.make(entry.source, disable_env_checker=True, **limit, **entry.options)
            else:
                made = entry.source(**entry.options)
                made = made if entry.time_limit is None else gymnasium.wrappers.TimeLimit(made, entry.time_limit)
    except ImportError as error:
        if _is_robotics(entry):
            raise _no_robotics(entry) from error
        raise BadInput(f"{entry.name}: {error}; pip install 'gymnasium[mujoco]'") from error
    except gymnasium.error.DependencyNotInstalled as error:
        raise BadInput(f"{entry.name}: {' '.join(map(str, error.args))}") from error
    in_parts = isinstance(made.observation_space, (gymnasium.spaces.Dict, gymnasium.spaces.Tuple))
    return gymnasium.wrappers.FlattenObservation(made) if in_parts else made


def _is_robotics(entry: Environment) -> bool:
    return isinstance(entry.source, str) and entry.source.startswith(ROBOTICS)


def _no_robotics(entry: Environment) -> BadInput:
    return BadInput(f"{entry.name}: needs gymnasium-robotics; pip install 'winnow[robotics]'")


@contextlib.contextmanager
def no_log_file() -> Iterator[None]:
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
    entry = _listed(name)
    reference = entry.reference if entry else None
    if reference is None:
        warnings.warn(f"{name}: no reference returns are known, so there is no normalised score", stacklevel=2)
        return None
    return 100 * (np.asarray(returns, np.float64) - reference[0]) / (reference[1] - reference[0])


def physics(environment: str | Environment | None = None) -> str:
    """The versions of the simulator and of the tasks: data is made again bit for bit only under the same."""
    import gymnasium
    import mujoco

    versions = f"mujoco {mujoco.__version__}, gymnasium {gymnasium.__version__}"
    entry = lookup(environment) if isinstance(environment, str) else environment
    if entry is None or not _is_robotics(entry):
        return versions
    try:
        return f"{versions}, gymnasium-robotics {importlib.metadata.version('gymnasium-robotics')}"
    except ImportError as error:
        raise _no_robotics(entry) from error


def episode_seed(base: int, number: int, episode: int) -> int:
    """The seed of an episode: of a base seed, the environment's number and how many episodes it had before."""
    return int(np.random.SeedSequence([base, number, episode]).generate_state(1, np.uint64)[0] >> 1)


# ------------------------------------------------------------------------------------------- many at a time

EVALUATION = 1 << 40
"""Added to the base seed of episodes that are played to evaluate: no training episode has one like it."""
ENDLESS = int(np.iinfo(np.int64).max)
LIVES = 3
"""A worker that dies so often and finishes no episode in between is given up."""


class WorkerError(RuntimeError):
    """An environment worker died or an environment in it raised an error."""


def cores_here() -> int:
    """Cores this process may use; some systems only say how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
    for name, (shape, kind) in layout.items():
        arrays[name] = np.frombuffer(memory, kind, counts[name], place).reshape(shape)
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
            children.call("winnow.envs:serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=children.simulating(),
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
            children.hang_up(child)
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
        children.hang_up(self._children[number])
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


def described(entry: Environment) -> dict[str, Any]:
    """An environment as plain JSON, less its reference returns."""
    named = isinstance(entry.source, str)
    try:
        made = {"source": entry.source} if named else {"function": address(entry.source)}
        return json.loads(json.dumps({"name": entry.name, "limit": entry.time_limit, "options": entry.options} | made))
    except (TypeError, ValueError) as error:
        raise BadInput(f"{entry.name}: can't be sent to a worker ({error}); register a function of a module") from error


def made_of(said: dict[str, Any]) -> Environment:
    """The environment again, in another process."""
    source = said["source"] if "source" in said else at_address(said["function"])
    return Environment(said["name"], source, said["limit"], None, said["options"])


def address(thing: Any) -> str:
    """Where another process can import a function or a class from, as module:name."""
    found, where = None, f"{getattr(thing, '__module__', None)}:{getattr(thing, '__qualname__', '')}"
    with contextlib.suppress(ImportError, AttributeError):
        found = at_address(where)
    if found is not thing or where.startswith("__main__:"):
        raise ValueError(f"{where} is not there for other processes")
    return where


def at_address(where: str) -> Any:
    module, _, name = where.partition(":")
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


# ------------------------------------------------------------------------------------------ inside a worker


def serve() -> None:
    """A worker's life: read what to play, then reset and step on command until the caller is gone."""
    commands, answers = children.answering()
    try:
        with no_log_file():
            job = json.loads(commands.readline())
            with os.fdopen(job["file"], "r+b") as file:
                board = _board(file, job["sizes"])
            groups = [Seats(board.rows(slice(*group["rows"])), group["seats"]) for group in job["groups"]]
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
        self.envs = [make(made_of(said)) for _, said in seats]
        spaces = [env.action_space for env in self.envs]
        self.kinds = [space.dtype for space in spaces]
        self.obs = [slice(env.observation_space.shape[0]) for env in self.envs]
        self.actions = [slice(space.shape[0]) for space in spaces]
        self.low, self.span = np.zeros(board.action.shape), np.zeros(board.action.shape)
        for row, (space, width) in enumerate(zip(spaces, self.actions, strict=True)):
            low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
            self.low[row, width], self.span[row, width] = low, high - low

    def begin(self) -> None:
        """Begin the episodes that the board says."""
        for row in np.flatnonzero(self.board.playing).tolist():
            self._begin(row)

    def _begin(self, row: int) -> None:
        seed = episode_seed(int(self.board.base[row]), self.numbers[row], int(self.board.episode[row]))
        self.board.obs[row, self.obs[row]] = self.envs[row].reset(seed=seed)[0]

    def step(self) -> None:
        """Those that play take their actions; where an episode ends the next one begins, if there is one."""
        board = self.board
        for column in (board.reward, board.terminal, board.timeout):
            column[:] = 0
        unit = np.clip(board.action.astype(np.float64), -1, 1)
        action = self.low + (unit + 1) / 2 * self.span
        for row in np.flatnonzero(board.playing & ~board.fresh).tolist():
            taken = action[row, self.actions[row]].astype(self.kinds[row])
            obs, reward, terminated, truncated, _ = self.envs[row].step(taken)
            board.next_obs[row, self.obs[row]] = obs
            board.reward[row] = reward
            if not terminated and not truncated:
                board.obs[row, self.obs[row]] = obs
                continue
            board.terminal[row], board.timeout[row] = terminated, not terminated
            board.episode[row] += board.stride[row]
            if board.episode[row] < board.until[row]:
                self._begin(row)
