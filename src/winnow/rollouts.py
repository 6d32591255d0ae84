"""Pools: episodes of a behaviour policy, played on all cores, kept on disk and shared by every mixture of them.

Episode n of a pool has its own seeds, for the environment and for the policy's noise, and one process plays it from
start to end. So a pool does not depend on the number of processes or on interruptions, and a pool of fewer rows is the
beginning of one of more. (Bit for bit on one kind of machine, under one version of the physics: the file's name has a
hash of everything that decides.)

A process that plays imports NumPy and the environment, and no jax.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import queue
import shutil
import struct
import subprocess
import threading
import time
import traceback
import uuid
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from winnow import children, envs
from winnow.data import store
from winnow.data.columns import Progress
from winnow.data.dataset import Arena, Dataset, Episodes, Meta
from winnow.data.home import home
from winnow.data.names import ROWS
from winnow.errors import BadInput
from winnow.files import sweep
from winnow.locomotion import several
from winnow.workers import WorkerError

FORMAT = 1
"""Raised when the same seeds would give other rows."""
SAVE_SECONDS = 20.0
"""Finished episodes are written down about this often, and when the work is interrupted."""
DEATHS = 3
"""An episode that kills its process this many times is given up."""
_HEAD = struct.Struct("<qqqq??")  # number, steps (bytes of a message), sizes of observation and action, over, failed


class Played(NamedTuple):
    """One episode."""

    number: int
    obs: np.ndarray  # [T + 1, O]
    action: np.ndarray  # [T, A]
    reward: np.ndarray  # [T]
    terminated: bool

    @property
    def steps(self) -> int:
        return len(self.reward)


# ------------------------------------------------------------------------------------------------------ pools


def pool(
    environment: str,
    level: str,
    rows: int = ROWS,
    *,
    make: bool = True,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """The first episodes of a behaviour policy that reach `rows` rows, from disk or played now.

    Level `random` draws actions uniformly in their bounds; `medium` and `expert` are policies that come with winnow,
    sampled as they explored. Without `make`, an error says how to make a pool that is not on disk.
    """
    if rows < 1:
        raise BadInput(f"rows is {rows}; it must be at least 1")
    job = Job(environment, level)
    name = job.name if rows == ROWS else f"{job.name}@{rows}"
    if found := job.on_disk(rows):
        dataset = store.load(found)
        enough = int(np.searchsorted(np.cumsum(dataset.episodes.length), rows)) + 1
        whole = dataset if enough == len(dataset.episodes) else dataset.select(np.arange(enough))
        return dataclasses.replace(whole.describe(name=name), path=name)
    if not make:
        raise BadInput(f"{name}: is not made yet; make it with `winnow data make '{name}'`")
    _free_space(job, rows)
    episodes = play(job, rows, processes, progress)
    store.save(_dataset(job, episodes), job.file(rows))
    shutil.rmtree(job.parts, ignore_errors=True)
    return pool(environment, level, rows, make=False)


@dataclasses.dataclass(frozen=True)
class Job:
    """Who plays where, with everything that decides what comes out."""

    environment: str
    level: str

    @property
    def name(self) -> str:
        return f"{self.environment}-{self.level}"

    @property
    def policy(self) -> Path | None:
        return None if self.level == "random" else policy_file(self.environment, self.level)

    @property
    def base(self) -> int:
        """The base seed: another one for every pool."""
        return zlib.crc32(self.name.encode())

    @property
    def key(self) -> str:
        entry = envs.lookup(self.environment)
        said = [FORMAT, self.name, entry.source, entry.options, entry.time_limit, envs.physics(self.environment)]
        policy = self.policy.read_bytes() if self.policy else b""
        return hashlib.sha256(json.dumps(said).encode() + policy).hexdigest()[:12]

    @property
    def folder(self) -> Path:
        return home() / "pools"

    def file(self, rows: int) -> Path:
        return self.folder / f"{self.name}-{self.key}-{rows}.safetensors"

    @property
    def parts(self) -> Path:
        """Where finished episodes of an unfinished pool lie."""
        return self.folder / f"{self.name}-{self.key}.parts"

    def made(self) -> dict[int, Path]:
        """Finished pools on disk by their rows."""
        files = self.folder.glob(f"{self.name}-{self.key}-*.safetensors")
        sizes = {file: file.stem.rpartition("-")[2] for file in files}
        return {int(size): file for file, size in sizes.items() if size.isdigit()}

    def on_disk(self, rows: int) -> Path | None:
        """A pool with at least so many rows: the smallest of them."""
        enough = {size: file for size, file in self.made().items() if size >= rows}
        return enough[min(enough)] if enough else None


def policy_file(environment: str, level: str) -> Path:
    """A behaviour policy that comes with winnow."""
    path = Path(__file__).parent / "policies" / f"{environment}-{level}.safetensors"
    if not path.exists():
        there = ", ".join(sorted(file.stem for file in path.parent.glob("*.safetensors")))
        raise BadInput(f"there is no behaviour policy {path.stem}; there are {there}")
    return path


def _free_space(job: Job, rows: int) -> None:
    """Refuse work whose result would not fit on the disk; the pool and its parts are there together for a moment."""
    shape = envs.shape(job.environment)
    needed = int(2.2 * rows * 4 * (shape.obs_dim * 1.05 + shape.action_dim + 2))
    job.folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(job.folder).free
    if free < needed:
        raise BadInput(
            f"{job.folder}: has {free / 1e6:,.0f} MB free and a pool of {rows:,} rows needs {needed / 1e6:,.0f}; "
            "make room, or set WINNOW_DATA to a folder on another disk"
        )


def _dataset(job: Job, episodes: list[Played]) -> Dataset:
    """Episodes, in their order, as a dataset."""
    shape = envs.shape(job.environment)
    length = np.array([one.steps for one in episodes], np.int64)
    slot = np.concatenate([[0], np.cumsum(length + 1)[:-1]])
    slots = int((length + 1).sum())
    arena = Arena(
        np.concatenate([one.obs for one in episodes]),
        np.zeros((slots, shape.action_dim), np.float32),
        np.zeros(slots, np.float32),
        np.zeros(slots, bool),
    )
    for low, one in zip(slot, episodes, strict=True):
        arena.action[low : low + one.steps] = one.action
        arena.reward[low : low + one.steps] = one.reward
        arena.terminal[low + one.steps - 1] = one.terminated
    number = np.array([one.number for one in episodes], np.int64)
    table = Episodes.make(
        slot,
        length,
        np.array([one.terminated for one in episodes]),
        origin=number,
        seed=np.array([envs.episode_seed(job.base, 0, int(n)) for n in number]),
    )
    meta = Meta(
        name=job.name,
        environment=job.environment,
        physics=envs.physics(job.environment),
        sources=(job.level,),
        action_low=tuple(shape.low.tolist()),
        action_high=tuple(shape.high.tolist()),
        recipe={"pool": job.name, "key": job.key},
    )
    return Dataset((arena,), table, meta)


def _episodes(dataset: Dataset) -> Iterable[Played]:
    table, arena = dataset.episodes, dataset.arenas[0]
    for number, low, steps, over in zip(table.origin, table.slot, table.length, table.terminated, strict=True):
        rows = slice(low, low + steps)
        yield Played(int(number), arena.obs[low : low + steps + 1], arena.action[rows], arena.reward[rows], bool(over))


# ---------------------------------------------------------------------------------------------------- playing


def play(job: Job, rows: int, processes: int | None = None, progress: Progress | None = None) -> list[Played]:
    """Episodes 0, 1, 2, … until they reach `rows` rows. What was finished before is taken up again."""
    done = _taken_up(job)
    saved, unsaved, marked = set(done), 0, time.monotonic()
    report = progress or (lambda played, wanted: None)
    held = sum(one.steps for one in done.values())
    whole, reached = 0, 0  # episodes without a gap from the first on, and their rows
    with Crew(job, processes or envs.cores_here(), lambda number: number not in done) as crew:
        try:
            while True:
                while whole in done:
                    reached += done[whole].steps
                    whole += 1
                    if reached >= rows:
                        report(rows, rows)
                        return [done[number] for number in range(whole)]
                mean = held / len(done) if done else 0
                report(min(held, rows), rows)
                while crew.idle and (crew.at_work == 0 or held + crew.at_work * mean < rows or whole in crew.unplayed):
                    crew.begin()
                one = crew.finished()
                done[one.number] = one
                held, unsaved = held + one.steps, unsaved + 1
                if time.monotonic() - marked > SAVE_SECONDS:
                    saved, unsaved, marked = _save_part(job, done, saved), 0, time.monotonic()
        except BaseException:
            if unsaved:
                _save_part(job, done, saved)
            raise


def _taken_up(job: Job) -> dict[int, Played]:
    """Finished episodes on disk: those of a smaller pool and those of interrupted work."""
    done: dict[int, Played] = {}
    made = job.made()
    files = [made[max(made)]] if made else []
    if job.parts.exists():
        sweep(job.parts)
        files += sorted(job.parts.glob("*.safetensors"))
    for file in files:
        done |= {one.number: one for one in _episodes(store.load(file))}
    return done


def _save_part(job: Job, done: dict[int, Played], saved: set[int]) -> set[int]:
    fresh = [done[number] for number in sorted(set(done) - saved)]
    if fresh:
        store.save(_dataset(job, fresh), job.parts / f"{uuid.uuid4().hex}.safetensors")
    return set(done)


class Crew:
    """Processes that each play an episode at a time; one that dies is replaced and its episodes are played again."""

    AHEAD = 4
    """Episodes given to a process before it asks: so it never waits."""

    def __init__(self, job: Job, size: int, wanted: Callable[[int], bool]) -> None:
        self.job, self.size, self.wanted = job, size, wanted
        self.unplayed: deque[int] = deque()  # to be played before new numbers: their process died
        self._next = 0
        self._deaths: Counter[int] = Counter()
        self._answers: queue.Queue[tuple[subprocess.Popen[bytes], Played | str | None]] = queue.Queue()
        self._work: dict[subprocess.Popen[bytes], deque[int]] = {}

    def __enter__(self) -> Crew:
        for _ in range(self.size):
            self._hire()
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._work:
            self._dismiss(child)

    @property
    def at_work(self) -> int:
        """Episodes given out."""
        return sum(map(len, self._work.values()))

    @property
    def idle(self) -> bool:
        """Whether a process can take another episode."""
        return min(map(len, self._work.values())) < self.AHEAD

    def begin(self) -> None:
        """Give the next episode to the process that has the fewest."""
        child = min(self._work, key=lambda one: len(self._work[one]))
        if self.unplayed:
            number = self.unplayed.popleft()
        else:
            while not self.wanted(self._next):
                self._next += 1
            number, self._next = self._next, self._next + 1
        self._work[child].append(number)
        assert child.stdin
        with contextlib.suppress(BrokenPipeError):  # it died: the reader says so
            child.stdin.write(struct.pack("<q", number))
            child.stdin.flush()

    def finished(self) -> Played:
        """Wait for an episode."""
        while True:
            child, answer = self._answers.get()
            if isinstance(answer, Played):
                self._work[child].remove(answer.number)
                return answer
            given, code = self._work.pop(child), self._dismiss(child)
            if isinstance(answer, str):
                raise WorkerError(f"{self.job.name}: an environment stopped with an error:\n{answer}")
            if given:
                self._deaths[given[0]] += 1
                if self._deaths[given[0]] >= DEATHS:
                    raise WorkerError(
                        f"{self.job.name}: episode {given[0]} killed its process {DEATHS} times (exit code {code})"
                    )
            self.unplayed.extendleft(reversed(given))
            self._hire()
            for _ in given:
                self.begin()

    def _hire(self) -> None:
        child = subprocess.Popen(
            children.call("winnow.rollouts:serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=children.simulating(),
        )
        self._work[child] = deque()
        said = {"env": self.job.environment, "policy": str(self.job.policy or ""), "base": self.job.base}
        assert child.stdin
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps(said).encode() + b"\n")
            child.stdin.flush()
        threading.Thread(target=self._listen, args=(child,), daemon=True).start()

    def _dismiss(self, child: subprocess.Popen[bytes]) -> int:
        """End a process, if it has not ended, and close its pipes. Its exit code."""
        child.kill()
        code = child.wait()
        children.hang_up(child)
        return code

    def _listen(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout
        try:
            while len(head := child.stdout.read(_HEAD.size)) == _HEAD.size:
                number, steps, obs_dim, action_dim, terminated, failed = _HEAD.unpack(head)
                size = steps if failed else 4 * ((steps + 1) * obs_dim + steps * (action_dim + 1))
                if len(body := child.stdout.read(size)) < size:
                    break
                if failed:
                    self._answers.put((child, body.decode(errors="replace")))
                    return
                cuts = np.cumsum([(steps + 1) * obs_dim, steps * action_dim])
                obs, action, reward = np.split(np.frombuffer(body, np.float32), cuts)
                one = Played(number, obs.reshape(-1, obs_dim), action.reshape(-1, action_dim), reward, terminated)
                self._answers.put((child, one))
        except (OSError, ValueError):  # the pipe was closed under us
            pass
        self._answers.put((child, None))


# ----------------------------------------------------------------------------------------- inside a process


def serve() -> None:
    """A process's life: read what to play, then play the episodes it is given until the caller is gone."""
    commands, answers = children.answering()
    try:
        with envs.no_log_file():
            said = json.loads(commands.readline())
            player = Player(said["env"], said["policy"], said["base"])
            while len(word := commands.read(8)) == 8:
                _answer(answers, player.play(*struct.unpack("<q", word)))
    except BrokenPipeError:
        pass
    except Exception:
        text = traceback.format_exc().encode()
        with contextlib.suppress(BrokenPipeError):
            answers.write(_HEAD.pack(-1, len(text), 0, 0, False, True) + text)
            answers.flush()


