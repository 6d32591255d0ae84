"""The two pictures of docs/concepts.md: the way of the data, and what a batch looks like to the algorithm.

python docs/images/concepts.py FOLDER        FOLDER is where the blocks of docs/start.md have been run

Writes docs/images/way.png and docs/images/batches.png.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from winnow import PF, open_dataset
from winnow.data.dataset import Dataset
from winnow.render import figures
from winnow.training.trained import Trained

HERE = Path(__file__).parent
DRAWN = 1500
GREY, BLUE, ORANGE, GREEN = "#999999", *figures.COLOURS[:3]


def main() -> None:
    folder = Path(sys.argv[1])
    figures.save(way(), HERE / "way.png")
    data = open_dataset(str(folder / "dome.safetensors"))
    figures.save(batches(data, folder / "runs"), HERE / "batches.png")


def batches(data: Dataset, runs: Path) -> Any:
    """Rows as often as they count: drawn by p·w."""
    weights = {"uniform": np.ones(len(data)), "pf": len(data) * PF().probabilities(data)}
    for method in ("aw", "dual-uniform"):
        (file,) = runs.glob(f"*.{method}.seed0.safetensors")
        weights[method] = Trained.load(file, data).weights().weight
    figure, axes = figures.panels(12, 3.4, len(weights))
    state, expert = data.rows().obs, data.source == data.meta.sources.index("expert")
    for axis, (method, weight) in zip(axes, weights.items(), strict=True):
        rows = np.random.default_rng(0).choice(len(data), DRAWN, p=weight / weight.sum())
        for shown, colour, label in ((rows[~expert[rows]], GREY, "random"), (rows[expert[rows]], ORANGE, "expert")):
            axis.scatter(
                np.hypot(*state[shown, :2].T), np.hypot(*state[shown, 2:].T), s=5, color=colour, lw=0, label=label
            )
        axis.set(xlim=(0, 1.1), ylim=(0, 1.5), xlabel="distance from the top", ylabel="speed")
        axis.set_title(f"{method}: {expert[rows].mean():.0%} expert", fontsize=11)
    axes[0].legend(frameon=False, fontsize=8, markerscale=3)
    return figure


def way() -> Any:
    """The parts in the order in which data passes them."""
    figure, (axis,) = figures.panels(11, 3, 1)
    axis.set(xlim=(0, 11), ylim=(0, 3))
    axis.axis("off")
    boxes = {
        "dataset": (0.9, 1.6, BLUE, "rows and episodes,\nchecked once"),
        "sampler": (2.8, 1.6, ORANGE, "p: how often\na row is drawn"),
        "batch": (4.5, 1.6, BLUE, "256 rows"),
        "weighter": (6.3, 2.5, ORANGE, "w: how much\na row counts"),
        "algorithm": (7.0, 0.7, GREEN, "losses Σ w · loss"),
        "policy": (8.7, 1.6, BLUE, "observation\nto action"),
        "returns": (10.2, 1.6, GREY, "played, or estimated\nwithout a simulator"),
    }
    for name, (x, y, colour, about) in boxes.items():
        box = {"boxstyle": "round,pad=0.5", "fc": "white", "ec": colour, "lw": 2}
        axis.text(x, y, name, ha="center", va="center", fontsize=12, weight="bold", color=colour, bbox=box)
        axis.text(x, y - 0.35, about, ha="center", va="top", fontsize=9, color="#444444")
    ways = (
        ((1.5, 1.6), (2.15, 1.6)),
        ((3.45, 1.6), (3.98, 1.6)),
        ((5.0, 1.75), (5.6, 2.3)),
        ((5.0, 1.45), (6.2, 0.85)),
        ((6.95, 2.3), (7.1, 1.05)),
        ((7.75, 0.9), (8.3, 1.3)),
        ((9.2, 1.6), (9.65, 1.6)),
    )
    for begin, end in ways:
        arrow = {"arrowstyle": "-|>", "lw": 1.6, "color": "#555555", "mutation_scale": 16}
        axis.annotate("", end, begin, arrowprops=arrow)
    return figure


if __name__ == "__main__":
    main()
