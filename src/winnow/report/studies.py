"""The runs of a study in a folder of results: recognised by their settings, labelled as the study labels them.

Runs are found by their settings, not by the command that made them: runs of a grid count, and so do runs of a study
with fewer rows or on other datasets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from winnow.bench.overrides import fields_of
from winnow.bench.plan import canonical
from winnow.bench.study import PREFIX, Study
from winnow.bench.study_list import STUDIES
from winnow.bench.suites import METHODS, Entry
from winnow.data.names import is_name, parse
from winnow.errors import BadInput
from winnow.plugins import record
from winnow.report import statistics
from winnow.report.published import study_score
from winnow.report.runs import FAMILIES, Run, with_distinct_labels
from winnow.report.statistics import RESAMPLES, Line, Row, grouped


@dataclass(frozen=True)
class StudyReport:
    """The results of a study in a folder."""

    study: Study
    runs: list[Run]
    """Its runs, with variants for labels."""
    lines: list[Line]
    rows: list[Row]
    plain: dict[tuple[str, str, str], str]
    """The methods of variants that change nothing, by dataset, algorithm and label."""

    def paper(self, dataset: str, algorithm: str, label: str) -> float | None:
        """The published score of a variant."""
        if not self.plain:
            return None  # all variants change something
        method = self.plain.get((dataset, algorithm, label))
        return study_score(self.study.name, dataset, algorithm, label, method)

    @property
    def missing(self) -> dict[str, list[str]]:
        """Variants without a single run, by algorithm."""
        by_algorithm = {}
        for (algorithm,), same in grouped(self.runs, "algorithm").items():
            known = {self.study.variants[run.order].label for run in same}
            left = [variant.label for variant in self.study.compared(algorithm) if variant.label not in known]
            if left:
                by_algorithm[algorithm] = left
        return by_algorithm


def study_report(study: Study, runs: Sequence[Run], resamples: int = RESAMPLES) -> StudyReport:
    """The study's report from these runs; an error if none of them is part of it."""
    mine, plain = matched(study, runs)
    if not mine:
        raise BadInput(
            f"--study {study.name}: no run here is part of it; `winnow bench run {PREFIX}{study.name}` trains its runs"
        )
    empty = StudyReport(study, mine, [], [], plain)
    lines = statistics.lines(mine, resamples, empty.paper)
    return dataclasses.replace(empty, lines=lines, rows=statistics.rows(mine, resamples, empty.paper))


def complete_studies(runs: Sequence[Run]) -> list[Study]:
    """Studies whose variants all have runs on some dataset with some algorithm; a plain grid's methods alone do not
    count as a study."""
    if not any(_special(run) for run in runs):
        return []
    complete = []
    for study in STUDIES.values():
        for (_, algorithm), same in grouped(matched(study, runs)[0], "dataset", "algorithm").items():
            wanted = {variant.label for variant in study.compared(algorithm)}
            known = {study.variants[run.order].label for run in same}
            if wanted <= known and len(wanted) > 1 and any(map(_special, same)):
                complete.append(study)
                break
    return complete


def grid_runs(runs: Sequence[Run], studies: Sequence[StudyReport]) -> list[Run]:
    """The runs of a grid: all but those that belong only to these studies."""
    theirs = {run.id for report in studies for run in report.runs if _special(run)}
    return [run for run in runs if run.id not in theirs]


def _special(run: Run) -> bool:
    """Whether no plain grid has it: its method or a setting is not a default one."""
    return bool(run.swept) or run.method not in METHODS


def matched(study: Study, runs: Sequence[Run]) -> tuple[list[Run], dict[tuple[str, str, str], str]]:
    """The runs of a study's variants, labelled by variant, and which of them are plain methods (see
    `StudyReport.plain`).

    A setting that the study does not change may be swept if it is the same in all runs: smaller layers, say. A dataset
    that has only runs of a plain grid is left to the grid, unless all datasets are like that.
    """
    paths = study.paths
    known = {}
    matching: list[tuple[Run, int, str | None, dict[str, Any]]] = []
    for run in runs:
        if not is_name(run.dataset):
            continue
        extra = {path: value for path, value in run.swept.items() if path not in paths}
        entry = Entry(parse(run.dataset))
        kind = entry.environment, entry.rows, run.algorithm, canonical(extra)
        if kind not in known:
            known[kind] = _settings(study, entry, run.algorithm, extra)
        key = canonical([run.config.get(family) for family in FAMILIES])
        if key in known[kind]:
            matching.append((run, *known[kind][key], extra))
    extras = {path for *_, extra in matching for path in extra}
    shared = {path for path in extras if len(_values(path, [run for run, *_ in matching])) == 1}
    mine = []
    plain = {}
    for run, number, method, extra in matching:
        if extra.keys() <= shared:
            label = study.variants[number].label
            mine.append(dataclasses.replace(run, label=label, order=number))
            if method and not extra:
                plain[run.dataset, run.algorithm, label] = method
    asked = {(run.dataset, run.algorithm) for run in mine if _special(run)}
    return with_distinct_labels([run for run in mine if not asked or (run.dataset, run.algorithm) in asked]), plain


