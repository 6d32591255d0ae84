"""What a method gains over uniform on each dataset, and how imbalanced that dataset is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from winnow.bench.plan import identity
from winnow.data.catalogue import on_disk, open_named
from winnow.data.dataset import Dataset
from winnow.data.names import level, parse
from winnow.data.recipes import build
from winnow.errors import BadInput
from winnow.report.numbers import BASE, Row
from winnow.report.runs import Run


class Gain(NamedTuple):
    """A method on a dataset."""

    dataset: str
    algorithm: str
    label: str
    rpsv: float
    gain: float
    """Mean score minus that of uniform."""


def gains(rows: Sequence[Row], imbalance: dict[str, float]) -> list[Gain]:
    """Those of all datasets whose imbalance is known."""
    return [
        Gain(row.dataset, row.algorithm, label, imbalance[row.dataset], cell.mean - base)
        for row in rows
        if row.dataset in imbalance and BASE in row.cells and (base := row.cells[BASE].mean) is not None
        for label, cell in row.cells.items()
        if label != BASE and cell.mean is not None
    ]


def imbalance(runs: Sequence[Run]) -> dict[str, float]:
    """RPSV of each dataset's returns, scaled to [0, 1] by the least and the greatest: what its result says, or where
    that is nothing, of the very pools on this machine, if they are here."""
    found: dict[str, float] = {}
    for dataset, run in {run.dataset: run for run in runs}.items():
        said = run.facts.get("rpsv_scaled")
        value = float(said) if isinstance(said, (int, float)) else _measured(run)
        if value is not None and np.isfinite(value):
            found[dataset] = value
    _pool.cache_clear()
    return found


def _measured(run: Run) -> float | None:
    if run.data != "regenerated" or on_disk(parse(run.dataset)) != "ready":
        return None
    if json.loads(json.dumps(identity(run.dataset))) != run.config["dataset"]:
        return None  # other policies or physics than it was trained on
    try:
        data = _open(run.dataset)
    except BadInput:
        return None
    low, high = float(data.returns.min()), float(data.returns.max())
    if high <= low:
        return 0.0
    scaled = (data.returns - low) / (high - low)
    return float((np.maximum(scaled - scaled.mean(), 0) ** 2).mean())


def _open(text: str) -> Dataset:
    name = parse(text)
    if name.recipe is None:
        return _pool(text)
    low, high = name.sources
    return build(name.recipe, _pool(low), _pool(high), level(low), level(high), text)


@lru_cache(maxsize=3)  # those of one environment
def _pool(text: str) -> Dataset:
    return open_named(text)