def _answer(answers: IO[bytes], one: Played) -> None:
    answers.write(_HEAD.pack(one.number, one.steps, one.obs.shape[1], one.action.shape[1], one.terminated, False))
    for column in (one.obs, one.action, one.reward):
        answers.write(np.ascontiguousarray(column, np.float32).data)
    answers.flush()


class Player:
    """An environment and the policy that plays in it."""

    def __init__(self, environment: str, policy: str, base: int) -> None:
        self.envs, self.base = several(lambda: envs.make(environment), 1), base
        shape = envs.shape(environment)
        self.low, self.high = shape.low, shape.high
        self.layers = _layers(policy) if policy else None

    def play(self, number: int) -> Played:
        """Episode `number` from its first observation to its end."""
        noise = np.random.default_rng([self.base, number])
        first = self.envs.reset(0, envs.episode_seed(self.base, 0, number))
        obs, action, reward = [np.asarray(first, np.float32)], [], []
        while True:
            unit = np.clip(self._unit(obs[-1], noise), -1.0, 1.0)
            action.append((self.low + (unit + 1) / 2 * (self.high - self.low)).astype(self.envs.action_kind))
            seen = self.envs.step([0], action[-1][None])
            obs.append(seen.obs[0].astype(np.float32))
            reward.append(seen.reward[0])
            if seen.terminal[0] or seen.timeout[0]:
                gained = np.array(reward, np.float32)
                return Played(number, np.stack(obs), np.stack(action), gained, bool(seen.terminal[0]))

    def _unit(self, obs: np.ndarray, noise: np.random.Generator) -> np.ndarray:
        """An action in [−1, 1]: uniform, or drawn from the tanh-Gaussian policy (`nets.squashed_sample`)."""
        if self.layers is None:
            return noise.uniform(-1.0, 1.0, len(self.low))
        hidden = obs
        for weight, bias in self.layers[:-1]:
            hidden = np.maximum(hidden @ weight + bias, 0)
        mean, log_std = np.split(hidden @ self.layers[-1][0] + self.layers[-1][1], 2)
        return np.tanh(mean + np.exp(np.clip(log_std, -20.0, 2.0)) * noise.standard_normal(len(mean)))


def _layers(policy: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights and biases of a policy file, first layer first."""
    from safetensors.numpy import load_file

    held: dict[str, Any] = load_file(policy)
    return [(held[f"actor/{depth}/w"], held[f"actor/{depth}/b"]) for depth in range(len(held) // 2)]