def _values(path: str, runs: Sequence[Run]) -> set[str]:
    """The values of a setting in the runs that have it."""
    family, _, field = path.partition(".")
    return {canonical(run.config[family][field]) for run in runs if field in run.config[family]}


def _settings(study: Study, entry: Entry, algorithm: str, extra: dict[str, Any]) -> dict[str, tuple[int, str | None]]:
    """The settings of each variant on a dataset, with `extra` changed: its number, and its method if it changes
    nothing."""
    by_settings: dict[str, tuple[int, str | None]] = {}
    for number, variant in enumerate(study.variants):
        if variant not in study.compared(algorithm):
            continue
        try:
            parts, changed = variant.kind(algorithm).parts(entry)
            for path, value in extra.items():
                family, _, field = path.partition(".")
                value = tuple(value) if isinstance(value, list) else value
                if field in fields_of(parts[family]):
                    parts[family] = dataclasses.replace(parts[family], **{field: value})
        except BadInput:
            continue  # a method of another version of winnow
        key = canonical([record(parts[family]) for family in FAMILIES])
        by_settings.setdefault(key, (number, None if changed else variant.method))
    return by_settings


# --------------------------------------------------------------------------------------------- of several variants


class Group(NamedTuple):
    """Variants that tune the same thing, in a suite with one algorithm."""

    suite: str
    algorithm: str
    name: str
    tried: int
    best: Line
    mean: float
    """Mean of the IQMs of all of them."""


def groups(report: StudyReport) -> list[Group]:
    """The best and the mean of each group of tuned variants, by suite and algorithm."""
    names = {variant.label: variant.group for variant in report.study.variants}
    by_name: dict[tuple[str, str, str], list[Line]] = {}
    for line in report.lines:
        if line.iqm and (name := names.get(line.label)):
            by_name.setdefault((line.suite, line.algorithm, name), []).append(line)
    return [
        Group(*key, len(tuned), max(tuned, key=_value), float(np.mean([_value(line) for line in tuned])))
        for key, tuned in by_name.items()
    ]


def _value(line: Line) -> float:
    return line.iqm.value if line.iqm else -np.inf


class Map(NamedTuple):
    """IQMs over two settings, ours and the paper's; NaN for those that are missing."""

    suite: str
    algorithm: str
    rows: list[float]
    columns: list[float]
    ours: np.ndarray
    paper: np.ndarray


def maps(report: StudyReport) -> list[Map]:
    """The IQMs of a study that is a product of two settings."""
    if len(report.study.axes) != 2:
        return []
    (down, _), (across, _) = report.study.axes
    at: dict[str, tuple[float, float]] = {}
    for variant in report.study.variants:
        row = variant.value(down)
        column = variant.value(across)
        if row is not None and column is not None:
            at[variant.label] = row, column
    rows, columns = (sorted({cell[side] for cell in at.values()}) for side in (0, 1))
    made = []
    for (suite, algorithm), lines in _by(report.lines).items():
        ours, paper = (np.full((len(rows), len(columns)), np.nan) for _ in range(2))
        for line in lines:
            if line.label in at:
                cell = rows.index(at[line.label][0]), columns.index(at[line.label][1])
                ours[cell] = line.iqm.value if line.iqm else np.nan
                paper[cell] = np.nan if line.published is None else line.published
        if np.isfinite(ours).any():
            made.append(Map(suite, algorithm, rows, columns, ours, paper))
    return made


def _by(lines: Sequence[Line]) -> dict[tuple[str, str], list[Line]]:
    by_suite: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        by_suite.setdefault((line.suite, line.algorithm), []).append(line)
    return by_suite
