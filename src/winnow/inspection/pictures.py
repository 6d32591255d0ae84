"""The page's figures: how returns are spread, and how weights are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.imbalance import Imbalance
from winnow.inspection import weightings
from winnow.inspection.weightings import Weighting
from winnow.render import figures
from winnow.render.figures import COLOURS


def spread(data: Dataset, measured: Imbalance) -> Any:
    """How returns are spread, by source; rewards where there are no returns."""
    if data.has_episodes:
        return figures.returns({"": data.describe(sources=tuple(map(figures.plain, data.meta.sources)))})
    figure, (axis,) = figures.panels(5.2, 3.4, 1)
    edges = np.array(measured.histogram_edges)
    axis.bar(edges[:-1], measured.histogram, np.diff(edges), align="edge", color=COLOURS[0], alpha=0.7)
    axis.set_yscale("log")
    axis.set_ylim(bottom=0.7)
    axis.set_xlabel("reward of a row", fontsize=8)
    axis.set_ylabel("rows", fontsize=8)
    return figure


def comparison(data: Dataset, compared: Sequence[Weighting]) -> Any:
    """Where the weight lies: on the best rows, over returns, and along episodes."""
    of = "return" if data.has_episodes else "reward"
    score = weightings.scores(data)
    weights = [weighting.weight for weighting in compared]
    long = data.has_episodes and data.episodes.length.max() > 1
    figure, (best, over, *rest) = figures.panels(12 if long else 8.2, 3.9, 3 if long else 2)
    colour = figures.colours([weighting.name for weighting in compared])
    part, lines = weightings.on_the_best(score, weights)
    edges, shares = weightings.over_scores(score, weights)
    # The first lines are the thickest: one that lies below another is still seen.
    thick = dict(zip(colour, np.linspace(4, 1.2, len(colour)) if len(colour) > 1 else [2.0], strict=True))
    drawn = [(best, 100 * part, line, name) for name, line in zip(colour, lines, strict=True)]
    if long:
        steps, means = weightings.along_episodes(data, weights)
        drawn += [(rest[0], steps, line, name) for name, line in zip(colour, means, strict=True)]
    for axis, x, y, name in drawn:
        axis.plot(x, y, color=colour[name], lw=thick[name])
    for name, line in zip(colour, shares, strict=True):
        over.stairs(line, edges, color=colour[name], lw=thick[name])
    best.set_title(f"weight on the rows of highest {of}", fontsize=10)
    best.set_xlabel("best part of the rows, %", fontsize=8)
    best.set_ylabel("share of the weight", fontsize=8)
    over.set_title(f"weight over {of}s", fontsize=10)
    over.set_xlabel(f"{of} of the row's episode" if data.has_episodes else "reward of the row", fontsize=8)
    over.set_yscale("symlog", linthresh=1e-3)
    over.set_ylim(bottom=0)
    if long:
        rest[0].set_title("mean weight along episodes", fontsize=10)
        rest[0].set_xlabel("step of the episode", fontsize=8)
        rest[0].set_yscale("symlog", linthresh=0.1)
        rest[0].set_ylim(bottom=0)
    figures.legend(figure, {"": colour}, colour)
    return figure
