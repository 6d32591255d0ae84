"""The statistics of a report: an IQM for each suite, algorithm and method, and a mean for each dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from winnow import stats
from winnow.report import published
from winnow.report.published import Paper
from winnow.report.runs import Run, labels
from winnow.stats import Comparison, Estimate, Profile

RESAMPLES = 5_000
"""With other seeds of the bootstrap, an interval's ends move by about a hundredth of its width."""
BASE = "uniform"
"""The baseline of gains."""

Scores = dict[str, list[float]]
"""Scores of the seeds by dataset."""


@dataclass(frozen=True)
class Line:
    """A method in a suite, with one algorithm."""

    suite: str
    algorithm: str
    label: str
    scores: Scores
    iqm: Estimate | None
    """None if no run has a score."""
    published: float | None
    """The paper's IQM over the same datasets."""
    failed: int
    with_zeros: float | None
    """The IQM with failed runs counted as 0; None if none failed."""
    gain: Comparison | None
    """Compared with uniform, on the datasets that both have; None for uniform itself."""
    published_gain: float | None
    """The paper's gain over the same datasets."""
    shared: int
    """The number of these datasets."""
    best: bool
    """Whether its IQM is the highest, and the interval of its lead over the second lies above 0."""

    @property
    def has_interval(self) -> bool:
        """One seed has no spread, so it gets no interval."""
        return self.iqm is not None and self.iqm.seeds > 1


@dataclass(frozen=True)
class Cell:
    """A method's runs on one dataset."""

    scores: list[float]
    failed: int
    published: float | None
    best: bool = False
    warned: int = 0
    """Runs that raised an alarm while they trained."""
    raw: tuple[tuple[int, str], ...] = ()
    """The seed of each run, and the file that holds its raw result."""

    @property
    def mean(self) -> float | None:
        return float(np.mean(self.scores)) if self.scores else None

    @property
    def spread(self) -> float | None:
        """The sample standard deviation over seeds."""
        return float(np.std(self.scores, ddof=1)) if len(self.scores) > 1 else None


@dataclass(frozen=True)
class Row:
    """A dataset with one algorithm."""

    suite: str
    dataset: str
    environment: str
    level: str
    share: float | None
    algorithm: str
    cells: dict[str, Cell]
    """By method."""


# ----------------------------------------------------------------------------------------------------------- suites


def lines(runs: Sequence[Run], resamples: int = RESAMPLES, paper: Paper = published.score) -> list[Line]:
    """Every suite, algorithm and method, in order, beside the published scores."""
    return [
        line
        for (suite, algorithm), same in grouped(runs, "suite", "algorithm").items()
        for line in _lines(suite, algorithm, same, resamples, paper)
    ]


def _lines(suite: str, algorithm: str, runs: list[Run], resamples: int, paper: Paper) -> list[Line]:
    by_label = {label: [run for run in runs if run.label == label] for label in labels(runs)}
    scores = {label: scores_of(same) for label, same in by_label.items()}
    best = _leader(scores, by_label, resamples)
    made = []
    for label, same in by_label.items():
        mine = scores[label]
        failed = sum(run.failure is not None for run in same)
        shared = sorted(mine.keys() & scores.get(BASE, {}).keys()) if label != BASE else []
        made.append(
            Line(
                suite,
                algorithm,
                label,
                mine,
                stats.interval(mine, resamples=resamples) if mine else None,
                published.iqm(mine, algorithm, label, paper),
                failed,
                float(stats.iqm(scores_of(same, failed=0.0))) if failed else None,
                _compare(mine, scores[BASE], shared, resamples) if shared else None,
                published.gain(shared, algorithm, label, BASE, paper),
                len(shared),
                label == best,
            )
        )
    return made


def scores_of(runs: Sequence[Run], failed: float | None = None) -> Scores:
    """Scores of the seeds by dataset, without runs that have none; `failed` is the score of failed runs."""
    by_dataset: Scores = {}
    for run in runs:
        score = failed if run.failure is not None else run.score
        if score is not None:
            by_dataset.setdefault(run.dataset, []).append(score)
    return by_dataset


