"""Behaviour policies trained by winnow itself: online soft actor-critic, many environments at a time.

A *lane* is an environment and a seed. All lanes learn in one compiled program, from replays that live on the device,
and what they learn next runs there while the environments take their step in worker processes. The host waits for the
device once a step: for the actions.

Training goes in rounds that end with an evaluation. A round begins with new episodes in all environments, so a run that
stopped after a round and goes on is, step for step, the run that never stopped. (Bit for bit where the device adds up
in the same order each time: a CPU does.)

    python -m winnow.collect --env hopper ant --steps 1000000 --out runs/policies --seconds 560
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from winnow import checkpoint, envs
from winnow.algorithms import sac as sac_
from winnow.algorithms.sac import SAC, SACState, Transitions
from winnow.envs import EVALUATION
from winnow.errors import BadInput
from winnow.files import replacing, write_text
from winnow.nets import squashed_sample
from winnow.rollouts import policy_file
from winnow.types import Array, Metrics, check_settings
from winnow.workers import Workers

LEVELS = {"medium": (35.0, 60.0), "expert": (90.0, math.inf)}
"""Normalised scores that make a policy one of these."""
SAVE_RATE = 100e6
"""Bytes a second that a checkpoint is taken to be written with until one was timed."""


class Lane(NamedTuple):
    env: str
    seed: int
    shape: envs.Shape

    @property
    def name(self) -> str:
        return f"{self.env}-{self.seed}"


@dataclass(frozen=True)
class Setup:
    """What decides the result of a run, less its length."""

    env: tuple[str, ...]
    seed: tuple[int, ...]
    environments: int = 16
    """Environments a lane."""
    updates: int = 16
    """Updates for each step of all of a lane's environments."""
    random_steps: int = 10_000
    """Steps with random actions, before the first update."""
    evaluate_every: int = 50_000
    """Steps in a round."""
    episodes: int = 16
    """Episodes of an evaluation."""
    capacity: int = 1_000_000
    """Transitions that a replay holds; then the oldest are overwritten."""
    batch_size: int = 256
    sac: SAC = SAC()

    def check(self) -> None:
        check_settings(self.sac, "sac")
        for name in ("environments", "evaluate_every", "episodes", "batch_size"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}; it must be at least 1")
        if min(self.updates, self.random_steps) < 0 or min(self.seed, default=0) < 0:
            raise BadInput("updates, random_steps and seeds must not be negative")
        if not self.env or not self.seed:
            raise BadInput("there is nothing to train: give an environment and a seed")
        if self.capacity < self.environments:
            raise BadInput(f"capacity is {self.capacity}; it must hold a step of all {self.environments} environments")

    def record(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))


# ------------------------------------------------------------------------------------------------- programs


class Learner(NamedTuple):
    """What is on the device, for all lanes."""

    sac: SACState
    replay: Array  # [L, C, 2 O + A + 2] observation, following one, action, reward and terminal side by side


def unpack(rows: Array, obs_dim: int) -> Transitions:
    """Rows of a replay as a batch."""
    obs, next_obs, rest = rows[..., :obs_dim], rows[..., obs_dim : 2 * obs_dim], rows[..., 2 * obs_dim :]
    return Transitions(obs, rest[..., :-2], rest[..., -2], next_obs, rest[..., -1])


@partial(jax.jit, static_argnames=("updates", "batch_size", "obs_dim"), donate_argnames=("learner",))
def learn(
    learner: Learner,
    fresh: Array,
    step: Array,
    key: Array,
    real: Array,
    sac: SAC,
    updates: int,
    batch_size: int,
    obs_dim: int,
) -> tuple[Learner, Metrics]:
    """Write the transitions [L, E, …] of a step to the replays, then update every lane on what they hold."""
    _, count, _ = fresh.shape
    places = learner.replay.shape[1] // count
    replay = jax.lax.dynamic_update_slice(learner.replay, fresh, (0, step % places * count, 0))
    held = (jnp.minimum(step + 1, places) * count).astype(jnp.uint32)

    def one(state: SACState, rows: Array, lane_key: Array, exists: Array, number: Array) -> tuple[SACState, Metrics]:
        k_draw, k_update = jax.random.split(
            jax.random.fold_in(jax.random.fold_in(jax.random.wrap_key_data(lane_key), step), number)
        )
        row = (jax.random.bits(k_draw, (batch_size,), jnp.uint32) % held).astype(jnp.int32)
        return sac_.update(sac, state, unpack(rows[row], obs_dim), k_update, exists)

    def all_lanes(state: SACState, number: Array) -> tuple[SACState, Metrics]:
        return jax.vmap(one, in_axes=(0, 0, 0, 0, None))(state, replay, key, real, number)

    state, metrics = jax.lax.scan(all_lanes, learner.sac, jnp.arange(updates))
    return Learner(state, replay), jax.tree.map(lambda m: m.mean(axis=0), metrics)


