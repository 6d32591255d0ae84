"""A heat map of scores over two settings: one square for each pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Square(NamedTuple):
    """Scores by row and column; NaN where there is none."""

    rows: Sequence[float]
    columns: Sequence[float]
    values: np.ndarray


def squares(values: Mapping[str, Square], down: str, across: str) -> Any:
    """A map for each title, side by side on one colour scale, with the number in each square."""
    from winnow.render import figures

    figure, axes = figures.panels(max(5.5, 2.9 * len(values)), 2.6, len(values))
    every = np.concatenate([square.values.ravel() for square in values.values()])
    low = float(np.nanmin(every))
    high = float(np.nanmax(every))
    middle = (low + high) / 2
    for axis, (title, square) in zip(axes, values.items(), strict=True):
        shown = np.ma.masked_invalid(square.values)
        axis.imshow(shown, cmap="Blues", vmin=low, vmax=max(high, low + 1e-9), aspect="auto")
        for (row, column), value in np.ndenumerate(square.values):
            text = "–" if np.isnan(value) else f"{value:.1f}"
            colour = "white" if value > middle else "black"
            axis.text(column, row, text, ha="center", va="center", fontsize=9, color=colour)
        axis.set_xticks(range(len(square.columns)), [f"{number:g}" for number in square.columns])
        axis.set_yticks(range(len(square.rows)), [f"{number:g}" for number in square.rows])
        axis.set_title(title, fontsize=9)
        axis.set_xlabel(across, fontsize=8)
        axis.tick_params(labelsize=8, length=0)
        axis.grid(False)
        axis.spines[:].set_visible(False)
    axes[0].set_ylabel(down, fontsize=8)
    return figure
