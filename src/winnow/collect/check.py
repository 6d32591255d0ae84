"""The acceptance test of a behaviour policy: can methods be compared on its data?

A score does not tell. A policy may earn much and still be too fragile to clone, because a small error in an action ends
its episode. On data of such a policy every method fails, and a comparison of methods measures nothing.

    score       normalised return of sampled actions, in the range of the level
    collapses   share of episodes that earn less than half of the mean
    clone       what behaviour cloning of 200,000 rows earns, as a part of the policy's own return
    noise       part of the return that is kept when Gaussian noise is added to the mean action; reported only
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from winnow import envs
from winnow.algorithms.bc import BC
from winnow.collect.snapshots import load_snapshot
from winnow.data import pools
from winnow.data.dataset import Dataset
from winnow.data.names import LEVELS
from winnow.envs.play import Act, play
from winnow.errors import BadInput
from winnow.evaluation.play import evaluate
from winnow.nets import squashed_mean
from winnow.system.progress import Progress
from winnow.training import train
from winnow.training.hooks import Hooks

SCORES = {"medium": (30.0, 50.0), "expert": (90.0, 112.0)}
"""Normalised score of sampled actions that a policy of a level must have: what D4RL's policies of that name have."""
COLLAPSE = 0.5
"""An episode that earns less than this part of the mean return has collapsed."""
MAX_COLLAPSES = 0.05
"""Share of episodes of an expert that may collapse."""
MIN_CLONE = 0.95
"""Part of the policy's return that its clones must earn."""
NOISE = (0.1, 0.2, 0.3)
"""Standard deviations of the noise, of actions in [−1, 1]."""


@dataclass(frozen=True)
class Settings:
    """How much is played and trained. The defaults are the test; less of either is a trial."""

    rows: int = 200_000
    """Rows that the policy plays, and its clones are trained on."""
    updates: int = 20_000
    """Updates of each clone."""
    seeds: int = 3
    """Clones, with seeds 0, 1, …"""
    episodes: int = 20
    """Episodes of each clone, and of the policy with each amount of noise."""

    def check(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) < 1:
                raise BadInput(f"{field.name} must be at least 1, got {getattr(self, field.name)}")


@dataclass(frozen=True)
class Criterion:
    """One condition of the test."""

    name: str
    value: float
    wanted: str
    passed: bool


@dataclass(frozen=True)
class Report:
    """What the test saw. Returns are raw, one number an episode."""

    policy: str
    environment: str
    level: str
    physics: str
    settings: Settings
    sampled: list[float]
    """Returns of all episodes of the rows that were played, with sampled actions."""
    mean_action: list[float]
    """Returns of the mean action."""
    noise: dict[str, list[float]]
    """Returns of the mean action with noise, by its standard deviation."""
    clones: list[list[float]]
    """Returns of each clone's mean action."""

    @property
    def score(self) -> float:
        return float(np.mean(envs.normalised(self.environment, np.array(self.sampled))))  # pyright: ignore

    @property
    def collapses(self) -> float:
        """Share of episodes with sampled actions that earn less than half of the mean."""
        return float(np.mean(np.array(self.sampled) < COLLAPSE * np.mean(self.sampled)))

    @property
    def kept_by_clones(self) -> float:
        """What the clones earn, as a part of what the policy earns. Both play their mean action."""
        return self._part(np.mean(self.clones))

    @property
    def kept_under_noise(self) -> dict[str, float]:
        return {amount: self._part(np.mean(returns)) for amount, returns in self.noise.items()}

    @property
    def criteria(self) -> list[Criterion]:
        low, high = SCORES[self.level]
        collapses = Criterion(
            "collapses", self.collapses, f"at most {MAX_COLLAPSES:g}", self.collapses <= MAX_COLLAPSES
        )
        return [
            Criterion("score", self.score, f"{low:g} to {high:g}", low <= self.score <= high),
            *([collapses] if self.level == "expert" else []),
            Criterion("clone", self.kept_by_clones, f"at least {MIN_CLONE:g}", self.kept_by_clones >= MIN_CLONE),
        ]

    @property
    def passed(self) -> bool:
        return all(criterion.passed for criterion in self.criteria)

    def _part(self, mean: Any) -> float:
        return float(mean / np.mean(self.mean_action))

    def record(self) -> dict[str, Any]:
        """Everything as JSON: raw returns, and the numbers made of them."""
        made = {"score": self.score, "collapses": self.collapses, "clone": self.kept_by_clones}
        summary = made | {"noise": self.kept_under_noise, "passed": self.passed}
        return json.loads(json.dumps(dataclasses.asdict(self) | {"summary": summary}))


