"""A map of scores over two settings: one square for each pair, ours above the paper's."""

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
    """A map for each title, side by side on one scale; every square says its number."""
    from winnow.render import figures

    figure, axes = figures.panels(max(5.5, 2.9 * len(values)), 2.6, len(values))
    every = np.concatenate([one.values.ravel() for one in values.values()])
    low, high = float(np.nanmin(every)), float(np.nanmax(every))
    middle = (low + high) / 2
    for axis, (title, one) in zip(axes, values.items(), strict=True):
        axis.imshow(np.ma.masked_invalid(one.values), cmap="Blues", vmin=low, vmax=max(high, low + 1e-9), aspect="auto")
        for (row, column), value in np.ndenumerate(one.values):
            said, light = ("–", False) if np.isnan(value) else (f"{value:.1f}", value > middle)
            axis.text(column, row, said, ha="center", va="center", fontsize=9, color="white" if light else "black")
        axis.set_xticks(range(len(one.columns)), [f"{number:g}" for number in one.columns])
        axis.set_yticks(range(len(one.rows)), [f"{number:g}" for number in one.rows])
        axis.set_title(title, fontsize=9)
        axis.set_xlabel(across, fontsize=8)
        axis.tick_params(labelsize=8, length=0)
        axis.grid(False)
        axis.spines[:].set_visible(False)
    axes[0].set_ylabel(down, fontsize=8)
    return figure