def _leader(scores: Mapping[str, Scores], runs: Mapping[str, list[Run]], resamples: int) -> str | None:
    """The method with the highest IQM, if its lead is more than chance (see `_ahead`)."""
    if len(scores) < 2 or len({frozenset(datasets) for datasets in scores.values()}) > 1 or not all(scores.values()):
        return None  # IQMs over different datasets can't be compared
    first, second = sorted(scores, key=lambda label: float(stats.iqm(scores[label])), reverse=True)[:2]
    if any(run.failure is not None for label in (first, second) for run in runs[label]):
        return None
    lead = _compare(scores[first], scores[second], sorted(scores[first]), resamples).iqm
    return first if _ahead(lead) else None


def _compare(a: Scores, b: Scores, datasets: Sequence[str], resamples: int) -> Comparison:
    return stats.compare({d: a[d] for d in datasets}, {d: b[d] for d in datasets}, resamples=resamples)


def _ahead(lead: Estimate) -> bool:
    """Whether a lead is more than chance: there are enough seeds for an interval, and it lies above 0."""
    return lead.seeds >= stats.FEW and lead.low > 0


def profile(line: Line, top: float, resamples: int = RESAMPLES // 5) -> Profile:
    """The share of a method's runs above each score from 0 to `top`."""
    return stats.performance_profile(line.scores, np.linspace(0, top, 61), resamples=resamples)


# --------------------------------------------------------------------------------------------------------- datasets


def rows(runs: Sequence[Run], resamples: int = RESAMPLES, paper: Paper = published.score) -> list[Row]:
    """Every dataset and algorithm, in order."""
    made = []
    for (suite, dataset, algorithm), same_dataset in grouped(runs, "suite", "dataset", "algorithm").items():
        cells = {
            label: Cell(
                [run.score for run in same if run.score is not None],
                sum(run.failure is not None for run in same),
                paper(dataset, algorithm, label),
                warned=sum(bool(run.warnings) for run in same),
                raw=tuple((run.seed, run.raw) for run in same if run.raw),
            )
            for label in labels(same_dataset)
            if (same := [run for run in same_dataset if run.label == label])
        }
        first = same_dataset[0]
        best = _best(cells, resamples)
        cells = {label: dataclasses.replace(cell, best=label == best) for label, cell in cells.items()}
        made.append(Row(suite, dataset, first.environment, first.level, first.share, algorithm, cells))
    return made


def _best(cells: Mapping[str, Cell], resamples: int) -> str | None:
    """The method with the highest mean, if its lead over the second is more than chance: with 3 seeds or more of each,
    none of which failed."""
    scored = {label: cell for label, cell in cells.items() if cell.scores}
    if len(scored) < 2:
        return None
    first, second = sorted(scored, key=lambda label: scored[label].mean or 0.0, reverse=True)[:2]
    if any(scored[label].failed or len(scored[label].scores) < stats.FEW for label in (first, second)):
        return None
    ours, theirs = ({"": scored[label].scores} for label in (first, second))
    return first if _ahead(stats.compare(ours, theirs, resamples=resamples).mean) else None


# ---------------------------------------------------------------------------------------------------------- curves


def curve(runs: Sequence[Run], what: str) -> dict[int, float]:
    """The mean over datasets of the mean over seeds, at each step that all runs have."""
    by_dataset: dict[str, list[dict[int, float]]] = {}
    for run in runs:
        if run.failure is None and (points := getattr(run, what)):
            by_dataset.setdefault(run.dataset, []).append(dict(points))
    every = [points for same in by_dataset.values() for points in same]
    steps = sorted(set.intersection(*(set(points) for points in every))) if every else []
    return {
        step: float(np.mean([np.mean([points[step] for points in same]) for same in by_dataset.values()]))
        for step in steps
    }


def good_shares(runs: Sequence[Run]) -> dict[float, float]:
    """By σ: the fraction of the weight on the good source, the mean over datasets of the mean over seeds."""
    parts: dict[float, dict[str, list[float]]] = {}
    for run in runs:
        if run.share is not None and (part := run.good_share) is not None:
            parts.setdefault(run.share, {}).setdefault(run.dataset, []).append(part)
    return {
        share: float(np.mean([np.mean(seeds) for seeds in by_dataset.values()]))
        for share, by_dataset in sorted(parts.items())
    }


# ------------------------------------------------------------------------------------------------------------ groups


def grouped(runs: Sequence[Run], *fields: str) -> dict[tuple[str, ...], list[Run]]:
    """Runs by these fields, in order of appearance."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(getattr(run, field) for field in fields), []).append(run)
    return groups
