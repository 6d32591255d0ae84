"""The runs of a study in a folder of results: known by their settings, called as the study calls them.

Runs are found by what was trained, not by who asked for it: those of a grid count, and those of a study of fewer rows
or other datasets do too.
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
from winnow.report.runs import FAMILIES, Run, told_apart
from winnow.report.statistics import RESAMPLES, Line, Row, grouped


@dataclass(frozen=True)
class Told:
    """What a folder says of a study."""

    study: Study
    runs: list[Run]
    """Its runs, with variants for labels."""
    lines: list[Line]
    rows: list[Row]
    plain: dict[tuple[str, str, str], str]
    """The method that a variant is, where nothing is changed in it: by dataset, algorithm and label."""

    def paper(self, dataset: str, algorithm: str, label: str) -> float | None:
        """What was published of a variant."""
        if not self.plain:
            return None  # something is changed in all of them
        method = self.plain.get((dataset, algorithm, label))
        return study_score(self.study.name, dataset, algorithm, label, method)

    @property
    def missing(self) -> dict[str, list[str]]:
        """Variants without a single run, by algorithm."""
        found = {}
        for (algorithm,), some in grouped(self.runs, "algorithm").items():
            there = {self.study.variants[run.order].label for run in some}
            left = [one.label for one in self.study.compared(algorithm) if one.label not in there]
            if left:
                found[algorithm] = left
        return found


def told(study: Study, runs: Sequence[Run], resamples: int = RESAMPLES) -> Told:
    """The study as these runs answer it; an error where none is part of it."""
    mine, plain = matched(study, runs)
    if not mine:
        raise BadInput(
            f"--study {study.name}: no run here is part of it; `winnow bench run {PREFIX}{study.name}` does it"
        )
    empty = Told(study, mine, [], [], plain)
    lines = statistics.lines(mine, resamples, empty.paper)
    return dataclasses.replace(empty, lines=lines, rows=statistics.rows(mine, resamples, empty.paper))


def held(runs: Sequence[Run]) -> list[Study]:
    """Studies that were asked for here: all variants are there on some dataset with some algorithm, and not all of them
    are what every grid has."""
    if not any(_special(run) for run in runs):
        return []
    found = []
    for study in STUDIES.values():
        for (_, algorithm), some in grouped(matched(study, runs)[0], "dataset", "algorithm").items():
            wanted = {one.label for one in study.compared(algorithm)}
            there = {study.variants[run.order].label for run in some}
            if wanted <= there and len(wanted) > 1 and any(map(_special, some)):
                found.append(study)
                break
    return found


def others(runs: Sequence[Run], studies: Sequence[Told]) -> list[Run]:
    """The runs without those that are in these studies alone: a grid's."""
    theirs = {run.id for one in studies for run in one.runs if _special(run)}
    return [run for run in runs if run.id not in theirs]


def _special(run: Run) -> bool:
    """Whether it is none of a grid that nothing is changed in."""
    return bool(run.swept) or run.method not in METHODS


def matched(study: Study, runs: Sequence[Run]) -> tuple[list[Run], dict[tuple[str, str, str], str]]:
    """The runs that a study's variants are, labelled so, and which of them are plain methods (see `Told.plain`).

    A setting that the study does not change may be swept if it is the same in all of them: smaller layers, say. Where
    a dataset has nothing but what every grid has, it is left to the grid, unless that is so of all datasets.
    """
    places, known = study.places, {}
    found: list[tuple[Run, int, str | None, dict[str, Any]]] = []
    for run in runs:
        if not is_name(run.dataset):
            continue
        extra = {place: value for place, value in run.swept.items() if place not in places}
        entry = Entry(parse(run.dataset))
        kind = entry.environment, entry.rows, run.algorithm, canonical(extra)
        if kind not in known:
            known[kind] = _settings(study, entry, run.algorithm, extra)
        key = canonical([run.config.get(family) for family in FAMILIES])
        if key in known[kind]:
            found.append((run, *known[kind][key], extra))
    extras = {place for *_, extra in found for place in extra}
    shared = {place for place in extras if len(_values(place, [run for run, *_ in found])) == 1}
    mine, plain = [], {}
    for run, number, method, extra in found:
        if extra.keys() <= shared:
            label = study.variants[number].label
            mine.append(dataclasses.replace(run, label=label, order=number))
            if method and not extra:
                plain[run.dataset, run.algorithm, label] = method
    asked = {(run.dataset, run.algorithm) for run in mine if _special(run)}
    return told_apart([run for run in mine if not asked or (run.dataset, run.algorithm) in asked]), plain


