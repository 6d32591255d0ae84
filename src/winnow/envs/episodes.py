"""Processes that play whole episodes of one policy in one environment. Each episode has seeds of its own.

Used by `winnow.data.pools`, which stores the episodes. A child process imports this module, NumPy and the environment,
but not jax.
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
from winnow.envs.locomotion import make_several
from winnow.envs.workers import WorkerError
from winnow.system import processes

MAX_DEATHS = 3
"""How often an episode may kill its process before it is given up."""
_HEAD = struct.Struct("<qqqq??")
"""Header of an answer: episode number, steps (of an error: bytes of its text), observation size, action size, whether
the episode terminated, whether this is an error."""


class Task(NamedTuple):
    """Which policy plays in which environment."""

    name: str
    environment: str
    policy: Path | None  # None: uniformly random actions
    base: int
    """Base seed, from which the seeds of all episodes are derived."""


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


class EpisodeWorkers:
    """Processes that play one episode at a time. One that dies is replaced, and its episodes are played again."""

    AHEAD = 4
    """Episodes queued for each process, so that it never waits for the next one."""

    def __init__(self, task: Task, size: int, wanted: Callable[[int], bool]) -> None:
        self.task = task
        self.size = size
        self.wanted = wanted
        self.unplayed: deque[int] = deque()  # episodes of processes that died: played before new ones
        self._next = 0
        self._deaths: Counter[int] = Counter()
        self._answers: queue.Queue[tuple[subprocess.Popen[bytes], Played | str | None]] = queue.Queue()
        self._queued: dict[subprocess.Popen[bytes], deque[int]] = {}

    def __enter__(self) -> EpisodeWorkers:
        for _ in range(self.size):
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._queued:
            self._end(child)

    @property
    def pending(self) -> int:
        """Number of episodes that are queued or being played."""
        return sum(map(len, self._queued.values()))

    @property
    def idle(self) -> bool:
        """Whether a process can take another episode."""
        return min(map(len, self._queued.values())) < self.AHEAD

    def begin(self) -> None:
        """Give the next episode to the process that has the fewest."""
        child = min(self._queued, key=lambda process: len(self._queued[process]))
        if self.unplayed:
            number = self.unplayed.popleft()
        else:
            while not self.wanted(self._next):
                self._next += 1
            number = self._next
            self._next += 1
        self._queued[child].append(number)
        assert child.stdin
        with contextlib.suppress(BrokenPipeError):  # the process died: `_listen` reports it
            child.stdin.write(struct.pack("<q", number))
            child.stdin.flush()

    def finished(self) -> Played:
        """Wait for the next finished episode."""
        while True:
            child, answer = self._answers.get()
            if isinstance(answer, Played):
                self._queued[child].remove(answer.number)
                return answer
            unfinished = self._queued.pop(child)
            code = self._end(child)
            if isinstance(answer, str):
                raise WorkerError(f"{self.task.name}: an environment stopped with an error:\n{answer}")
            if unfinished:
                playing = unfinished[0]
                self._deaths[playing] += 1
                if self._deaths[playing] >= MAX_DEATHS:
                    raise WorkerError(
                        f"{self.task.name}: episode {playing} killed its process {MAX_DEATHS} times (exit code {code})"
                    )
            self.unplayed.extendleft(reversed(unfinished))
            self._start()
            for _ in unfinished:
                self.begin()

    def _start(self) -> None:
        child = subprocess.Popen(
            processes.python_command("winnow.envs.episodes:serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=processes.simulator_env(),
        )
        self._queued[child] = deque()
        job = {"env": self.task.environment, "policy": str(self.task.policy or ""), "base": self.task.base}
        assert child.stdin
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps(job).encode() + b"\n")
            child.stdin.flush()
        threading.Thread(target=self._listen, args=(child,), daemon=True).start()

    def _end(self, child: subprocess.Popen[bytes]) -> int:
        """Kill a process if it still runs, and close its pipes. Returns its exit code."""
        child.kill()
        code = child.wait()
        processes.close_pipes(child)
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
                played = Played(number, obs.reshape(-1, obs_dim), action.reshape(-1, action_dim), reward, terminated)
                self._answers.put((child, played))
        except (OSError, ValueError):  # `_end` closed the pipe
            pass
        self._answers.put((child, None))


# ------------------------------------------------------------------------------------- inside a child process


def serve() -> None:
    """Main function of a child process: read the task, then play the requested episodes until the caller is gone."""
    commands, answers = processes.serve_pipes()
    try:
        with envs.no_log_file():
            job = json.loads(commands.readline())
            player = Player(job["env"], job["policy"], job["base"])
            while len(request := commands.read(8)) == 8:
                _answer(answers, player.play(*struct.unpack("<q", request)))
    except BrokenPipeError:
        pass
    except Exception:
        text = traceback.format_exc().encode()
        with contextlib.suppress(BrokenPipeError):
            answers.write(_HEAD.pack(-1, len(text), 0, 0, False, True) + text)
            answers.flush()


def _answer(answers: IO[bytes], played: Played) -> None:
    obs_dim = played.obs.shape[1]
    action_dim = played.action.shape[1]
    answers.write(_HEAD.pack(played.number, played.steps, obs_dim, action_dim, played.terminated, False))
    for column in (played.obs, played.action, played.reward):
        answers.write(np.ascontiguousarray(column, np.float32).data)
    answers.flush()


class Player:
    """An environment and the policy that plays in it."""

    def __init__(self, environment: str, policy: str, base: int) -> None:
        self.envs = make_several(lambda: envs.make(environment), 1)
        self.base = base
        shape = envs.shape(environment, self.envs.env)
        self.low = shape.low
        self.high = shape.high
        self.first_choice = shape.first_choice
        self.layers = _layers(policy) if policy else None

    def play(self, number: int) -> Played:
        """Episode `number`, from its first observation to its last."""
        noise = np.random.default_rng([self.base, number])
        start = self.envs.reset(0, envs.episode_seed(self.base, 0, number))
        obs = [np.asarray(start, np.float32)]
        actions = []
        rewards = []
        while True:
            actions.append(self._action(obs[-1], noise))
            taken = actions[-1][None] if self.first_choice is None else actions[-1] + self.first_choice
            stepped = self.envs.step([0], taken)
            obs.append(stepped.obs[0].astype(np.float32))
            rewards.append(stepped.reward[0])
            if stepped.terminal[0] or stepped.timeout[0]:
                reward = np.array(rewards, np.float32)
                return Played(number, np.stack(obs), np.stack(actions), reward, bool(stepped.terminal[0]))

    def _action(self, obs: np.ndarray, noise: np.random.Generator) -> np.ndarray:
        """An action [A] in the environment's units; the number of a choice [1], from 0, where actions are discrete."""
        if self.first_choice is not None:
            return np.array([self._choice(obs, noise)])
        unit = np.clip(self._unit_action(obs, noise), -1.0, 1.0)
        return (self.low + (unit + 1) / 2 * (self.high - self.low)).astype(self.envs.action_dtype)

    def _choice(self, obs: np.ndarray, noise: np.random.Generator) -> int:
        """A choice: uniform, or sampled from the softmax of the policy's outputs."""
        if self.layers is None:
            return int(noise.integers(len(self.low)))
        logits = _outputs(self.layers, obs).astype(np.float64)
        return int(np.argmax(logits + noise.gumbel(size=len(logits))))

    def _unit_action(self, obs: np.ndarray, noise: np.random.Generator) -> np.ndarray:
        """An action in [−1, 1]: uniform, or sampled from the tanh-Gaussian policy (as `nets.squashed_sample` does)."""
        if self.layers is None:
            return noise.uniform(-1.0, 1.0, len(self.low))
        mean, log_std = np.split(_outputs(self.layers, obs), 2)
        return np.tanh(mean + np.exp(np.clip(log_std, -20.0, 2.0)) * noise.standard_normal(len(mean)))


def _outputs(layers: list[tuple[np.ndarray, np.ndarray]], obs: np.ndarray) -> np.ndarray:
    """What a ReLU network says of an observation."""
    hidden = obs
    for weight, bias in layers[:-1]:
        hidden = np.maximum(hidden @ weight + bias, 0)
    return hidden @ layers[-1][0] + layers[-1][1]


def _layers(policy: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights and biases of a policy file, first layer first."""
    from safetensors.numpy import load_file

    arrays: dict[str, Any] = load_file(policy)
    return [(arrays[f"actor/{depth}/w"], arrays[f"actor/{depth}/b"]) for depth in range(len(arrays) // 2)]
