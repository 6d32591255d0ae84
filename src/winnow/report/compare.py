"""One method against another over all results that are given: the gain, its interval, and on how many sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from winnow import stats
from winnow.errors import BadInput
from winnow.report.runs import Run
from winnow.report.statistics import Scores, grouped
from winnow.stats import RESAMPLES, Comparison

EVERYTHING = "all suites"


@dataclass(frozen=True)
class Gain:
    """Method `first` over method `second` with one algorithm, on the datasets that both have."""

    suite: str
    algorithm: str
    first: str
    second: str
    scores: tuple[Scores, Scores]
    """Scores of the seeds by dataset, of each method."""
    failed: int
    """Runs of the two that failed, which are left out."""
    comparison: Comparison

    @property
    def sets(self) -> int:
        return len(self.scores[0])

    @property
    def runs(self) -> int:
        return sum(len(seeds) for scores in self.scores for seeds in scores.values())

    def record(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return {
            "suite": self.suite,
            "algorithm": self.algorithm,
            "method": self.first,
            "over": self.second,
            "gain_of_mean": self.comparison.mean._asdict(),
            "gain_of_iqm": self.comparison.iqm._asdict(),
            "probability_of_improvement": self.comparison.improvement._asdict(),
            "better_on": self.comparison.wins,
            "worse_on": self.comparison.losses,
            "p_value": self.comparison.p_value,
            "datasets": sorted(self.scores[0]),
            "runs": self.runs,
            "failed": self.failed,
        }


def gains(runs: Sequence[Run], first: str, second: str, resamples: int = RESAMPLES) -> list[Gain]:
    """The gain with each algorithm: in each suite, and over all of them where there are several.

    Intervals are bootstrapped over seeds: they are about other seeds on these datasets. A dataset that was trained or
    played in two ways counts once for each.
    """
    known = list(dict.fromkeys(run.label for run in runs))
    for label in (first, second):
        if label not in known:
            raise BadInput(f"--compare {label}: no run here is of this method; there are {', '.join(known)}")
    if first == second:
        raise BadInput(f"--compare {first} {second}: must be two different methods; there are {', '.join(known)}")
    table = []
    for (algorithm,), same in grouped(runs, "algorithm").items():
        by_suite = grouped(same, "suite")
        lines = [_gain(suite, algorithm, mine, first, second, resamples) for (suite,), mine in by_suite.items()]
        table += [line for line in lines if line is not None]
        suites = {line.suite for line in lines if line is not None}
        if len(suites) > 1:
            both = [run for run in same if run.suite in suites]
            pooled = _gain(EVERYTHING, algorithm, both, first, second, resamples)
            table += [pooled] if pooled is not None else []
    if not table:
        raise BadInput(f"--compare {first} {second}: no dataset has scores of both with the same algorithm")
    return table


def _gain(suite: str, algorithm: str, runs: Sequence[Run], first: str, second: str, resamples: int) -> Gain | None:
    scores: dict[str, Scores] = {first: {}, second: {}}
    failed = 0
    for run in runs:
        if run.label not in scores:
            continue
        failed += run.failure is not None
        if run.score is not None:
            name = f"{run.dataset} ({run.suite})" if suite == EVERYTHING else run.dataset
            scores[run.label].setdefault(name, []).append(run.score)
    shared = sorted(scores[first].keys() & scores[second].keys())
    if not shared:
        return None
    pair = ({name: scores[first][name] for name in shared}, {name: scores[second][name] for name in shared})
    return Gain(suite, algorithm, first, second, pair, failed, stats.compare(*pair, resamples=resamples))
