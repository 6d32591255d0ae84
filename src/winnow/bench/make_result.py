"""The result of a trained run: what a grid keeps of it."""

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
"""Approximate number of rows from which the shares of the sources are estimated."""


def result_of(
    planned: Planned,
    trained: Trained,
    lines: Sequence[dict[str, Any]],
    seconds: float,
    probability: np.ndarray,
    data: dict[str, Any],
) -> Result:
    """The result of a run, where `data` is what is known of its dataset."""
    played = {finished.step for finished in trained.rounds if finished.failed is None}
    unplayed = [step for step in planned.how.evaluation.steps(planned.how.steps) if step not in played]
    failure = trained.failure
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
            "precision": trained.precision,
            "physics": envs.physics(planned.entry.environment),
        },
        steps=trained.steps,
        failure=failure,
        rounds=[
            {name: value for name, value in finished.line().items() if name not in hidden}
            for finished in trained.rounds
        ],
        score=trained.score,
        metrics=thinned(lines),
        shares={} if failure else shares(trained, probability, planned.how.batch_size),
        seconds=round(seconds, 3),
        warnings=list(trained.warnings),
        command=planned.command,
    )


def facts(data: Dataset) -> dict[str, Any]:
    """The dataset's part of a result: what identifies it, and how imbalanced it is."""
    record = {"rows": len(data), "episodes": len(data.episodes), "fingerprint": data.fingerprint}
    record |= {"rpsv_scaled": imbalance(data).rpsv_scaled} if data.has_episodes else {}
    return record | {"source_scores": source_scores(data)}


def source_scores(data: Dataset) -> dict[str, float]:
    """The mean normalised score of full episodes of each source, where that is known."""
    environment = data.meta.environment
    if not environment or not envs.lookup(environment).reference:
        return {}
    known = [source for source in (data.meta.recipe or {}).get("sources", ()) if "mean_return" in source]
    returns = {str(source["label"]): source["mean_return"] for source in known}
    if not returns and data.has_episodes and not data.meta.return_range:
        source = data.episodes.source
        returns = {label: data.returns[source == i].mean() for i, label in enumerate(data.meta.sources) if i in source}
    return {label: float(envs.normalised(environment, value)) for label, value in returns.items()}  # pyright: ignore


def _device() -> Any:
    return jax.config.jax_default_device or jax.local_devices()[0]  # pyright: ignore[reportAttributeAccessIssue]


def shares(trained: Trained, probability: np.ndarray, batch_size: int) -> dict[str, float]:
    """The fraction of a batch's weight that falls on each source, averaged over a few sampled batches.

    `RowWeights.share` computes it from the weights of all rows, which would take too long for every run of a grid.
    """
    run = trained.run
    data = run.dataset
    rng = np.random.default_rng(run.seed)
    row = rng.choice(len(data), -(-SAMPLE // batch_size) * batch_size, p=probability)
    start = data.start_obs[rng.integers(len(data.episodes), size=len(row))]
    batch = read(data.rows(row), start, Scaling.of(data, run.weighter), row=row, step=trained.steps, progress=1)
    score = weigh(run.weighter, trained.weighter_state, batch).astype(np.float64).reshape(-1, batch_size)
    weight = np.exp(score - score.max(axis=1, keepdims=True))
    weight /= len(weight) * weight.sum(axis=1, keepdims=True)
    total = np.bincount(data.source[row], weight.ravel(), len(data.meta.sources))
    return {label: round(float(part), 6) for label, part in zip(data.meta.sources, total, strict=True)}
