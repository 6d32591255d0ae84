"""What is kept of a trained run: its result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from winnow import __version__, envs
from winnow.bench.plan import Planned, canonical
from winnow.bench.results import Result, thinned
from winnow.data.dataset import Dataset
from winnow.data.imbalance import imbalance
from winnow.data.scaling import Scaling
from winnow.packs.step import weigh
from winnow.packs.tables import read
from winnow.training.trained import Trained

SAMPLE = 4096
"""Rows that the shares of the sources are estimated from, about."""


def result_of(
    planned: Planned,
    one: Trained,
    lines: Sequence[dict[str, Any]],
    seconds: float,
    probability: np.ndarray,
    data: dict[str, Any],
) -> Result:
    """The result of a run, where `data` is what is known of its dataset."""
    played = {told.step for told in one.rounds if told.failed is None}
    unplayed = [step for step in planned.how.evaluation.steps(planned.how.steps) if step not in played]
    failure = one.failure
    if failure is None and unplayed:
        failure = f"its policy after {unplayed[0]} updates had parameters or returns that are not finite"
    hidden = ("run", "environment")
    return Result(
        id=planned.id,
        name=planned.name,
        method=planned.method,
        **json.loads(canonical({"swept": planned.swept, "config": planned.config})),
        dataset=data,
        made_with={
            "winnow": __version__,
            "jax": jax.__version__,
            "device": _device().device_kind,
            "precision": one.precision,
            "physics": envs.physics(planned.entry.environment),
        },
        steps=one.steps,
        failure=failure,
        rounds=[{name: value for name, value in told.line().items() if name not in hidden} for told in one.rounds],
        score=one.score,
        metrics=thinned(lines),
        shares={} if failure else shares(one, probability, planned.how.batch_size),
        seconds=round(seconds, 3),
        warnings=list(one.warnings),
        command=planned.command,
    )


def facts(data: Dataset) -> dict[str, Any]:
    """What a result says of the data: which it is, and how imbalanced."""
    found = {"rows": len(data), "episodes": len(data.episodes), "fingerprint": data.fingerprint}
    found |= {"rpsv_scaled": imbalance(data).rpsv_scaled} if data.has_episodes else {}
    return found | {"source_scores": source_scores(data)}


def source_scores(data: Dataset) -> dict[str, float]:
    """What the full episodes of each source earn on average, as normalised scores, where that can be known."""
    environment = data.meta.environment
    if not environment or not envs.lookup(environment).reference:
        return {}
    known = [one for one in (data.meta.recipe or {}).get("sources", ()) if "mean_return" in one]
    found = {str(one["label"]): one["mean_return"] for one in known}
    if not found and data.has_episodes and not data.meta.return_range:
        source = data.episodes.source
        found = {label: data.returns[source == i].mean() for i, label in enumerate(data.meta.sources) if i in source}
    return {label: float(envs.normalised(environment, value)) for label, value in found.items()}  # pyright: ignore


def _device() -> Any:
    return jax.config.jax_default_device or jax.local_devices()[0]  # pyright: ignore[reportAttributeAccessIssue]


def shares(one: Trained, probability: np.ndarray, batch_size: int) -> dict[str, float]:
    """The part of a batch's weight that falls on each source, in the mean over a few drawn batches.

    `RowWeights.share` says the same from the weights of all rows: too many for every run of a grid.
    """
    run, data = one.run, one.run.dataset
    rng = np.random.default_rng(run.seed)
    row = rng.choice(len(data), -(-SAMPLE // batch_size) * batch_size, p=probability)
    start = data.start_obs[rng.integers(len(data.episodes), size=len(row))]
    batch = read(data.rows(row), start, Scaling.of(data, run.weighter), row=row, step=one.steps, progress=1)
    score = weigh(run.weighter, one.weighter_state, batch).astype(np.float64).reshape(-1, batch_size)
    weight = np.exp(score - score.max(axis=1, keepdims=True))
    weight /= len(weight) * weight.sum(axis=1, keepdims=True)
    total = np.bincount(data.source[row], weight.ravel(), len(data.meta.sources))
    return {label: round(float(part), 6) for label, part in zip(data.meta.sources, total, strict=True)}
