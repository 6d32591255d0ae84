"""A study on the page: what it asks, its variants' IQMs, its datasets side by side, and a map of two settings."""

from __future__ import annotations

from typing import Any

import numpy as np

from winnow.render import figures
from winnow.report import heatmap, published, tables
from winnow.report.page_parts import iqms, picture
from winnow.report.runs import labels
from winnow.report.studies import Map, Told, groups, maps
from winnow.report.tables import number


def section(one: Told) -> dict[str, Any]:
    """What the page says of a study."""
    order = labels(one.runs)
    colour = figures.colours(order)
    suites = list(dict.fromkeys(line.suite for line in one.lines))
    found = maps(one)
    drawn = dict.fromkeys(each.suite for each in found)
    return {
        "name": one.study.name,
        "about": tables.about(one),
        "iqms": [iqms(suite, [line for line in one.lines if line.suite == suite], colour) for suite in suites],
        "maps": [_map(one, suite, [each for each in found if each.suite == suite]) for suite in drawn],
        "tables": [
            {
                "title": f"{suite}, {algorithm}",
                "datasets": [row.dataset for row in rows],
                "body": [
                    {"label": label, "cells": [_cell(row.cells.get(label)) for row in rows]}
                    for label in order
                    if any(label in row.cells for row in rows)
                ],
            }
            for (suite, algorithm), rows in tables.side_by_side(one).items()
        ],
        "head": tables.TUNED,
        "groups": [tables.tuned(group) for group in groups(one)],
    }


def _cell(cell: Any) -> dict[str, Any] | None:
    if cell is None:
        return None
    return {"text": tables.cell_text(cell), "best": cell.best, "paper": number(cell.published)}


def _map(one: Told, suite: str, found: list[Map]) -> dict[str, Any]:
    """Ours for each algorithm, and beside it the paper's, where there is any."""
    values: dict[str, heatmap.Square] = {}
    said = []
    (_, down), (_, across) = one.study.axes
    for each in found:
        values[f"{each.algorithm}, these runs"] = heatmap.Square(each.rows, each.columns, each.ours)
        if np.isfinite(each.paper).any():
            values[f"{each.algorithm}, {published.LABEL}"] = heatmap.Square(each.rows, each.columns, each.paper)
        for (row, column), score in np.ndenumerate(each.ours):
            if np.isfinite(score):
                theirs = each.paper[row, column]
                beside = f" (paper {number(float(theirs))})" if np.isfinite(theirs) else ""
                place = f"{down} {each.rows[row]:g}, {across} {each.columns[column]:g}"
                said.append(f"{each.algorithm} {place}: {number(float(score))}{beside}")
    title = f"IQM on {suite} over {down} and {across}; darker is higher, on one scale"
    return picture(heatmap.squares(values, down, across), title, f"Map of the IQM on {suite}. {'; '.join(said)}.")