@jax.jit
def explore(actor: Any, obs: Array, step: Array, key: Array, real: Array, random: Array) -> Array:
    """Actions [L, E, A]: drawn from the policies, or uniformly where `random`."""

    def one(actor: Any, obs: Array, lane_key: Array, exists: Array) -> Array:
        k_act = jax.random.fold_in(
            jax.random.fold_in(jax.random.wrap_key_data(lane_key), step), 0x5EED
        )  # no update has this number
        k_policy, k_uniform = jax.random.split(k_act)
        drawn, _ = squashed_sample(actor, obs, k_policy, real=exists)
        return jnp.where(random, exists * jax.random.uniform(k_uniform, drawn.shape, minval=-1.0, maxval=1.0), drawn)

    return jax.vmap(one)(actor, obs, key, real)


@jax.jit
def exploit(actor: Any, obs: Array, real: Array) -> Array:
    """The policies' mean actions [L, E, A]."""
    return jax.vmap(sac_.mean)(actor, obs, real)


# ------------------------------------------------------------------------------------------------- training


class Trainer:
    """Lanes in training: the learner on the device, the environments in their workers, and the curves so far."""

    def __init__(self, setup: Setup, out: Path, processes: int | None = None) -> None:
        setup.check()
        self.setup, self.out = setup, out
        shapes = {env: envs.shape(env) for env in setup.env}
        if endless := [env for env in setup.env if shapes[env].time_limit is None]:
            raise BadInput(f"{endless[0]}: has no time limit, so an evaluation might never end; register it with one")
        self.lanes = [Lane(env, seed, shapes[env]) for env, seed in itertools.product(setup.env, setup.seed)]
        self.obs_dim = max(lane.shape.obs_dim for lane in self.lanes)
        self.action_dim = max(lane.shape.action_dim for lane in self.lanes)
        self.key = np.stack([jax.random.key_data(jax.random.key(lane.seed)) for lane in self.lanes])
        self.real = np.array([np.arange(self.action_dim) < lane.shape.action_dim for lane in self.lanes], np.float32)
        self.base = np.repeat([lane.seed for lane in self.lanes], setup.environments)
        self.step = 0  # steps of all environments: a lane has made this many times `environments`
        self.episode = np.zeros(len(self.base), np.int64)
        self.curves: list[list[dict[str, Any]]] = [[] for _ in self.lanes]
        self.save_rate = SAVE_RATE
        self.learner = self._load() if self.checkpoint.exists() else self._new()
        names = [lane.env for lane in self.lanes for _ in range(setup.environments)]
        numbers = list(range(setup.environments)) * len(self.lanes)
        self.workers = Workers(names, processes, numbers)

    @property
    def steps(self) -> int:
        """Steps a lane has made."""
        return self.step * self.setup.environments

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint.safetensors"

    # ------------------------------------------------------------------------------------------- rounds

    def round(self, steps: int) -> dict[str, Any]:
        """New episodes in all environments, and training until a lane has made `steps`. What took how long."""
        setup, lanes = self.setup, len(self.lanes)
        count = len(self.base) // lanes
        began, waits, first = time.monotonic(), {"device": 0.0, "environments": 0.0}, self.step
        updated, metrics = 0, {}
        key, real = jnp.asarray(self.key), jnp.asarray(self.real)

        def study(fresh: np.ndarray, step: int) -> None:
            nonlocal updated, metrics
            updates = setup.updates if step * count >= setup.random_steps else 0
            self.learner, metrics = learn(
                self.learner, fresh, np.int32(step), key, real, setup.sac, updates, setup.batch_size, self.obs_dim
            )
            updated += updates

        obs = self.workers.reset(self.base, self.episode).copy()
        fresh: np.ndarray | None = None
        while self.steps < steps:
            actor, random = self.learner.sac.params["actor"], np.bool_(self.steps < setup.random_steps)
            drawn = explore(actor, obs.reshape(lanes, count, -1), np.int32(self.step), key, real, random)
            mark = time.monotonic()
            action = np.asarray(drawn).reshape(len(self.base), -1)
            waits["device"] += time.monotonic() - mark
            self.workers.send(action)
            if fresh is not None:
                study(fresh, self.step - 1)  # runs on the device while the environments step
            mark = time.monotonic()
            board = self.workers.receive()
            waits["environments"] += time.monotonic() - mark
            columns = (obs, board.next_obs, action, board.reward[:, None], board.terminal[:, None])
            fresh = np.concatenate(columns, axis=1, dtype=np.float32, casting="same_kind").reshape(lanes, count, -1)
            obs = board.obs.copy()
            self.step += 1
        if fresh is not None:
            study(fresh, self.step - 1)
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
        """Returns [L, episodes] of the mean action, in episodes that were never played before; to `confirm`, in other
        ones."""
        lanes, count = len(self.lanes), self.setup.environments
        actor, real = self.learner.sac.params["actor"], jnp.asarray(self.real)
        rounds = -(-self.setup.episodes // count)
        returns = np.zeros((rounds, len(self.base)))
        for number in range(rounds):
            obs = self.workers.reset(self.base + EVALUATION * (1 + confirm), len(self.curves[0]) * rounds + number)
            over = np.zeros(len(self.base), bool)
            while not over.all():
                action = exploit(actor, obs.reshape(lanes, count, -1).copy(), real)
                board = self.workers.step(np.asarray(action).reshape(len(self.base), -1))
                returns[number] += np.where(over, 0.0, board.reward)
                over |= board.terminal | board.timeout
                obs = board.obs
        returns = returns.reshape(rounds, lanes, count).swapaxes(0, 1).reshape(lanes, -1)
        return returns[:, : self.setup.episodes]

    def note(self, returns: np.ndarray) -> None:
        """A line of each lane's curve, and a snapshot of its policy."""
        actors = jax.device_get(self.learner.sac.params["actor"])
        for index, (lane, curve, got) in enumerate(zip(self.lanes, self.curves, returns, strict=True)):
            point = {
                "step": self.steps,
                "mean": float(got.mean()),
                "std": float(got.std()),
                "score": None,
                "returns": got.tolist(),
            }
            if (score := envs.normalised(lane.env, got) if envs.lookup(lane.env).reference else None) is not None:
                point["score"] = float(score.mean())
            curve.append(point)
            own = jax.tree.map(lambda leaf, i=index: leaf[i], actors)
            save_snapshot(self._snapshot(lane, self.steps), lane, own, point, self.setup)
            write_text(self._folder(lane) / "curve.jsonl", "".join(json.dumps(p) + "\n" for p in curve))

    def settle(self, until: str) -> list[str]:
        """Keep the policies of lanes that have reached a level, if they do so in new episodes too: the best of many
        noisy evaluations reads high. OUT/ENV-LEVEL.safetensors is then the first lane's that got to `until`, with the
        lower levels of the same run. The environments that have one."""
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
                    for lower in (one for one in levels if self._kept(lane, one).exists()):
                        _copy(self._kept(lane, lower), self.out / f"{lane.env}-{lower}.safetensors")
        return [env for env in self.setup.env if (self.out / f"{env}-{until}.safetensors").exists()]

    # --------------------------------------------------------------------------------------------- files

    def save(self) -> None:
        """Everything that the rest of the run depends on."""
        began = time.monotonic()
        filled = min(self.steps, self.learner.replay.shape[1])
        tree = {"sac": self.learner.sac, "replay": self.learner.replay[:, :filled]}
        record = {"setup": self.setup.record(), "step": self.step, "episode": self.episode.tolist()}
        checkpoint.save(self.checkpoint, tree, record)
        size = self.checkpoint.stat().st_size
        if size > 50e6:
            self.save_rate = size / (time.monotonic() - began)

    def saving(self) -> float:
        """Seconds that a checkpoint may take."""
        size = 4 * np.prod(self.learner.replay.shape) * min(1.0, self.steps / self.learner.replay.shape[1])
        return 5.0 * (size > 50e6) + 1.3 * float(size) / self.save_rate

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
            other = [name for name in new if not isinstance(old, dict) or old.get(name) != new[name]]
            raise BadInput(f"{self.checkpoint}: was made with another {', '.join(other)}; choose another --out")
        self.step, self.episode = record["step"], np.array(record["episode"])
        learner = self._new()
        filled = min(self.steps, learner.replay.shape[1])
        like = {"sac": learner.sac, "replay": jax.eval_shape(lambda r: r[:, :filled], learner.replay)}
        saved = checkpoint.load(self.checkpoint, like)
        for index, lane in enumerate(self.lanes):  # a run that was killed may have got further than its checkpoint
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


def save_snapshot(path: Path, lane: Lane, actor: Any, point: dict[str, Any], setup: Setup) -> None:
    """A policy alone, with what it is for and what it was worth."""
    entry = envs.lookup(lane.env)
    record = {
        "env": lane.env,
        "source": entry.source
        if isinstance(entry.source, str)
        else f"{entry.source.__module__}.{entry.source.__name__}",
        "options": entry.options,
        "physics": envs.physics(lane.env),
        "seed": lane.seed,
        "spec": [lane.shape.obs_dim, lane.shape.action_dim],
        "hidden": list(setup.sac.hidden),
        "action_low": lane.shape.low.tolist(),
        "action_high": lane.shape.high.tolist(),
        **point,
    }
    checkpoint.save(path, {"actor": sac_.trimmed(actor, lane.shape.obs_dim, lane.shape.action_dim)}, record)


def load_snapshot(path: str | Path) -> tuple[Any, dict[str, Any]]:
    """The actor's parameters of a snapshot (see `nets.squashed_mean` and `squashed_sample`), and its record."""
    record = checkpoint.read_record(path)
    try:
        sac, spec = SAC(hidden=tuple(record["hidden"])), record["spec"]
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path}: is no policy that `winnow collect` wrote ({error})") from error
    like = jax.eval_shape(lambda: sac_.init(sac, jax.random.key(0), *spec).params["actor"])
    return checkpoint.load(path, {"actor": like})["actor"], record


