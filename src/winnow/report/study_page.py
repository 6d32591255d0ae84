"""A study on the page: its question, its variants' IQMs, its datasets side by side, and a map of two settings."""

from __future__ import annotations

from typing import Any

import numpy as np

from winnow.render import figures
from winnow.report import heatmap, published, tables
from winnow.report.page_parts import iqms, picture
from winnow.report.runs import labels
from winnow.report.studies import Map, StudyReport, groups, maps
from winnow.report.tables import number


def section(report: StudyReport) -> dict[str, Any]:
    """The page's section about a study."""
    order = labels(report.runs)
    colour = figures.colours(order)
    suites = list(dict.fromkeys(line.suite for line in report.lines))
    scores = maps(report)
    drawn = dict.fromkeys(each.suite for each in scores)
    return {
        "name": report.study.name,
        "about": tables.about(report),
        "iqms": [iqms(suite, [line for line in report.lines if line.suite == suite], colour) for suite in suites],
        "maps": [_map(report, suite, [each for each in scores if each.suite == suite]) for suite in drawn],
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
            for (suite, algorithm), rows in tables.side_by_side(report).items()
        ],
        "head": tables.TUNED,
        "groups": [tables.tuned(group) for group in groups(report)],
    }


def _cell(cell: Any) -> dict[str, Any] | None:
    if cell is None:
        return None
    return {"text": tables.cell_text(cell), "best": cell.best, "paper": number(cell.published)}


def _map(report: StudyReport, suite: str, scores: list[Map]) -> dict[str, Any]:
    """Our map for each algorithm, and beside it the paper's if there is one."""
    values: dict[str, heatmap.Square] = {}
    texts = []
    (_, down), (_, across) = report.study.axes
    for each in scores:
        values[f"{each.algorithm}, these runs"] = heatmap.Square(each.rows, each.columns, each.ours)
        if np.isfinite(each.paper).any():
            values[f"{each.algorithm}, {published.LABEL}"] = heatmap.Square(each.rows, each.columns, each.paper)
        for (row, column), score in np.ndenumerate(each.ours):
            if np.isfinite(score):
                theirs = each.paper[row, column]
                beside = f" (paper {number(float(theirs))})" if np.isfinite(theirs) else ""
                cell = f"{down} {each.rows[row]:g}, {across} {each.columns[column]:g}"
                texts.append(f"{each.algorithm} {cell}: {number(float(score))}{beside}")
    title = f"IQM on {suite} over {down} and {across}; darker is higher, on one scale"
    return picture(heatmap.squares(values, down, across), title, f"Map of the IQM on {suite}. {'; '.join(texts)}.")
