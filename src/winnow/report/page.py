"""The report as a page: figures with their numbers as text, tables, and the commands that made the runs."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from winnow import __version__
from winnow.render import figures, pages
from winnow.render.figures import Band
from winnow.report import doubts, gain_vs_imbalance, provenance, published, statistics, study_page, tables
from winnow.report.page_parts import iqms, picture, value
from winnow.report.runs import Run, labels
from winnow.report.statistics import Line, Row
from winnow.report.studies import StudyReport
from winnow.report.tables import interval, number

MAX_NAMED = 50
"""Maximum number of failed or missing runs that are listed by name; of the rest, only the number is shown."""


def write(
    path: Path,
    folders: Sequence[Path],
    runs: Sequence[Run],
    lines: Sequence[Line],
    rows: Sequence[Row],
    skipped: Sequence[str],
    studies: Sequence[StudyReport] = (),
    only: bool = False,
) -> None:
    """Write the page. `skipped` are the lines about files that are not results. `only`: the page is about a single
    study, whose IQMs are not shown twice."""
    from markupsafe import Markup

    script = (resources.files("winnow.render") / "templates" / "report.js").read_text(encoding="utf-8")
    order = labels(runs)
    colour = figures.colours(order)
    suites = list(dict.fromkeys(run.suite for run in runs))
    every = list({run.id: run for run in (*runs, *(run for study in studies for run in study.runs))}.values())
    failed = [run for run in every if run.failure is not None]
    unscored = [run for run in every if run.failure is None and run.score is None]
    made = [
        command
        for folder in folders
        if (mine := [run for run in every if run.folder == str(folder)])
        for command in provenance.commands(mine, folder, [study.study for study in studies])
    ]
    missing = [name for command in made for name in command.missing]
    options = ["--study", studies[0].study.name] if only else []
    pages.write(
        path,
        "report.html",
        title=f"What {len(every):,} runs say" + (f" on {studies[0].study.name}" if only else ""),
        script=Markup(script),
        script_sum=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        folders=list(map(str, folders)),
        counts=_counts(every),
        weak_oracles=doubts.weak_oracles(every),
        warned=doubts.warned(every),
        warnings=_named(f"{run.name}: {text}" for run in every for text in run.warnings),
        short=_short(lines),
        comparable=published.comparable(every),
        label=published.LABEL,
        failed=_named(f"{run.name}: {run.failure}" for run in failed),
        failed_zero=_with_zeros([*lines, *(line for study in studies if not only for line in study.lines)]),
        unscored=_named(run.name for run in unscored),
        missing=_named(missing),
        skipped=_named(skipped),
        odd=provenance.odd_data(every),
        iqms=[]
        if only
        else [iqms(suite, [study for study in lines if study.suite == suite], colour) for suite in suites],
        studies=[study_page.section(study) for study in studies],
        elsewhere=len(every) - len(runs),
        resamples=statistics.RESAMPLES,
        rule=tables.RULE,
        methods=order,
        rows=[_row(row, order, path) for row in rows],
        filters=_filters(rows),
        profiles=_present(_profiles(suite, lines, colour) for suite in suites),
        curves=_present(_curves(suite, runs, colour) for suite in suites),
        weights=_present(figure for suite in suites for figure in _weights(suite, runs, colour)),
        gains=_gains(runs, rows, colour),
        commands=made,
        typed=provenance.typed(every),
        this=f"winnow report {shlex.join([*map(str, folders), *options, '--html', str(path)])}",
        version=__version__,
        versions=provenance.versions(every),
        settings=provenance.settings(every),
    )


def _present(parts: Iterable[dict[str, Any] | None]) -> list[dict[str, Any]]:
    return [part for part in parts if part]


def _named(names: Iterable[str]) -> dict[str, Any]:
    every = list(names)
    return {"count": len(every), "first": every[:MAX_NAMED]}


def _counts(runs: Sequence[Run]) -> dict[str, int]:
    fields = {"datasets": "dataset", "algorithms": "algorithm", "methods": "label", "seeds": "seed"}
    return {"runs": len(runs)} | {name: len({getattr(run, field) for run in runs}) for name, field in fields.items()}


# ---------------------------------------------------------------------------------------------------------- in short


def _short(lines: Sequence[Line]) -> dict[str, Any]:
    """The best method of each suite and algorithm, and whether its lead is more than chance."""
    algorithms = list(dict.fromkeys(line.algorithm for line in lines))
    body = []
    for suite in dict.fromkeys(line.suite for line in lines):
        cells: list[dict[str, Any] | None] = []
        for algorithm in algorithms:
            ranked = [line for line in lines if (line.suite, line.algorithm) == (suite, algorithm) and line.iqm]
            first = max(ranked, key=lambda line: line.iqm.value if line.iqm else 0.0, default=None)
            cells.append(first and {"line": first, "value": value(first), "gain": _gain(first)})
        body.append({"suite": suite, "cells": cells})
    return {"algorithms": algorithms, "body": body}


def _gain(line: Line) -> str:
    if line.gain is None:
        return ""
    around = f" {interval(*line.gain.iqm[1:3], True)}" if line.gain.iqm.seeds > 1 else ""
    return f"{number(line.gain.iqm.value, True)}{around} over {statistics.BASE}"


def _with_zeros(lines: Sequence[Line]) -> list[str]:
    return [
        f"{line.suite}, {line.algorithm}, {line.label}: IQM {number(line.iqm.value) if line.iqm else 'none'} without "
        f"{line.failed} failed run{'s' if line.failed > 1 else ''}, {number(line.with_zeros)} with 0 for each"
        for line in lines
        if line.failed
    ]


# ----------------------------------------------------------------------------------------------------------- figures


def _profiles(suite: str, lines: Sequence[Line], colour: Mapping[str, str]) -> dict[str, Any] | None:
    values: dict[str, dict[str, Band]] = {}
    shares = []
    mine = [line for line in lines if line.suite == suite and line.iqm]
    highest = max((score for line in mine for seeds in line.scores.values() for score in seeds), default=0.0)
    for line in mine:
        profile = statistics.profile(line, max(10.0, 10 * math.ceil(highest / 10)))
        band = (profile.low, profile.high) if line.has_interval else None
        values.setdefault(line.algorithm, {})[line.label] = Band(profile.thresholds, profile.share, band)  # pyright: ignore[reportArgumentType]
        above = [score > 50 for seeds in line.scores.values() for score in seeds]
        shares.append(f"{line.algorithm} {line.label} {sum(above) / len(above):.0%}")
    if not values:
        return None
    drawn = figures.bands(values, colour, "normalised score τ", "share of runs above τ", 1.02)
    return picture(
        drawn, suite, f"Performance profiles for {suite}. Share of runs above a score of 50: {'; '.join(shares)}."
    )


def _lines_of(
    suite: str, runs: Sequence[Run], of: Callable[[list[Run]], Mapping[Any, float]]
) -> dict[str, dict[str, Mapping[Any, float]]]:
    """Curves by algorithm and method, if there are any."""
    curves: dict[str, dict[str, Mapping[Any, float]]] = {}
    mine = [run for run in runs if run.suite == suite]
    for (algorithm, label), same in statistics.grouped(mine, "algorithm", "label").items():
        if points := of(same):
            curves.setdefault(algorithm, {})[label] = points
    return curves


def _ends(curves: Mapping[str, Mapping[str, Mapping[Any, float]]], form: str) -> str:
    return "; ".join(
        f"{algorithm} {label} {format(list(points.values())[-1], form)}"
        for algorithm, by_label in curves.items()
        for label, points in by_label.items()
    )


def _bands(curves: Mapping[str, Mapping[str, Mapping[Any, float]]]) -> dict[str, dict[str, Band]]:
    return {
        algorithm: {label: Band(list(points), list(points.values())) for label, points in by_label.items()}
        for algorithm, by_label in curves.items()
    }


def _curves(suite: str, runs: Sequence[Run], colour: Mapping[str, str]) -> dict[str, Any] | None:
    curves = _lines_of(suite, runs, lambda same: statistics.curve(same, "curve"))
    if not curves:
        return None
    drawn = figures.bands(_bands(curves), colour, "updates", "normalised score")
    return picture(drawn, suite, f"Learning curves for {suite}. Mean score in the last round: {_ends(curves, '.1f')}.")


def _weights(suite: str, runs: Sequence[Run], colour: Mapping[str, str]) -> list[dict[str, Any] | None]:
    """Shares of the weight by source, if there are several, and the effective sample size over training."""
    pictures: list[dict[str, Any] | None] = []
    if parts := _lines_of(suite, runs, statistics.good_shares):
        texts = [
            f"{algorithm} {label} {', '.join(f'{part:.0%} at {share:g} %' for share, part in points.items())}"
            for algorithm, by_label in parts.items()
            for label, points in by_label.items()
        ]
        alt = f"Share of the weight on the good source for {suite}, by its share of the rows: {'; '.join(texts)}."
        pictures.append(picture(figures.shares(parts, colour), f"{suite}: share of the weight on the good source", alt))
    if sizes := _lines_of(suite, runs, lambda same: statistics.curve(same, "ess")):
        drawn = figures.bands(_bands(sizes), colour, "updates", "effective sample size / batch", 1.05)
        ends = _ends(sizes, ".0%")
        alt = f"Effective sample size of the weights for {suite}, as a part of the batch. At the end: {ends}."
        pictures.append(picture(drawn, f"{suite}: effective sample size over training", alt))
    return pictures


def _gains(runs: Sequence[Run], rows: Sequence[Row], colour: Mapping[str, str]) -> dict[str, Any]:
    """Gain over uniform against imbalance, and the datasets whose imbalance is unknown."""
    known = gain_vs_imbalance.imbalance(runs)
    unknown = [dataset for dataset in dict.fromkeys(run.dataset for run in runs) if dataset not in known]
    points: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for point in gain_vs_imbalance.gains(rows, known):
        if point.rpsv > 0:
            points.setdefault(point.algorithm, {}).setdefault(point.label, []).append((point.rpsv, point.gain))
    figure = None
    ranks = []
    if points:
        texts = [
            f"{algorithm} {label} {sum(gain > 0 for _, gain in dots)} of {len(dots)}"
            for algorithm, by_label in points.items()
            for label, dots in by_label.items()
        ]
        ranks = [
            {"algorithm": algorithm, "label": label, "datasets": len(dots), "rank": f"{rank:+.2f}"}
            for algorithm, by_label in points.items()
            for label, dots in by_label.items()
            if (rank := gain_vs_imbalance.agreement(dots)) is not None
        ]
        drawn = figures.scatter(points, colour, "RPSV of returns scaled to [0, 1]", "gain over uniform")
        alt = (
            f"Gain over uniform against RPSV. Datasets on which a method's mean is above uniform's: {'; '.join(texts)}."
        )
        figure = picture(drawn, "gain over uniform against RPSV", alt)
    return {"figure": figure, "ranks": ranks, "unknown": _named(unknown), "known": len(known), "base": statistics.BASE}


# -------------------------------------------------------------------------------------------------------- the table


def _row(row: Row, order: Sequence[str], page: Path) -> dict[str, Any]:
    cells = []
    for label in order:
        cell = row.cells.get(label)
        cells.append(
            {
                "value": "" if cell is None or cell.mean is None else f"{cell.mean:.4f}",
                "mean": number(cell.mean) if cell else "",
                "spread": number(cell.spread) if cell else "",
                "seeds": len(cell.scores) if cell else 0,
                "failed": cell.failed if cell else 0,
                "warned": cell.warned if cell else 0,
                "best": bool(cell and cell.best),
                "paper": number(cell.published) if cell else "",
                "raw": _raw(cell.raw, page) if cell else [],
            }
        )
    return {"row": row, "share": "" if row.share is None else f"{row.share:g}", "cells": cells}


def _raw(files: Sequence[tuple[int, str]], page: Path) -> list[dict[str, str]]:
    """Links to the raw results behind a number: one for each file, with the seeds that it holds."""
    seeds: dict[str, list[int]] = {}
    for seed, file in files:
        seeds.setdefault(file, []).append(seed)
    here = page.resolve().parent
    return [
        {
            "href": quote(Path(os.path.relpath(Path(file).resolve(), here)).as_posix()),
            "seeds": ", ".join(map(str, sorted(numbers))) if len(seeds) > 1 else "raw",
            "title": f"raw result of seed {', '.join(map(str, sorted(numbers)))}: {Path(file).name}",
        }
        for file, numbers in seeds.items()
    ]


def _filters(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The choices of each filter, in order; a filter with a single choice is left out."""
    choices = {
        "suite": [row.suite for row in rows],
        "environment": [row.environment for row in rows],
        "level": [row.level for row in rows],
        "share": [f"{share:g}" for share in sorted({row.share for row in rows if row.share is not None})],
        "algorithm": [row.algorithm for row in rows],
    }
    titles = {"share": "σ (share of good rows, %)"}
    return [
        {"name": name, "title": titles.get(name, name), "choices": distinct}
        for name, every in choices.items()
        if len(distinct := [choice for choice in dict.fromkeys(every) if choice]) > 1
    ]