Step = Callable[[str, int, int], None]
"""Called with what is being done, and how much of how much is done."""


def check(
    policy: str | Path,
    settings: Settings | None = None,
    *,
    level: str | None = None,
    processes: int | None = None,
    step: Step | None = None,
) -> Report:
    """Play a policy, clone it, disturb it.

    policy: a snapshot that `winnow collect train` wrote, or a shipped policy by name: hopper-expert
    level: medium or expert; without it, what the name says
    """
    settings = settings or Settings()
    settings.check()
    tell = step or (lambda title, done, total: None)
    file, level = locate(policy, level)
    actor, record = load_snapshot(file)
    environment = record["env"]
    if envs.lookup(environment).reference is None:
        raise BadInput(f"{file}: {environment} must have reference returns to be given a level; register it with them")
    job = pools.Job(environment, level, file)
    rows = _played(job, settings.rows, processes, partial(tell, "playing the policy"))
    tell("playing with noise", 0, 1)
    undisturbed, *disturbed = _disturbed(actor, environment, settings.episodes, processes)
    clones = _cloned(rows, settings, processes, tell)
    return Report(
        policy=str(policy),
        environment=environment,
        level=level,
        physics=envs.physics(environment),
        settings=settings,
        sampled=rows.returns.tolist(),
        mean_action=undisturbed,
        noise={f"{amount:g}": returns for amount, returns in zip(NOISE, disturbed, strict=True)},
        clones=clones,
    )


def locate(policy: str | Path, level: str | None = None) -> tuple[Path, str]:
    """The policy's file, and the level that it is to have."""
    file = Path(policy)
    environment, _, last = file.stem.rpartition("-")
    if not file.exists():
        if last not in LEVELS or file.suffix:
            raise BadInput(f"{policy}: must be a file that `winnow collect train` wrote, or a name like hopper-expert")
        file = pools.policy_file(environment, last)
    level = level or (last if last in SCORES else None)
    if level is None:
        raise BadInput(f"{policy}: the name must say medium or expert; give --level medium or --level expert")
    if level not in SCORES:
        raise BadInput(f"level must be one of {', '.join(SCORES)}, got {level!r}")
    return file, level


def _played(job: pools.Job, rows: int, processes: int | None, tell: Callable[[int, int], None]) -> Dataset:
    """Episodes of the policy with sampled actions. An interrupted call leaves what it has played to the next one."""
    episodes = pools.play(job, rows, processes, tell)
    shutil.rmtree(job.parts, ignore_errors=True)
    return pools.as_dataset(job, episodes)


def _disturbed(actor: Any, environment: str, episodes: int, processes: int | None) -> list[list[float]]:
    """Returns of the mean action, without noise and with each amount of it, on the same episodes."""
    amounts = np.array([0.0, *NOISE])[:, None, None]
    shape = envs.shape(environment)
    centre = (shape.low + shape.high) / 2
    half = (shape.high - shape.low) / 2
    mean = jax.jit(partial(squashed_mean, actor))
    noise = np.random.default_rng(0)

    def act(obs: np.ndarray, runs: slice) -> np.ndarray:
        unit = np.asarray(mean(obs))
        unit = np.clip(unit + amounts[runs] * noise.standard_normal(unit.shape), -1, 1)
        return centre + half * unit

    action: Act = act
    return play(environment, action, [0] * len(amounts), episodes, processes=processes).returns.tolist()


def _cloned(rows: Dataset, settings: Settings, processes: int | None, tell: Step) -> list[list[float]]:
    """Returns of clones of the policy: BC on standardised observations."""
    hooks = _Told(partial(tell, "training its clones"), settings.seeds * settings.updates)
    clones = train(rows, BC(standardise=True), "uniform", seeds=settings.seeds, steps=settings.updates, hooks=hooks)
    tick = partial(tell, "playing its clones")
    rounds = evaluate(clones, settings.episodes, processes=processes, progress=tick)
    return [list(map(float, each.returns)) for each in rounds]


class _Told(Hooks):
    """Tells the caller of the test how far training is, in place of a bar of its own."""

    def __init__(self, tell: Callable[[int, int], None], total: int) -> None:
        super().__init__(Progress(total, shown=False))
        self.tell = tell
        self.total = total
        self.done = 0

    def on_steps(self, run_steps: int) -> None:
        self.done += run_steps
        self.tell(self.done, self.total)
