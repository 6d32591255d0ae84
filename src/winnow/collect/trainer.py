"""Training many behaviour policies at once.

A *lane* is an environment and a seed. All lanes learn in one compiled program, from replay buffers on the device.
While worker processes step the environments, the device makes the updates. The host waits for the device once in each
step: for the actions.

Training is a sequence of rounds, each of which ends with an evaluation. A round begins with new episodes in all
environments, so a run that was stopped after a round and resumed takes the same steps as one that never stopped. (Bit
for bit on a device that always sums in the same order, such as a CPU.)
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winnow import envs
from winnow.collect import sac as sac_
from winnow.collect.learner import Learner, exploit, explore, learn
from winnow.collect.sac import SAC
from winnow.collect.snapshots import Lane, save_snapshot
from winnow.envs import EVALUATION_SEEDS
from winnow.envs.workers import Workers
from winnow.errors import BadInput
from winnow.system import checkpoint
from winnow.system.files import replacing, write_text
from winnow.types import check_settings

LEVELS = {"medium": (35.0, 60.0), "expert": (90.0, math.inf)}
"""The range of normalised scores that each level stands for."""
ASSUMED_BYTES_PER_SECOND = 100e6
"""Speed of writing a checkpoint, assumed until one has been timed."""
SMALL_CHECKPOINT_BYTES = 50e6
"""Smaller checkpoints are too quick to measure the disk's speed."""


def option(default: int, text: str) -> Any:
    """A field that is an option of the command, with its help."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Setup:
    """The settings that change a run's result, apart from its length."""

    env: tuple[str, ...]
    seed: tuple[int, ...]
    environments: int = option(16, "copies of the environment that each policy learns from")
    updates: int = option(16, "updates after each step of all these copies (default: as many as there are copies)")
    random_steps: int = option(10_000, "environment steps with random actions, before the first update")
    evaluate_every: int = option(50_000, "environment steps between two evaluations")
    episodes: int = option(16, "episodes of each evaluation")
    capacity: int = option(1_000_000, "transitions in the replay buffer; then the oldest are overwritten")
    batch_size: int = option(256, "transitions sampled for each update")
    sac: SAC = SAC()

    def check(self) -> None:
        check_settings(self.sac, "sac")
        for name in ("environments", "evaluate_every", "episodes", "batch_size"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("updates", "random_steps"):
            if getattr(self, name) < 0:
                raise BadInput(f"{name} must not be negative, got {getattr(self, name)}")
        if min(self.seed, default=0) < 0:
            raise BadInput(f"seeds must not be negative, got {min(self.seed)}")
        if not self.env or not self.seed:
            raise BadInput("there is nothing to train; give at least one environment and one seed")
        if self.capacity < self.environments:
            raise BadInput(
                f"capacity must be at least one step of all {self.environments} environments, got {self.capacity}"
            )

    def record(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))