def _values(place: str, runs: Sequence[Run]) -> set[str]:
    """What a setting is in the runs that have it."""
    family, _, field = place.partition(".")
    return {canonical(run.config[family][field]) for run in runs if field in run.config[family]}


def _settings(study: Study, entry: Entry, algorithm: str, extra: dict[str, Any]) -> dict[str, tuple[int, str | None]]:
    """What each variant comes to on a dataset, with more settings changed: its number, and the method if it is one."""
    found: dict[str, tuple[int, str | None]] = {}
    for number, variant in enumerate(study.variants):
        if variant not in study.compared(algorithm):
            continue
        try:
            parts, changed = variant.kind(algorithm).parts(entry)
            for place, value in extra.items():
                family, _, field = place.partition(".")
                value = tuple(value) if isinstance(value, list) else value
                if field in fields_of(parts[family]):
                    parts[family] = dataclasses.replace(parts[family], **{field: value})
        except BadInput:
            continue  # another version of winnow had such a method
        key = canonical([record(parts[family]) for family in FAMILIES])
        found.setdefault(key, (number, None if changed else variant.method))
    return found


# --------------------------------------------------------------------------------------------- of several variants


class Group(NamedTuple):
    """Variants that are the tuning of one thing, in a suite with one algorithm."""

    suite: str
    algorithm: str
    name: str
    tried: int
    best: Line
    mean: float
    """Of the IQMs of all."""


def groups(one: Told) -> list[Group]:
    """What each thing comes to that has been tuned, by suite and algorithm."""
    names = {variant.label: variant.group for variant in one.study.variants}
    found: dict[tuple[str, str, str], list[Line]] = {}
    for line in one.lines:
        if line.iqm and (name := names.get(line.label)):
            found.setdefault((line.suite, line.algorithm, name), []).append(line)
    return [
        Group(*key, len(some), max(some, key=_value), float(np.mean([_value(line) for line in some])))
        for key, some in found.items()
    ]


def _value(line: Line) -> float:
    return line.iqm.value if line.iqm else -np.inf


class Map(NamedTuple):
    """IQMs over two settings, ours and the paper's; NaN where there is none."""

    suite: str
    algorithm: str
    rows: list[float]
    columns: list[float]
    ours: np.ndarray
    paper: np.ndarray


def maps(one: Told) -> list[Map]:
    """The IQMs of a study that is a product of two settings."""
    if len(one.study.axes) != 2:
        return []
    (down, _), (across, _) = one.study.axes
    at: dict[str, tuple[float, float]] = {}
    for variant in one.study.variants:
        row, column = variant.value(down), variant.value(across)
        if row is not None and column is not None:
            at[variant.label] = row, column
    rows, columns = (sorted({place[side] for place in at.values()}) for side in (0, 1))
    found = []
    for (suite, algorithm), lines in _by(one.lines).items():
        ours, paper = (np.full((len(rows), len(columns)), np.nan) for _ in range(2))
        for line in lines:
            if line.label in at:
                place = rows.index(at[line.label][0]), columns.index(at[line.label][1])
                ours[place] = line.iqm.value if line.iqm else np.nan
                paper[place] = np.nan if line.published is None else line.published
        if np.isfinite(ours).any():
            found.append(Map(suite, algorithm, rows, columns, ours, paper))
    return found


def _by(lines: Sequence[Line]) -> dict[tuple[str, str], list[Line]]:
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        found.setdefault((line.suite, line.algorithm), []).append(line)
    return found
