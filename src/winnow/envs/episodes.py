"""A crew: processes that play whole episodes of one policy in one environment, each episode with seeds of its own.

Used by `winnow.data.pools`, which keeps what they play. A process imports this module, NumPy and the environment, and
no jax.
"""

from __future__ import annotations

import contextlib
import json
import queue
import struct
import subprocess
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from winnow import envs
from winnow.envs.locomotion import several
from winnow.envs.workers import WorkerError
from winnow.system import processes

DEATHS = 3
"""An episode that kills its process this many times is given up."""
_HEAD = struct.Struct("<qqqq??")  # number, steps (bytes of a message), sizes of observation and action, over, failed


class Task(NamedTuple):
    """Who plays where."""

    name: str
    environment: str
    policy: Path | None  # actions are drawn uniformly where there is none
    base: int
    """The seed that those of all episodes are made of."""


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


class Crew:
    """Processes that each play an episode at a time; one that dies is replaced and its episodes are played again."""

    AHEAD = 4
    """Episodes given to a process before it asks: so it never waits."""

    def __init__(self, task: Task, size: int, wanted: Callable[[int], bool]) -> None:
        self.task, self.size, self.wanted = task, size, wanted
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
                raise WorkerError(f"{self.task.name}: an environment stopped with an error:\n{answer}")
            if given:
                self._deaths[given[0]] += 1
                if self._deaths[given[0]] >= DEATHS:
                    raise WorkerError(
                        f"{self.task.name}: episode {given[0]} killed its process {DEATHS} times (exit code {code})"
                    )
            self.unplayed.extendleft(reversed(given))
            self._hire()
            for _ in given:
                self.begin()

    def _hire(self) -> None:
        child = subprocess.Popen(
            processes.call("winnow.envs.episodes:serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=processes.simulating(),
        )
        self._work[child] = deque()
        said = {"env": self.task.environment, "policy": str(self.task.policy or ""), "base": self.task.base}
        assert child.stdin
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps(said).encode() + b"\n")
            child.stdin.flush()
        threading.Thread(target=self._listen, args=(child,), daemon=True).start()

    def _dismiss(self, child: subprocess.Popen[bytes]) -> int:
        """End a process, if it has not ended, and close its pipes. Its exit code."""
        child.kill()
        code = child.wait()
        processes.hang_up(child)
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
    commands, answers = processes.answering()
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
        shape = envs.shape(environment, self.envs.env)
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
