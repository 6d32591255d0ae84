"""The report as a page: figures with the numbers in words, tables, and how it was all made."""

from __future__ import annotations

import base64
import hashlib
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from winnow import __version__, figures, pages
from winnow.figures import Band, Bar
from winnow.report import gains, numbers, origin, published, tables
from winnow.report.numbers import Line, Row
from winnow.report.runs import Run, labels
from winnow.report.tables import interval, number

NAMED = 50
"""Failed and missing runs that are named; of more, the number is said."""


def write(
    path: Path, folder: Path, runs: Sequence[Run], lines: Sequence[Line], rows: Sequence[Row], skipped: Sequence[str]
) -> None:
    """The page. `skipped` are the lines that were said of files that are no results."""
    from markupsafe import Markup

    script = (resources.files("winnow") / "templates" / "report.js").read_text(encoding="utf-8")
    order = labels(runs)
    colour = figures.colours(order)
    suites = list(dict.fromkeys(run.suite for run in runs))
    failed = [run for run in runs if run.failure is not None]
    unscored = [run for run in runs if run.failure is None and run.score is None]
    made = origin.commands(runs, folder)
    missing = [name for command in made for name in command.missing]
    pages.write(
        path,
        "report.html",
        title=f"What {len(runs):,} runs say",
        script=Markup(script),
        script_sum=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        folder=str(folder),
        counts=_counts(runs),
        short=_short(lines),
        comparable=published.comparable(runs),
        label=published.LABEL,
        failed=_named(f"{run.name}: {run.failure}" for run in failed),
        failed_zero=_with_zeros(lines),
        unscored=_named(run.name for run in unscored),
        missing=_named(missing),
        skipped=_named(skipped),
        odd=origin.odd_data(runs),
        iqms=[_iqm(suite, [line for line in lines if line.suite == suite], colour) for suite in suites],
        resamples=numbers.RESAMPLES,
        rule=tables.RULE,
        methods=order,
        rows=[_row(row, order) for row in rows],
        filters=_filters(rows),
        profiles=_some(_profiles(suite, lines, colour) for suite in suites),
        curves=_some(_curves(suite, runs, colour) for suite in suites),
        weights=_some(figure for suite in suites for figure in _weights(suite, runs, colour)),
        gains=_gains(runs, rows, colour),
        commands=made,
        this=f"winnow report {shlex.join([str(folder)])} --html {shlex.join([str(path)])}",
        version=__version__,
        versions=origin.versions(runs),
        settings=origin.settings(runs),
    )


def _some(found: Iterable[dict[str, Any] | None]) -> list[dict[str, Any]]:
    return [one for one in found if one]


def _named(names: Iterable[str]) -> dict[str, Any]:
    every = list(names)
    return {"count": len(every), "first": every[:NAMED]}


def _counts(runs: Sequence[Run]) -> dict[str, int]:
    fields = {"datasets": "dataset", "algorithms": "algorithm", "methods": "label", "seeds": "seed"}
    return {"runs": len(runs)} | {name: len({getattr(run, field) for run in runs}) for name, field in fields.items()}


# ---------------------------------------------------------------------------------------------------------- in words


def _short(lines: Sequence[Line]) -> dict[str, Any]:
    """The best of each suite and algorithm, and whether that can be said."""
    algorithms = list(dict.fromkeys(line.algorithm for line in lines))
    body = []
    for suite in dict.fromkeys(line.suite for line in lines):
        cells: list[dict[str, Any] | None] = []
        for algorithm in algorithms:
            some = [line for line in lines if (line.suite, line.algorithm) == (suite, algorithm) and line.iqm]
            first = max(some, key=lambda line: line.iqm.value if line.iqm else 0.0, default=None)
            cells.append(first and {"line": first, "value": _value(first), "gain": _gain(first)})
        body.append({"suite": suite, "cells": cells})
    return {"algorithms": algorithms, "body": body}


def _gain(line: Line) -> str:
    if line.gain is None:
        return ""
    about = f" {interval(*line.gain.iqm[1:3], True)}" if line.gain.iqm.seeds > 1 else ""
    return f"{number(line.gain.iqm.value, True)}{about} over {numbers.BASE}"


def _value(line: Line) -> str:
    if line.iqm is None:
        return "no score"
    return f"{number(line.iqm.value)} {interval(line.iqm.low, line.iqm.high)}" if line.has_interval else (
        f"{number(line.iqm.value)} (1 seed, no interval)"
    )  # fmt: skip


