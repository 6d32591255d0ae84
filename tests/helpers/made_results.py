"""Results of made-up runs, written as `winnow bench run` writes them: with real plans and scores from a formula."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from winnow.bench import plan, suites
from winnow.bench.plan import Planned
from winnow.bench.results import Result
from winnow.data.names import level
from winnow.evaluation.settings import Evaluation
from winnow.plugins import record

GAIN = {"uniform": 0.0, "aw": 12.0, "pf": 4.0, "dw-aw": 20.0, "dw-uniform": 10.0, "dual-aw": 16.0}
SHORT = Evaluation(episodes=2, rounds=2, spacing=100, curve=3)

Score = Callable[[Planned], float]


def formula(run: Planned) -> float:
    """A score that depends on the run's name alone: a base for its dataset, the method's gain, and noise."""
    height = 15 + 50 * (zlib.crc32(run.entry.text.encode()) % 1000) / 1000
    return height + GAIN.get(run.method, 8.0) + noise(run, 4.0)


def noise(run: Planned, scale: float) -> float:
    return float(np.random.default_rng(zlib.crc32(run.name.encode())).normal(0, scale))


def planned(
    datasets: Sequence[str],
    algorithms: Sequence[str] = ("iql",),
    methods: Sequence[str] = ("uniform", "aw", "dw-aw"),
    seeds: int = 3,
    how: plan.How | None = None,
    sweeps: Sequence[str] = (),
) -> list[Planned]:
    how = how or plan.How(steps=1_000, chunk=200, evaluation=SHORT)
    return plan.grid(suites.entries(datasets), algorithms, methods, seeds, how, sweeps)


def result(run: Planned, scored: Score = formula, **changes: Any) -> Result:
    """A finished run that improved steadily and gave the good source more than its share of the weight."""
    last = scored(run)
    rng = np.random.default_rng(zlib.crc32(run.name.encode()))
    how = run.how
    rounds = []
    for step, number in how.evaluation.steps(how.steps).items():
        height = last if number else last * step / how.steps
        returns = [round(float(value), 4) for value in rng.normal(30 * height, 30, how.evaluation.episodes)]
        rounds.append(
            {"step": step, "round": number, "returns": returns, "lengths": [1000] * len(returns), "score": height}
        )
    points = np.linspace(how.steps / 20, how.steps, 20)
    weighs = record(run.weighter)["name"] != "none"
    names = ("weight/ess", "weight/kl", "weight/max", "weight/reward", "weight/flow", "q", "v", "loss/q", "loss/v")
    metrics = {name: [float(value) for value in rng.random(20)] for name in names}
    metrics["weight/ess"] = [float(value) for value in 1 - 0.5 * weighs * points / how.steps]
    metrics["step"] = [int(point) for point in points]
    labels = [level(source) for source in run.entry.name.sources]
    share = min(1.0, (run.entry.share or 0) / 100 * (4 if weighs else 1))
    made = Result(
        id=run.id,
        name=run.name,
        method=run.method,
        swept=dict(run.swept),
        config=run.config,
        dataset={"rows": 1_000_000, "episodes": 5_000, "fingerprint": "0" * 32},
        made_with={"winnow": "0.1.0", "jax": "0.10.0", "device": "cpu", "physics": "mujoco 3.3, gymnasium 1.2"},
        steps=how.steps,
        failure=None,
        rounds=rounds,
        score=last,
        metrics=metrics,
        shares=dict(zip(labels, (round(1 - share, 6), round(share, 6)), strict=True)) if labels else {"all": 1.0},
        seconds=1.5,
    )
    return dataclasses.replace(made, **changes)


def failed(run: Planned, why: str = "the loss is not finite") -> Result:
    return result(run, steps=400, failure=why, rounds=[], score=None, metrics={}, shares={})


def write(folder: Path, runs: Iterable[Planned], scored: Score = formula) -> Path:
    for run in runs:
        result(run, scored).save(folder)
    return folder
