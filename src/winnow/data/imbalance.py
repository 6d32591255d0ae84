"""How imbalanced a dataset is: whether a few episodes hold most of what is worth learning, in numbers.

`winnow.data.advice` puts them in words and chooses a method by them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from winnow.data.dataset import Dataset
from winnow.errors import BadInput

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
TOP = (0.01, 0.05, 0.1, 0.25, 0.5)
BINS = 20

FEWEST_COLUMNS = 0.1
"""Part of the columns, those in which first observations differ least, that the spread of starts is read from."""
SAME_START = 0.1
"""Below this spread of first observations episodes start alike, as whole ones do: fragments start anywhere."""
MOST_CUT = 0.5
"""Where more than this part of the episodes was cut before the time limit, they are fragments."""


@dataclass(frozen=True)
class Source:
    """One source's part of the data."""

    label: str
    episodes: int
    rows: int
    share: float
    """Part of all rows."""
    mean: float
    """Mean return of its episodes; mean reward of its rows where there are no episodes."""


@dataclass(frozen=True)
class Imbalance:
    """Statistics of x, which is an episode's return G, or a row's reward where the data has no episodes."""

    of: str
    """What the statistics are of: "return" or "reward"."""
    kind: str
    discount: float
    count: int
    """How many x there are: episodes, or rows."""
    rows: int
    mean: float
    rpsv: float
    """Positive-sided variance V₊ = mean of max(x − mean x, 0)²."""
    rpsv_scaled: float
    """The same on x scaled to [0, 1] by its least and greatest value; 0 where all are equal."""
    quantiles: dict[str, float]
    top_share: dict[str, float]
    """Part of Σ(x − min x) that the best 1 %, 5 %, … hold (at least one of them); 0 where all are equal."""
    gini: float
    """Gini coefficient of x − min x: 0 if all are equal, near 1 if one holds everything."""
    effective_count: float
    """How many equally good ones would carry the above-mean part d = max(x − mean x, 0): (Σd)² / Σd². All of them
    where nothing stands out."""
    effective_share: float
    """The same counted in rows, each with the d of its episode, as a part of all rows: how often a row drawn
    uniformly is one worth learning from. An episode of 1000 steps counts for more than one of 20."""
    start_spread: float | None
    """Variance of first observations over that of all observations, in the tenth of the varying columns where it is
    smallest: near 0 if every episode starts alike, near 1 if they start anywhere. Sensors whose level differs between
    episodes look the same in both cases, and may be most columns. None where there are no episodes."""
    fragments: bool
    """Whether episodes are fragments of longer ones: those that winnow cut; of other data, where episodes start
    anywhere, or where most of them end without a terminal and sooner than the longest that does."""
    columns: int
    """Columns of an observation."""
    sources: tuple[Source, ...]
    histogram: tuple[int, ...]
    histogram_edges: tuple[float, ...]


def imbalance(dataset: Dataset, discount: float = 1.0) -> Imbalance:
    """Measure a dataset. `discount` is that of the returns; 1 leaves them undiscounted."""
    if not 0 < discount <= 1:
        raise BadInput(f"discount is {discount}; it lies above 0 and is at most 1")
    episodes = dataset.has_episodes
    x = _returns(dataset, discount) if episodes else dataset.reward.astype(np.float64)
    weight = dataset.episodes.length if episodes else np.ones(len(x), np.int64)
    mean, low, high = float(x.mean()), float(x.min()), float(x.max())
    span = high - low
    above = np.maximum(x - mean, 0) if span > 0 else np.zeros_like(x)
    wide = low + span / BINS > low  # a bin is more than a rounding error
    start_spread = _start_spread(dataset) if episodes else None
    counts, edges = np.histogram(x, BINS, (low, high if wide else low + max(1.0, abs(low))))
    return Imbalance(
        of="return" if episodes else "reward",
        kind=dataset.meta.kind,
        discount=discount if episodes else 1.0,
        count=len(x),
        rows=len(dataset),
        mean=mean,
        rpsv=float((above**2).mean()),
        rpsv_scaled=float(((above / span) ** 2).mean()) if span > 0 else 0.0,
        quantiles={f"{q:g}": float(value) for q, value in zip(QUANTILES, np.quantile(x, QUANTILES), strict=True)},
        top_share={f"{part:g}": _top_share(x - low, part) for part in TOP},
        gini=_gini(x - low),
        effective_count=_effective(above, np.ones(len(x))),
        effective_share=_effective(above, weight) / len(dataset),
        start_spread=start_spread,
        fragments=start_spread is not None and _fragmented(dataset, start_spread),
        columns=dataset.obs_dim,
        sources=_sources(dataset, x),
        histogram=tuple(map(int, counts)),
        histogram_edges=tuple(map(float, edges)),
    )


def _returns(dataset: Dataset, discount: float) -> np.ndarray:
    table = dataset.episodes
    since = np.arange(len(dataset)) - np.repeat(table.start, table.length)
    return np.add.reduceat(dataset.reward.astype(np.float64) * discount**since, table.start)


def _top_share(x: np.ndarray, part: float) -> float:
    best = np.sort(x)[-max(1, round(part * len(x))) :]
    return float(best.sum() / x.sum()) if x.sum() > 0 else 0.0


def _gini(x: np.ndarray) -> float:
    n, total = len(x), x.sum()
    return float(((2 * np.arange(1, n + 1) - n - 1) * np.sort(x)).sum() / (n * total)) if total > 0 else 0.0


def _effective(above: np.ndarray, weight: np.ndarray) -> float:
    square = (weight * above**2).sum()
    return float((weight * above).sum() ** 2 / square) if square > 0 else float(weight.sum())


def _start_spread(dataset: Dataset) -> float:
    _, scale = dataset.obs_moments
    varies = scale > scale.max() * 1e-6
    ratio = dataset.start_obs.astype(np.float64).var(axis=0)[varies] / scale[varies].astype(np.float64) ** 2
    return float(np.quantile(ratio, FEWEST_COLUMNS))


def _fragmented(dataset: Dataset, start_spread: float) -> bool:
    if dataset.episodes.offset.any():
        return True
    if dataset.meta.recipe:
        return dataset.meta.recipe.get("shape") == "segments"
    length = dataset.episodes.length
    open_end = ~dataset.episodes.terminated
    cut = open_end & (length < length[open_end].max(initial=0))
    return float(cut.mean()) > MOST_CUT or start_spread >= SAME_START


def _sources(dataset: Dataset, x: np.ndarray) -> tuple[Source, ...]:
    source_of = dataset.episodes.source if dataset.has_episodes else dataset.source
    out = []
    for number, label in enumerate(dataset.meta.sources):
        episodes = dataset.episodes.source == number
        rows = int(dataset.episodes.length[episodes].sum())
        if rows:
            out.append(
                Source(label, int(episodes.sum()), rows, rows / len(dataset), float(x[source_of == number].mean()))
            )
    return tuple(out)
