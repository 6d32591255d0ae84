"""What a method gains over uniform on each dataset, and how imbalanced that dataset is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from winnow.bench.plan import identity
from winnow.data.catalogue import mixture, on_disk, open_named
from winnow.data.dataset import Dataset
from winnow.data.imbalance import imbalance as measure
from winnow.data.names import parse
from winnow.errors import BadInput
from winnow.report.runs import Run
from winnow.report.statistics import BASE, Row

MIN_DATASETS = 5
"""With fewer datasets a rank correlation is meaningless."""


class Gain(NamedTuple):
    """A method on a dataset."""

    dataset: str
    algorithm: str
    label: str
    rpsv: float
    gain: float
    """Mean score minus that of uniform."""


def gains(rows: Sequence[Row], imbalance: dict[str, float]) -> list[Gain]:
    """The gains on all datasets whose imbalance is known."""
    return [
        Gain(row.dataset, row.algorithm, label, imbalance[row.dataset], cell.mean - base)
        for row in rows
        if row.dataset in imbalance and BASE in row.cells and (base := row.cells[BASE].mean) is not None
        for label, cell in row.cells.items()
        if label != BASE and cell.mean is not None
    ]


def agreement(points: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's rank correlation of imbalance and gain; None with too few datasets or no spread."""
    from scipy.stats import spearmanr

    rpsv = [x for x, _ in points]
    gain = [y for _, y in points]
    if len(points) < MIN_DATASETS or len(set(rpsv)) < 2 or len(set(gain)) < 2:
        return None
    correlation: Any = spearmanr(rpsv, gain)
    return float(correlation.statistic)


def imbalance(runs: Sequence[Run]) -> dict[str, float]:
    """RPSV of each dataset's returns, scaled to [0, 1] by the least and the greatest: as recorded in its result,
    otherwise measured on the same pools if this machine has them."""
    known: dict[str, float] = {}
    for dataset, run in {run.dataset: run for run in runs}.items():
        recorded = run.facts.get("rpsv_scaled")
        value = float(recorded) if isinstance(recorded, (int, float)) else _measured(run)
        if value is not None and np.isfinite(value):
            known[dataset] = value
    _pool.cache_clear()
    return known


def _measured(run: Run) -> float | None:
    if run.data != "regenerated" or on_disk(parse(run.dataset)) != "ready":
        return None
    if json.loads(json.dumps(identity(run.dataset))) != run.config["dataset"]:
        return None  # other policies or physics than it was trained on
    try:
        data = _open(run.dataset)
    except BadInput:
        return None
    return measure(data).rpsv_scaled


def _open(text: str) -> Dataset:
    name = parse(text)
    return mixture(name, {source: _pool(source) for source in name.sources}) if name.sources else _pool(text)


@lru_cache(maxsize=3)  # those of one environment
def _pool(text: str) -> Dataset:
    return open_named(text)
