"""The published scores of the benchmark, and what may be compared with them."""

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
"""How the published runs were trained and evaluated."""
TITLES = {
    "steps": "Updates",
    "batch_size": "Rows in a batch",
    "evaluation.episodes": "Episodes in a round of evaluation",
    "evaluation.rounds": "Rounds that a score is the mean of",
    "evaluation.spacing": "Updates between these rounds",
}
SEEDS = 3

Paper = Callable[[str, str, str], float | None]
"""The published score of a dataset, an algorithm and a label."""


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
    """A dataset as the tables name it: a mixture has its score on D4RL's data, even if ours is regenerated; a trial
    with fewer rows has the score of all rows."""
    whole = dataset.split("@")[0]
    return whole.removesuffix(f"-{VERSION}") if "%" in whole else whole


def score(dataset: str, algorithm: str, label: str) -> float | None:
    """The published score of an unchanged method."""
    return _table().get((_named(dataset), algorithm, label))


def study_score(study: str, dataset: str, algorithm: str, variant: str, method: str | None) -> float | None:
    """The published score of a study's variant: from the study's own table, otherwise that of the method if the variant
    changes nothing in it."""
    key = study, _named(dataset), algorithm, variant
    if key in _studies() or method is None:
        return _studies().get(key)
    return score(dataset, algorithm, method)


def iqm(datasets: Iterable[str], algorithm: str, label: str, paper: Paper = score) -> float | None:
    """The IQM of the published scores over these datasets, if each has one. It is over means of seeds, because single
    seeds were not published."""
    scores = [paper(dataset, algorithm, label) for dataset in datasets]
    known = [[score] for score in scores if score is not None]
    return float(stats.iqm(known)) if known and len(known) == len(scores) else None


def gain(datasets: Sequence[str], algorithm: str, label: str, base: str, paper: Paper = score) -> float | None:
    """How much higher the published IQM of a method is than that of another method."""
    ours = iqm(datasets, algorithm, label, paper)
    theirs = iqm(datasets, algorithm, base, paper)
    return ours - theirs if ours is not None and theirs is not None else None


def comparable(runs: Sequence[Run]) -> list[str]:
    """Sentences about what limits a comparison of these runs with the published scores."""
    sentences = []
    regenerated = {run.dataset for run in runs if run.data == "regenerated"}
    if regenerated:
        sentences.append(
            f"{_many(len(regenerated), 'dataset')} here {_is(regenerated)} regenerated, with other behaviour "
            "policies, physics and versions of the environments than D4RL's data, which the paper used. Only the order "
            "of methods and their gains over uniform may be compared, not scores."
        )
    if theirs := {run.dataset for run in runs if run.data == "D4RL"}:
        sentences.append(
            f"{_many(len(theirs), 'dataset')} here {_is(theirs)} made of D4RL's own files, as in the paper; the "
            "policies are evaluated in newer physics and versions of the environments, and trained by another "
            "implementation of the algorithms."
        )
    if trials := {run.dataset for run in runs if run.trial}:
        sentences.append(
            f"{_many(len(trials), 'dataset')} here {_is(trials)} reduced to fewer rows than in the paper: neither "
            "scores nor gains may be compared."
        )
    asked = [flat(protocol(run)) for run in runs]
    for name, wanted in SETTINGS.items():
        differing = sorted({setting[name] for setting in asked} - {wanted})
        if differing:
            sentences.append(f"{TITLES[name]}: {_list(differing)} here, {wanted:,} in the paper.")
    counts = {len({run.seed for run in cell}) for cell in cells(runs)}
    if counts != {SEEDS}:
        sentences.append(f"Seeds of a dataset and method: {_list(sorted(counts))} here, {SEEDS} in the paper.")
    sentences.append(
        "The paper prints means over seeds, so its IQMs are over datasets' means and have no interval here; ours are "
        "over runs. Single cells of its tables differ by up to 30 points between tables: compare IQMs, not cells."
    )
    return sentences


def cells(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs grouped so that those of a group differ only in their seed."""
    by_cell: dict[tuple[str, str, str, str], list[Run]] = {}
    for run in runs:
        by_cell.setdefault((run.suite, run.dataset, run.algorithm, run.label), []).append(run)
    return list(by_cell.values())


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"


def _is(things: set[str]) -> str:
    return "is" if len(things) == 1 else "are"


def _list(numbers: Sequence[int]) -> str:
    return " or ".join(f"{number:,}" for number in numbers)
