"""Parts of the page for grids and studies: figures, and the IQMs of a suite as bars and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from winnow.render import figures, pages
from winnow.render.figures import Bar
from winnow.report import published, tables
from winnow.report.statistics import Line
from winnow.report.tables import interval, number

MAX_SIDE_BY_SIDE = 12
"""Maximum number of methods for which several algorithms have their bars side by side."""


def value(line: Line) -> str:
    if line.iqm is None:
        return "no score"
    return f"{number(line.iqm.value)} {interval(line.iqm.low, line.iqm.high)}" if line.has_interval else (
        f"{number(line.iqm.value)} (1 seed, no interval)"
    )  # fmt: skip


def picture(figure: Any, title: str, alt: str) -> dict[str, Any]:
    return {"title": title} | pages.picture(figure, alt)


def _by_algorithm(lines: Sequence[Line]) -> dict[str, list[Line]]:
    return {
        name: [line for line in lines if line.algorithm == name] for name in dict.fromkeys(x.algorithm for x in lines)
    }


def iqms(suite: str, lines: Sequence[Line], colour: Mapping[str, str]) -> dict[str, Any]:
    """The IQMs of a suite: bars of all algorithms side by side (or one below the other if they are many), and a
    table."""
    values = {
        algorithm: {
            line.label: Bar(line.iqm.value, line.iqm[1:3] if line.has_interval else None, line.published)
            for line in same
            if line.iqm
        }
        for algorithm, same in _by_algorithm(lines).items()
    }
    values = {algorithm: bars for algorithm, bars in values.items() if bars}
    notes: dict[str, int] = {}
    body = [_line(line, notes) for line in lines]
    apart = max(map(len, values.values()), default=0) > MAX_SIDE_BY_SIDE
    drawn = [{name: bars} for name, bars in values.items()] if apart else [values] if values else []
    return {
        "suite": suite,
        "figures": [_bars(suite, same, [line for line in lines if line.algorithm in same], colour) for same in drawn],
        "lines": body,
        "notes": list(notes),
        "uneven": tables.uneven(lines),
    }


def _bars(
    suite: str, values: Mapping[str, Mapping[str, Bar]], lines: Sequence[Line], colour: Mapping[str, str]
) -> dict[str, Any]:
    texts = [
        f"{line.algorithm} {line.label} {value(line)}"
        + (f", paper {number(line.published)}" if line.published is not None else "")
        for line in lines
    ]
    title = f"IQM on {suite}: these runs (bars) with 95 % intervals; grey: {published.LABEL}"
    drawn = figures.bars(values, colour, "IQM of normalised scores", published.LABEL)
    return picture(drawn, title, f"Bars of the IQM for {suite}. {'; '.join(texts)}.")


def _line(line: Line, notes: dict[str, int]) -> dict[str, Any]:
    """A line of the table of IQMs; warnings are numbered in order of appearance."""
    gain = line.gain
    iqm = line.iqm

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
