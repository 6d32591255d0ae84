"""How imbalanced a dataset is: whether a few episodes hold most of what is worth learning, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.names import SMALL_ROWS
from winnow.errors import BadInput

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
TOP = (0.01, 0.05, 0.1, 0.25, 0.5)
BINS = 20

STRONG = 0.07
"""Effective share of rows below which a set is strongly imbalanced: between mixtures with 5 % and 10 % of good rows."""
IMBALANCED = 0.2
"""Below it a set is imbalanced: between a mixture with 10 % of good rows and the returns of one policy, whose share is
0.32 if they are normally distributed. An even mixture of a good and a bad policy has 0.5."""
SMALL = 1.05 * SMALL_ROWS
"""Rows of a small set, about as many as the paper's have."""
FEW = 20_000
"""Good rows that are so few that they are learnt by heart: between mixtures of a million rows with 1 % and with 5 %."""
SAME_START = 0.1
"""Below this spread of first observations episodes start alike, so that they are whole: pieces start anywhere."""
ALIKE = 0.01
"""Where returns span less than this part of their greatest size, choosing among episodes gains next to nothing."""


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
    """Variance of first observations over that of all observations, averaged over the columns that vary: near 0 if
    every episode starts alike, near 1 if they start anywhere. None where there are no episodes."""
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
        start_spread=_start_spread(dataset) if episodes else None,
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
    return float(
        (dataset.start_obs.astype(np.float64).var(axis=0)[varies] / scale[varies].astype(np.float64) ** 2).mean()
    )


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


# ---------------------------------------------------------------------------------------------------- in words


def degree(measured: Imbalance) -> str:
    """ "balanced", "imbalanced" or "strongly imbalanced"."""
    least, greatest = measured.quantiles["0"], measured.quantiles["1"]
    if greatest - least <= ALIKE * max(abs(least), abs(greatest)) or measured.effective_share >= IMBALANCED:
        return "balanced"
    return "imbalanced" if measured.effective_share >= STRONG else "strongly imbalanced"


def verdict(measured: Imbalance) -> str:
    """How imbalanced the data is, in a sentence or two."""
    share = f"{100 * measured.effective_share:.1f} %"
    top = f"{100 * measured.top_share['0.05']:.0f} %"
    things = "episodes" if measured.of == "return" else "rows"
    text = (
        f"{degree(measured).capitalize()}: what lies above the mean {measured.of} is worth about {share} of the rows, "
        f"and the best 5 % of {things} hold {top} of all {measured.of} above the worst."
    )
    if measured.of == "reward":
        text += f" There are no episodes in {measured.kind} data, so this is about rewards of single rows."
    return text


def recommend(measured: Imbalance) -> tuple[str, str]:
    """The method that the evidence points to, and why."""
    if measured.of == "reward":
        why = (
            "without episodes there are no returns to sample by (aw, pf and rw refuse such data); learned weights need "
            "only rows, and are what can tell a good row from one that merely has a high reward"
        )
        return "dual-uniform", why
    if degree(measured) == "balanced":
        why = (
            "good rows are not rare here, so uniform draws find them and the base algorithm is enough; weights would "
            "only make fewer rows count"
        )
        return "uniform", why
    whole = measured.start_spread is not None and measured.start_spread < SAME_START
    if whole and measured.effective_share * measured.rows <= FEW:
        why = (
            "good rows are rare, and so few that a policy learns them by heart in time. In winnow's grids with IQL, "
            "aw, in whose draws a few other rows are left, held out best on whole episodes like these: ahead of "
            "followed on 14 of 16 sets, and of the good rows drawn by label on 15"
        )
        if measured.rows <= SMALL:
            why += (
                ". Take it with --sampler.temperature 0.1: without that option aw has the paper's η for sets this "
                "small, which hardly prefers anything. And train for fewer updates: where it was tried, 50,000 scored "
                "higher than 200,000"
            )
        return "aw", why
    why = (
        "good rows are rare: followed draws the episodes, or pieces of them, that lead somewhere good, by a value "
        "function that it fits first, and what goes on from them. In winnow's grids with IQL, TD3+BC and CQL it was as "
        "good as aw on whole episodes, and far ahead of aw and of dw-aw, the published weights, on pieces of "
        "episodes; compare with both"
    )
    return "followed", why