class Trainer:
    """The training of all lanes: the learner on the device, the worker processes, and the learning curves so far."""

    def __init__(self, setup: Setup, out: Path, processes: int | None = None) -> None:
        setup.check()
        self.setup = setup
        self.out = out
        shapes = {env: envs.shape(env) for env in setup.env}
        if endless := [env for env in setup.env if shapes[env].time_limit is None]:
            raise BadInput(f"{endless[0]}: has no time limit, so an evaluation might never end; register it with one")
        if discrete := [env for env in setup.env if shapes[env].action_kind == "discrete"]:
            raise BadInput(f"{discrete[0]}: has discrete actions, which SAC can't take; choose another environment")
        self.lanes = [Lane(env, seed, shapes[env]) for env, seed in itertools.product(setup.env, setup.seed)]
        self.obs_dim = max(lane.shape.obs_dim for lane in self.lanes)
        self.action_dim = max(lane.shape.action_dim for lane in self.lanes)
        self.key = np.stack([jax.random.key_data(jax.random.key(lane.seed)) for lane in self.lanes])
        self.real = np.array([np.arange(self.action_dim) < lane.shape.action_dim for lane in self.lanes], np.float32)
        self.base = np.repeat([lane.seed for lane in self.lanes], setup.environments)
        self.step = 0  # steps of every single environment; see `steps`
        self.episode = np.zeros(len(self.base), np.int64)
        self.curves: list[list[dict[str, Any]]] = [[] for _ in self.lanes]
        self.save_rate = ASSUMED_BYTES_PER_SECOND
        self.learner = self._load() if self.checkpoint.exists() else self._new()
        names = [lane.env for lane in self.lanes for _ in range(setup.environments)]
        numbers = list(range(setup.environments)) * len(self.lanes)
        self.workers = Workers(names, processes, numbers)

    @property
    def steps(self) -> int:
        """Steps that each lane has made, summed over its environments."""
        return self.step * self.setup.environments

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint.safetensors"

    # ------------------------------------------------------------------------------------------- rounds

    def round(self, steps: int) -> dict[str, Any]:
        """Begin new episodes in all environments and train until each lane has made `steps`. Returns speeds, waiting
        times and metrics."""
        setup = self.setup
        lanes = len(self.lanes)
        count = len(self.base) // lanes
        began = time.monotonic()
        waits = {"device": 0.0, "environments": 0.0}
        first = self.step
        updated = 0
        metrics = {}
        key = jnp.asarray(self.key)
        real = jnp.asarray(self.real)

        def update(fresh: np.ndarray, step: int) -> None:
            nonlocal updated, metrics
            updates = setup.updates if step * count >= setup.random_steps else 0
            self.learner, metrics = learn(
                self.learner, fresh, np.int32(step), key, real, setup.sac, updates, setup.batch_size, self.obs_dim
            )
            updated += updates

        obs = self.workers.reset(self.base, self.episode).copy()
        fresh: np.ndarray | None = None
        while self.steps < steps:
            actor = self.learner.sac.params["actor"]
            random = np.bool_(self.steps < setup.random_steps)
            sampled = explore(actor, obs.reshape(lanes, count, -1), np.int32(self.step), key, real, random)
            mark = time.monotonic()
            action = np.asarray(sampled).reshape(len(self.base), -1)
            waits["device"] += time.monotonic() - mark
            self.workers.send(action)
            if fresh is not None:
                update(fresh, self.step - 1)  # runs on the device while the environments step
            mark = time.monotonic()
            board = self.workers.receive()
            waits["environments"] += time.monotonic() - mark
            columns = (obs, board.next_obs, action, board.reward[:, None], board.terminal[:, None])
            fresh = np.concatenate(columns, axis=1, dtype=np.float32, casting="same_kind").reshape(lanes, count, -1)
            obs = board.obs.copy()
            self.step += 1
        if fresh is not None:
            update(fresh, self.step - 1)
        self.episode = self.workers.board.episode + 1
        jax.block_until_ready(self.learner)
        seconds = time.monotonic() - began
        made = (self.step - first) * count
        return {
            "step": self.steps,
            "seconds": seconds,
            "environment_steps_per_second": made * lanes / seconds,
            "steps_per_second_of_a_lane": made / seconds,
            "updates_per_second_of_a_lane": updated / seconds,
            "waiting": {name: waited / seconds for name, waited in waits.items()},
            "metrics": {lane.name: {n: float(m[i]) for n, m in metrics.items()} for i, lane in enumerate(self.lanes)},
        }

    def evaluate(self, confirm: bool = False) -> np.ndarray:
        """Returns [L, episodes] of the mean actions, in episodes that were never played before. `confirm` plays other
        episodes than the evaluation itself."""
        lanes = len(self.lanes)
        count = self.setup.environments
        actor = self.learner.sac.params["actor"]
        real = jnp.asarray(self.real)
        rounds = -(-self.setup.episodes // count)
        returns = np.zeros((rounds, len(self.base)))
        for number in range(rounds):
            obs = self.workers.reset(
                self.base + EVALUATION_SEEDS * (1 + confirm), len(self.curves[0]) * rounds + number
            )
            over = np.zeros(len(self.base), bool)
            while not over.all():
                action = exploit(actor, obs.reshape(lanes, count, -1).copy(), real)
                board = self.workers.step(np.asarray(action).reshape(len(self.base), -1))
                returns[number] += np.where(over, 0.0, board.reward)
                over |= board.terminal | board.timeout
                obs = board.obs
        returns = returns.reshape(rounds, lanes, count).swapaxes(0, 1).reshape(lanes, -1)
        return returns[:, : self.setup.episodes]

    def record(self, returns: np.ndarray) -> None:
        """Append a point to each lane's learning curve, and write a snapshot of its policy."""
        actors = jax.device_get(self.learner.sac.params["actor"])
        for index, (lane, curve, own_returns) in enumerate(zip(self.lanes, self.curves, returns, strict=True)):
            score = envs.normalised(lane.env, own_returns) if envs.lookup(lane.env).reference else None
            point = {
                "step": self.steps,
                "mean": float(own_returns.mean()),
                "std": float(own_returns.std()),
                "score": None if score is None else float(score.mean()),
                "returns": own_returns.tolist(),
            }
            curve.append(point)
            own = jax.tree.map(lambda leaf, i=index: leaf[i], actors)
            save_snapshot(self._snapshot(lane, self.steps), lane, own, point, self.setup.sac.hidden)
            write_text(self._folder(lane) / "curve.jsonl", "".join(json.dumps(point) + "\n" for point in curve))

    def keep_levels(self, until: str) -> list[str]:
        """Keep the policies of lanes that have reached a level. They must reach it again in new episodes, because the
        best of many noisy evaluations is biased upwards. OUT/ENV-LEVEL.safetensors is the policy of the first lane
        that reached `until`, with the lower levels of the same lane. Returns the environments that have one."""
        levels = list(LEVELS)[: list(LEVELS).index(until) + 1]
        scores = [curve[-1]["score"] for curve in self.curves]
        fresh = [
            (index, level)
            for index, level in itertools.product(range(len(self.lanes)), levels)
            if reaches(level, scores[index]) and not self._kept(self.lanes[index], level).exists()
        ]
        returns = self.evaluate(confirm=True) if fresh else []
        for index, level in fresh:
            lane = self.lanes[index]
            score = envs.normalised(lane.env, returns[index])
            if score is not None and reaches(level, score.mean()):
                _copy(self._snapshot(lane, self.steps), self._kept(lane, level))
                if level == until and not (self.out / f"{lane.env}-{until}.safetensors").exists():
                    for lower in (level for level in levels if self._kept(lane, level).exists()):
                        _copy(self._kept(lane, lower), self.out / f"{lane.env}-{lower}.safetensors")
        return [env for env in self.setup.env if (self.out / f"{env}-{until}.safetensors").exists()]

    # --------------------------------------------------------------------------------------------- files

    def save(self) -> None:
        """Write a checkpoint: everything that the rest of the run depends on."""
        began = time.monotonic()
        filled = min(self.steps, self.learner.replay.shape[1])
        tree = {"sac": self.learner.sac, "replay": self.learner.replay[:, :filled]}
        record = {"setup": self.setup.record(), "step": self.step, "episode": self.episode.tolist()}
        checkpoint.save(self.checkpoint, tree, record)
        size = self.checkpoint.stat().st_size
        if size > SMALL_CHECKPOINT_BYTES:
            self.save_rate = size / (time.monotonic() - began)

    def saving(self) -> float:
        """Upper estimate of the seconds that the next checkpoint takes."""
        size = 4 * np.prod(self.learner.replay.shape) * min(1.0, self.steps / self.learner.replay.shape[1])
        return 5.0 * (size > SMALL_CHECKPOINT_BYTES) + 1.3 * float(size) / self.save_rate

    def close(self) -> None:
        self.workers.close()

    def _new(self) -> Learner:
        width = (self.obs_dim, self.action_dim)
        each = [
            sac_.init(self.setup.sac, jax.random.key(lane.seed), lane.shape.obs_dim, lane.shape.action_dim, width)
            for lane in self.lanes
        ]
        rows = self.setup.capacity // self.setup.environments * self.setup.environments
        replay = jnp.zeros((len(self.lanes), rows, 2 * self.obs_dim + self.action_dim + 2), jnp.float32)
        return Learner(jax.tree.map(lambda *leaves: jnp.stack(leaves), *each), replay)

    def _load(self) -> Learner:
        record = checkpoint.read_record(self.checkpoint)
        if (old := record.get("setup")) != (new := self.setup.record()):
            changed = [name for name in new if not isinstance(old, dict) or old.get(name) != new[name]]
            raise BadInput(f"{self.checkpoint}: was made with another {', '.join(changed)}; choose another --out")
        self.step = record["step"]
        self.episode = np.array(record["episode"])
        learner = self._new()
        filled = min(self.steps, learner.replay.shape[1])
        like = {"sac": learner.sac, "replay": jax.eval_shape(lambda r: r[:, :filled], learner.replay)}
        saved = checkpoint.load(self.checkpoint, like)
        for index, lane in enumerate(self.lanes):  # a killed run may have got further than its checkpoint
            lines = (self._folder(lane) / "curve.jsonl").read_text().splitlines()
            self.curves[index] = [point for point in map(json.loads, lines) if point["step"] <= self.steps]
        return Learner(jax.tree.map(jnp.asarray, saved["sac"]), learner.replay.at[:, :filled].set(saved["replay"]))

    def _folder(self, lane: Lane) -> Path:
        return self.out / lane.name

    def _snapshot(self, lane: Lane, step: int) -> Path:
        return self._folder(lane) / f"{step:09d}.safetensors"

    def _kept(self, lane: Lane, level: str) -> Path:
        return self._folder(lane) / f"{level}.safetensors"


def reaches(level: str, score: float) -> bool:
    low, high = LEVELS[level]
    return low <= score <= high


def _copy(source: Path, target: Path) -> None:
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)