def _with_zeros(lines: Sequence[Line]) -> list[str]:
    return [
        f"{line.suite}, {line.algorithm}, {line.label}: IQM {number(line.iqm.value) if line.iqm else 'none'} without "
        f"{line.failed} failed run{'s' if line.failed > 1 else ''}, {number(line.with_zeros)} with 0 for each"
        for line in lines
        if line.failed
    ]


# ----------------------------------------------------------------------------------------------------------- figures


def _picture(figure: Any, title: str, alt: str) -> dict[str, Any]:
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    return {"title": title, "src": pages.embedded(figure), "alt": alt, "width": width, "height": height}


def _by_algorithm(lines: Sequence[Line]) -> dict[str, list[Line]]:
    return {name: [one for one in lines if one.algorithm == name] for name in dict.fromkeys(x.algorithm for x in lines)}


def _iqm(suite: str, lines: Sequence[Line], colour: Mapping[str, str]) -> dict[str, Any]:
    values = {
        algorithm: {
            line.label: Bar(line.iqm.value, line.iqm[1:3] if line.has_interval else None, line.published)
            for line in some
            if line.iqm
        }
        for algorithm, some in _by_algorithm(lines).items()
    }
    values = {algorithm: bars for algorithm, bars in values.items() if bars}
    said = [
        f"{line.algorithm} {line.label} {_value(line)}"
        + (f", paper {number(line.published)}" if line.published is not None else "")
        for line in lines
    ]
    notes: dict[str, int] = {}
    body = [_line(line, notes) for line in lines]
    drawn = figures.bars(values, colour, "IQM of normalised scores", published.LABEL) if values else None
    title = f"IQM on {suite}: these runs (bars) with 95 % intervals; grey: {published.LABEL}"
    alt = f"Bars of the IQM for {suite}. {'; '.join(said)}."
    return {
        "suite": suite,
        "figure": _picture(drawn, title, alt) if drawn else None,
        "lines": body,
        "notes": list(notes),
        "uneven": tables.uneven(lines),
    }


def _line(line: Line, notes: dict[str, int]) -> dict[str, Any]:
    """A line of the table of IQMs; warnings are numbered as they come."""
    gain, iqm = line.gain, line.iqm

    def note(warning: str | None) -> int | None:
        return notes.setdefault(warning, len(notes) + 1) if warning else None

    return {
        "line": line,
        "iqm": number(iqm.value) if iqm else "–",
        "interval": interval(iqm.low, iqm.high) if iqm and line.has_interval else "",
        "note": note(iqm.warning) if iqm else None,
        "paper": number(line.published),
        "gain": number(gain.iqm.value, True) if gain else "",
        "gain_interval": interval(*gain.iqm[1:3], True) if gain and gain.iqm.seeds > 1 else "",
        "gain_note": note(gain.iqm.warning) if gain else None,
        "paper_gain": number(line.published_gain, True),
        "better": f"{gain.improvement.value:.0%}" if gain else "",
        "wins": f"{gain.wins} of {line.shared}" if gain else "",
        "datasets": len(line.scores),
        "seeds": _range([len(seeds) for seeds in line.scores.values()]),
    }


def _range(counts: Sequence[int]) -> str:
    if not counts:
        return "–"
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _profiles(suite: str, lines: Sequence[Line], colour: Mapping[str, str]) -> dict[str, Any] | None:
    values: dict[str, dict[str, Band]] = {}
    said = []
    mine = [line for line in lines if line.suite == suite and line.iqm]
    highest = max((score for line in mine for seeds in line.scores.values() for score in seeds), default=0.0)
    for line in mine:
        found = numbers.profile(line, max(10.0, 10 * math.ceil(highest / 10)))
        band = (found.low, found.high) if line.has_interval else None
        values.setdefault(line.algorithm, {})[line.label] = Band(found.thresholds, found.share, band)  # pyright: ignore[reportArgumentType]
        above = [score > 50 for seeds in line.scores.values() for score in seeds]
        said.append(f"{line.algorithm} {line.label} {sum(above) / len(above):.0%}")
    if not values:
        return None
    drawn = figures.bands(values, colour, "normalised score τ", "share of runs above τ", 1.02)
    return _picture(
        drawn, suite, f"Performance profiles for {suite}. Share of runs above a score of 50: {'; '.join(said)}."
    )


def _lines_of(
    suite: str, runs: Sequence[Run], of: Callable[[list[Run]], Mapping[Any, float]]
) -> dict[str, dict[str, Mapping[Any, float]]]:
    """Curves by algorithm and method, where there are any."""
    found: dict[str, dict[str, Mapping[Any, float]]] = {}
    some = [run for run in runs if run.suite == suite]
    for (algorithm, label), same in numbers.grouped(some, "algorithm", "label").items():
        if points := of(same):
            found.setdefault(algorithm, {})[label] = points
    return found