def behaviour(env: str, level: str) -> tuple[Any, dict[str, Any]]:
    """A behaviour policy that comes with winnow: `medium` or `expert` of one of the four locomotion environments."""
    return load_snapshot(policy_file(env, level))


def train(
    env: str | Sequence[str],
    steps: int,
    seed: int | Sequence[int] = 0,
    out: str | Path = "runs/collect",
    *,
    until: str | None = None,
    seconds: float | None = None,
    save_every: float = 240.0,
    processes: int | None = None,
    verbose: bool = False,
    **settings: Any,
) -> dict[str, list[dict[str, Any]]]:
    """Train every environment with every seed to `steps`, or until `seconds` are nearly over; called again, go on.

    `until` (medium or expert) stops when every environment has such a policy, and leaves it as ENV-LEVEL.safetensors;
    an expert with the medium policy that its run passed through, if an evaluation saw one.

    Under `out`: a folder for each lane with its curve (curve.jsonl) and a snapshot of the policy for each evaluation,
    log.jsonl with the rates, and the checkpoint, written at the end and about every `save_every` seconds. `settings`
    are those of `Setup`. The curves: for each lane a list of step, mean, std, score and raw returns.
    """
    began = time.monotonic()
    out = Path(out)
    known = {field.name for field in dataclasses.fields(Setup)}
    if wrong := sorted(set(settings) - known):
        raise BadInput(f"there is no setting {wrong[0]!r}; there are {', '.join(sorted(known))}")
    settings.setdefault("updates", settings.get("environments", Setup.environments))
    if until is not None:
        if until not in LEVELS:
            raise BadInput(f"there is no level {until!r}; choose from {', '.join(LEVELS)}")
        for name in (env,) if isinstance(env, str) else env:
            if envs.lookup(name).reference is None:
                raise BadInput(f"{name}: has no reference returns, so no policy of it is {until}; give --steps alone")
    lanes = ((env,) if isinstance(env, str) else tuple(env), (seed,) if isinstance(seed, int) else tuple(seed))
    trainer = Trainer(Setup(*lanes, **settings), out, processes)

    def say(text: str) -> None:
        if verbose:
            print(f"[{time.monotonic() - began:6.1f} s] {text}", flush=True)

    try:
        say(f"{', '.join(lane.name for lane in trainer.lanes)} from step {trainer.steps:,} on {jax.devices()[0]}")
        saved, unsaved, took = began, False, 0.0
        every = trainer.setup.evaluate_every
        while trainer.steps < steps:
            mark = time.monotonic()
            if seconds is not None and mark - began + 1.2 * took + trainer.saving() > seconds:
                say("the time is nearly over")
                break
            if unsaved and mark - saved > save_every:
                trainer.save()
                saved, unsaved, mark = time.monotonic(), False, time.monotonic()
            log = trainer.round(min(steps, (trainer.steps // every + 1) * every))
            evaluation = time.monotonic()
            trainer.note(trainer.evaluate())
            unsaved, took = True, time.monotonic() - mark
            log["evaluation_seconds"] = time.monotonic() - evaluation
            with (out / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(log) + "\n")
            say(_line(log, trainer))
            if until and (there := trainer.settle(until)):
                say(f"{until}: {', '.join(there)}")
                if len(there) == len(trainer.setup.env):
                    break
        if unsaved:
            trainer.save()
            say(f"saved at step {trainer.steps:,}: {trainer.checkpoint}")
        if (out / "log.jsonl").exists():
            say(peak(out))
    finally:
        trainer.close()
    return {lane.name: curve for lane, curve in zip(trainer.lanes, trainer.curves, strict=True)}


def peak(out: Path) -> str:
    """The greatest rates that a run's log tells of."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    names = ("environment_steps_per_second", "steps_per_second_of_a_lane", "updates_per_second_of_a_lane")
    return "peak: " + ", ".join(f"{max(line[n] for line in lines):,.0f} {n.replace('_', ' ')}" for n in names)


def _line(log: dict[str, Any], trainer: Trainer) -> str:
    last = [(lane.name, curve[-1]) for lane, curve in zip(trainer.lanes, trainer.curves, strict=True)]
    each = ", ".join(f"{n} {p['mean']:.0f}" + ("" if p["score"] is None else f" ({p['score']:.1f})") for n, p in last)
    rates = (
        f"{log['steps_per_second_of_a_lane']:,.0f} steps/s, {log['updates_per_second_of_a_lane']:,.0f} updates/s a lane"
    )
    waits = ", ".join(f"{name} {share:.0%}" for name, share in log["waiting"].items())
    return f"step {log['step']:,}: {each}; {rates}; waits for {waits}; evaluation {log['evaluation_seconds']:.1f} s"


def main(argv: Sequence[str] | None = None, prog: str = "python -m winnow.collect") -> None:
    parser = argparse.ArgumentParser(prog, description="Train behaviour policies with soft actor-critic.")
    parser.add_argument("--env", nargs="+", required=True, help=f"one or more of {', '.join(envs.TABLE)}")
    parser.add_argument("--seed", nargs="+", type=int, default=[0], help="every environment with each of these seeds")
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps for each environment and seed")
    parser.add_argument("--until", choices=list(LEVELS), help="stop when every environment has such a policy")
    parser.add_argument("--out", type=Path, required=True, help="the run's folder; called again, the run goes on")
    parser.add_argument("--seconds", type=float, help="stop cleanly before this many seconds are over")
    parser.add_argument("--save-every", type=float, default=240.0, help="seconds between checkpoints")
    parser.add_argument("--processes", type=int, help="worker processes for all environments; default: one a core")
    for field in dataclasses.fields(Setup):
        if field.type == "int":
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=int, help=f"default {field.default}")
    words = {name: value for name, value in vars(parser.parse_args(argv)).items() if value is not None}
    train(words.pop("env"), words.pop("steps"), words.pop("seed"), words.pop("out"), verbose=True, **words)


if __name__ == "__main__":
    try:
        main()
    except BadInput as error:
        print(f"winnow.collect: {error}", file=sys.stderr)
        sys.exit(2)
