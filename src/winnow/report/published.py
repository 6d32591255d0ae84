"""The scores that were published for the benchmark, and what may be compared with them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import resources

from winnow import stats
from winnow.data.names import VERSION
from winnow.report.runs import Run, flat, protocol

LABEL = "paper (D4RL data)"
SETTINGS = {
    "steps": 1_000_000,
    "batch_size": 256,
    "evaluation.episodes": 20,
    "evaluation.rounds": 10,
    "evaluation.spacing": 1_000,
}
"""How the published runs were trained and played."""
WORDS = {
    "steps": "Updates",
    "batch_size": "Rows in a batch",
    "evaluation.episodes": "Episodes in a round of evaluation",
    "evaluation.rounds": "Rounds that a score is the mean of",
    "evaluation.spacing": "Updates between these rounds",
}
SEEDS = 3

Paper = Callable[[str, str, str], float | None]
"""What was published of a dataset, an algorithm and a label."""


def _lines(file: str) -> Iterator[dict[str, str]]:
    text = (resources.files("winnow.report") / file).read_text(encoding="utf-8")
    return csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))


@cache
def _table() -> dict[tuple[str, str, str], float]:
    """The 1695 published scores by dataset, algorithm and method."""
    return {
        (line["dataset"], line["algorithm"], method): float(score)
        for line in _lines("published.csv")
        for method, score in line.items()
        if method not in ("dataset", "algorithm")
    }


@cache
def _studies() -> dict[tuple[str, str, str, str], float | None]:
    """The smaller tables by study, dataset, algorithm and variant; None where a run ended in NaN."""
    return {
        (line["study"], line["dataset"], line["algorithm"], line["variant"]): (
            float(line["score"]) if line["score"] else None
        )
        for line in _lines("published_studies.csv")
    }


def _named(dataset: str) -> str:
    """A dataset as the tables name it. Of a mixture they have the score on D4RL's data, whichever data the name means;
    of a trial with fewer rows that of all rows."""
    whole = dataset.split("@")[0]
    return whole.removesuffix(f"-{VERSION}") if "%" in whole else whole


def score(dataset: str, algorithm: str, label: str) -> float | None:
    """The published score of a method that nothing was changed in."""
    return _table().get((_named(dataset), algorithm, label))


def study_score(study: str, dataset: str, algorithm: str, variant: str, method: str | None) -> float | None:
    """The published score of a study's variant: that of its own table, or else that of the method that it is, where
    nothing is changed in one."""
    key = study, _named(dataset), algorithm, variant
    if key in _studies() or method is None:
        return _studies().get(key)
    return score(dataset, algorithm, method)


def iqm(datasets: Iterable[str], algorithm: str, label: str, paper: Paper = score) -> float | None:
    """The IQM of the published scores over these datasets, if there is one for each. It is over means of seeds, as
    single seeds were not published."""
    scores = [paper(dataset, algorithm, label) for dataset in datasets]
    known = [[one] for one in scores if one is not None]
    return float(stats.iqm(known)) if known and len(known) == len(scores) else None


def gain(datasets: Sequence[str], algorithm: str, label: str, base: str, paper: Paper = score) -> float | None:
    """How much higher the published IQM of a method is than that of another one."""
    ours, theirs = iqm(datasets, algorithm, label, paper), iqm(datasets, algorithm, base, paper)
    return ours - theirs if ours is not None and theirs is not None else None


def comparable(runs: Sequence[Run]) -> list[str]:
    """What keeps these runs from being compared with the published scores, a sentence each."""
    said = []
    regenerated = {run.dataset for run in runs if run.data == "regenerated"}
    if regenerated:
        said.append(
            f"{_many(len(regenerated), 'dataset')} here {_is(regenerated)} regenerated: other behaviour policies, "
            "physics and versions of the environments than D4RL's, on which the paper's numbers are. Only the order of "
            "methods and their gains over uniform may be compared, not scores."
        )
    if theirs := {run.dataset for run in runs if run.data == "D4RL"}:
        said.append(
            f"{_many(len(theirs), 'dataset')} here {_is(theirs)} made of D4RL's own files, as in the paper; the "
            "policies are played in newer physics and versions of the environments, and in another implementation of "
            "the algorithms."
        )
    if trials := {run.dataset for run in runs if run.trial}:
        said.append(
            f"{_many(len(trials), 'dataset')} here {_is(trials)} cut to fewer rows than in the paper: neither scores "
            "nor gains may be compared."
        )
    asked = [flat(protocol(run)) for run in runs]
    for name, wanted in SETTINGS.items():
        found = sorted({one[name] for one in asked} - {wanted})
        if found:
            said.append(f"{WORDS[name]}: {_list(found)} here, {wanted:,} in the paper.")
    counts = {len({run.seed for run in cell}) for cell in cells(runs)}
    if counts != {SEEDS}:
        said.append(f"Seeds of a dataset and method: {_list(sorted(counts))} here, {SEEDS} in the paper.")
    said.append(
        "The paper prints means of seeds, so its IQMs are over datasets' means and have no interval here; ours are "
        "over runs. Single cells of its tables differ by up to 30 points between tables: compare IQMs, not cells."
    )
    return said


def cells(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that differ by their seed alone."""
    found: dict[tuple[str, str, str, str], list[Run]] = {}
    for run in runs:
        found.setdefault((run.suite, run.dataset, run.algorithm, run.label), []).append(run)
    return list(found.values())


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _is(things: set[str]) -> str:
    return "is" if len(things) == 1 else "are"


def _list(numbers: Sequence[int]) -> str:
    return " or ".join(f"{one:,}" for one in numbers)
