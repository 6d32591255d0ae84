"""The numbers of protocol.md's sections 1 and 2, as Markdown tables, from `results/as_published/`.

    python -m experiments.as_published            prints all tables
    python -m experiments.as_published leads      prints one

The docs site calls the same functions while it is built.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from winnow import stats
from winnow.report.runs import Run, read
from winnow.report.statistics import scores_of
from winnow.stats import Estimate, compare

RESULTS = Path(__file__).resolve().parents[2] / "results" / "as_published"
GRID = "iql-200k"
METHODS = {
    "uniform": "uniform",
    "aw": "AW",
    "dw-uniform": "DW-uniform",
    "dw-aw": "DW-AW",
    "best-source": "oracle",
}
STORED_RANGE = "algorithm.reward_scaling=stored-range"
SUITES = ("mixed", "diverse")
LEVEL_MARGIN = 5.0
"""Two methods count as level unless the whole interval of their difference is farther than this from 0."""
ORACLE_SHARE = 0.5
"""If the oracle scores below this share of its source's own score, the dataset says nothing about methods."""
CLAIMS = (
    ("diverse", "dw-aw", "aw", "ahead"),
    ("mixed", "dw-aw", "aw", "level"),
    (None, "aw", "uniform", "ahead"),
    (None, "dw-aw", "uniform", "ahead"),
    (None, "dw-uniform", "uniform", None),
)
"""Suite (None: both), two methods, and the protocol's claim about the first against the second (None: no claim)."""


@functools.cache
def runs() -> tuple[Run, ...]:
    return tuple(read(RESULTS / GRID, lambda text: print(text, file=sys.stderr)))


def of(label: str, suite: str | None = None) -> list[Run]:
    """The runs of a method, by the suite in its datasets' names."""
    return [run for run in runs() if run.label == label and suite in (None, suite_of(run))]


def suite_of(run: Run) -> str:
    return "diverse" if "diverse" in run.dataset else "mixed"


def scores() -> str:
    """Each dataset: mean scores of methods over seeds, and the oracle's share of its source's own score."""
    rows = []
    for name in sorted({run.dataset for run in runs()}, key=lambda name: ("diverse" in name, name)):
        means = {label: mean([run for run in of(label) if run.dataset == name]) for label in METHODS}
        source = source_score(name)
        oracle = means["best-source"] / source
        note = "" if oracle >= ORACLE_SHARE else " (says nothing about methods)"
        cells = [f"{value:.1f}" for value in (*means.values(), source)]
        rows.append([f"`{name}`", *cells, f"{percent(oracle)}{note}"])
    return markdown(["set", *METHODS.values(), "source itself", "oracle ÷ source"], rows)


def leads() -> str:
    """Each claim of the protocol: the difference of means over sets and seeds, its interval, and the verdict."""
    rows = []
    for suite, first, second, claim in CLAIMS:
        lead = difference(of(first, suite), of(second, suite))
        sets = f"{len(scores_of(of(first, suite)))} {suite or 'mixed and diverse'} sets"
        rows.append([f"{METHODS[first]} − {METHODS[second]}", sets, interval(lead), claim or "", verdict(lead, claim)])
    return markdown(["methods", "on", "difference in score [95 %]", "claim", "verdict"], rows)


def ranges() -> str:
    """The effect of the authors' reward range over stored fragments, on the diverse datasets."""
    rows = []
    for name in ("aw", "dw-aw"):
        usual = of(name, "diverse")
        stored = of(f"{name} {STORED_RANGE}", "diverse")
        cells = [f"{mean(usual):.1f}", f"{mean(stored):.1f}", interval(difference(stored, usual))]
        rows.append([METHODS[name], *cells])
    return markdown(["method", "range over full episodes", "range over stored fragments", "difference [95 %]"], rows)


def mean(runs_of_method: Sequence[Run]) -> float:
    """The mean over datasets of the mean over seeds."""
    return float(stats.mean(scores_of(runs_of_method)))


def source_score(dataset: str) -> float:
    """The good policy's own score in its rows."""
    facts = next(run.facts for run in runs() if run.dataset == dataset)
    return max(map(float, facts["source_scores"].values()))


def difference(first: Sequence[Run], second: Sequence[Run]) -> Estimate:
    return compare(scores_of(first), scores_of(second)).mean


def verdict(lead: Estimate, claim: str | None) -> str:
    if claim is None:
        return ""
    if claim == "level":
        return "refuted" if lead.low > LEVEL_MARGIN or lead.high < -LEVEL_MARGIN else "holds"
    return "holds" if lead.low > 0 else "refuted"


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f}\u00a0%"


def interval(lead: Estimate) -> str:
    """A difference with its interval, which stays on one line of a page."""
    return f"{lead.value:+.1f}\u00a0[{lead.low:+.1f},\u00a0{lead.high:+.1f}]".replace("-", "−")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


TABLES: Mapping[str, Callable[[], str]] = {"scores": scores, "leads": leads, "ranges": ranges}