def _ends(found: Mapping[str, Mapping[str, Mapping[Any, float]]], form: str) -> str:
    return "; ".join(
        f"{algorithm} {label} {format(list(points.values())[-1], form)}"
        for algorithm, by_label in found.items()
        for label, points in by_label.items()
    )


def _bands(found: Mapping[str, Mapping[str, Mapping[Any, float]]]) -> dict[str, dict[str, Band]]:
    return {
        algorithm: {label: Band(list(points), list(points.values())) for label, points in by_label.items()}
        for algorithm, by_label in found.items()
    }


def _curves(suite: str, runs: Sequence[Run], colour: Mapping[str, str]) -> dict[str, Any] | None:
    found = _lines_of(suite, runs, lambda same: numbers.curve(same, "curve"))
    if not found:
        return None
    drawn = figures.bands(_bands(found), colour, "updates", "normalised score")
    return _picture(drawn, suite, f"Learning curves for {suite}. Mean score in the last round: {_ends(found, '.1f')}.")


def _weights(suite: str, runs: Sequence[Run], colour: Mapping[str, str]) -> list[dict[str, Any] | None]:
    """Shares of the weight by source, where there are several, and the effective sample size over training."""
    pictures: list[dict[str, Any] | None] = []
    if parts := _lines_of(suite, runs, numbers.good_shares):
        said = [
            f"{algorithm} {label} {', '.join(f'{part:.0%} at {share:g} %' for share, part in points.items())}"
            for algorithm, by_label in parts.items()
            for label, points in by_label.items()
        ]
        alt = f"Share of the weight on the good source for {suite}, by its share of the rows: {'; '.join(said)}."
        pictures.append(
            _picture(figures.shares(parts, colour), f"{suite}: share of the weight on the good source", alt)
        )
    if sizes := _lines_of(suite, runs, lambda same: numbers.curve(same, "ess")):
        drawn = figures.bands(_bands(sizes), colour, "updates", "effective sample size / batch", 1.05)
        ends = _ends(sizes, ".0%")
        alt = f"Effective sample size of the weights for {suite}, as a part of the batch. At the end: {ends}."
        pictures.append(_picture(drawn, f"{suite}: effective sample size over training", alt))
    return pictures


def _gains(runs: Sequence[Run], rows: Sequence[Row], colour: Mapping[str, str]) -> dict[str, Any]:
    """Gain over uniform against imbalance, or which datasets' imbalance is not known."""
    known = gains.imbalance(runs)
    unknown = [dataset for dataset in dict.fromkeys(run.dataset for run in runs) if dataset not in known]
    points: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for one in gains.gains(rows, known):
        if one.rpsv > 0:
            points.setdefault(one.algorithm, {}).setdefault(one.label, []).append((one.rpsv, one.gain))
    figure = None
    if points:
        said = [
            f"{algorithm} {label} {sum(gain > 0 for _, gain in dots)} of {len(dots)}"
            for algorithm, by_label in points.items()
            for label, dots in by_label.items()
        ]
        drawn = figures.scatter(points, colour, "RPSV of returns scaled to [0, 1]", "gain over uniform")
        alt = (
            f"Gain over uniform against RPSV. Datasets on which a method's mean is above uniform's: {'; '.join(said)}."
        )
        figure = _picture(drawn, "gain over uniform against RPSV", alt)
    return {"figure": figure, "unknown": _named(unknown), "known": len(known), "base": numbers.BASE}


# -------------------------------------------------------------------------------------------------------- the table


def _row(row: Row, order: Sequence[str]) -> dict[str, Any]:
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
                "best": bool(cell and cell.best),
                "paper": number(cell.published) if cell else "",
            }
        )
    return {"row": row, "share": "" if row.share is None else f"{row.share:g}", "cells": cells}


def _filters(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The choices of each filter, in order; one that would change nothing is left out."""
    choices = {
        "suite": [row.suite for row in rows],
        "environment": [row.environment for row in rows],
        "level": [row.level for row in rows],
        "share": [f"{share:g}" for share in sorted({row.share for row in rows if row.share is not None})],
        "algorithm": [row.algorithm for row in rows],
    }
    words = {"share": "σ (share of good rows, %)"}
    return [
        {"name": name, "title": words.get(name, name), "choices": found}
        for name, every in choices.items()
        if len(found := [one for one in dict.fromkeys(every) if one]) > 1
    ]
