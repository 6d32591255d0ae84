"""State–action maps: each cell has four triangles, one for each move, darker for more weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from winnow.render.figures import COLOURS
from winnow.tabular.grid import MOVES, Grid

SHADES = ("#FFFFFF", "#9CCBE8", "#0072B2", "#00263B")
WALL = "#5B5B5B"
LINE = "#E2E2E2"
START = COLOURS[1]
GOAL = COLOURS[2]


def draw(grid: Grid, maps: Mapping[str, np.ndarray], below: Mapping[str, str], title: str, columns: int = 4) -> Any:
    """A panel for each map [S, 4], with a line of text under its name. All share one scale, clipped at the fraction
    that each step of a shortest path has: anything darker can't be an optimal flow."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    rows = -(-len(maps) // columns)
    figure = Figure(figsize=(3.0 * columns + 0.9, 3.5 * rows + 0.5), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.12)  # pyright: ignore
    axes = figure.subplots(rows, columns, squeeze=False)
    colours = LinearSegmentedColormap.from_list("weight", SHADES)
    scale = PowerNorm(0.5, 0.0, float(1 / grid.least_steps[0]), clip=True)
    for axis, (name, map_) in zip(axes.flat, maps.items(), strict=False):
        _panel(axis, grid, colours(scale(map_)))
        axis.set_title(name, fontsize=10.5, fontweight="bold", pad=18)
        axis.text(0.5, 1.025, below[name], transform=axis.transAxes, ha="center", fontsize=8.5, color="#444444")
    for axis in axes.flat[len(maps) :]:
        axis.axis("off")
    bar = figure.colorbar(ScalarMappable(scale, colours), ax=axes, extend="max", shrink=0.7, aspect=35, pad=0.012)
    bar.set_label("fraction of the weighted data", fontsize=8.5)
    bar.ax.tick_params(labelsize=8)
    figure.suptitle(f"{title}\n", fontsize=11)
    marks = [
        Line2D([], [], ls="", marker="s", ms=9, mfc="none", mec=colour, mew=2, label=label)
        for colour, label in ((START, "start"), (GOAL, "goal: pays 1, then back to the start"))
    ]
    marks.append(Line2D([], [], ls="", label="each triangle points in the direction of its move"))
    figure.legend(handles=marks, loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
    return figure


def _panel(axis: Any, grid: Grid, colour: np.ndarray) -> None:
    """The rooms with a colour [S, 4, RGBA] for each triangle."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Rectangle

    height = len(grid.rooms)
    width = len(grid.rooms[0])
    axis.add_patch(Rectangle((-0.5, -0.5), width, height, facecolor=WALL, edgecolor=WALL, lw=3))
    corners = [[(x + (dx - dy) / 2, y + (dx + dy) / 2), (x + (dx + dy) / 2, y + (dy - dx) / 2), (x, y)]
               for y, x in grid.cells[: grid.states] for dy, dx in MOVES]  # fmt: skip
    axis.add_collection(PolyCollection(corners, facecolors=colour.reshape(-1, 4), edgecolors=LINE, linewidths=0.35))
    for (y, x), edge in ((grid.cells[0], START), (grid.cells[-1], GOAL)):
        axis.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor=edge, lw=2, zorder=3))
    axis.set(xlim=(-0.6, width - 0.4), ylim=(height - 0.4, -0.6), aspect="equal", xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
