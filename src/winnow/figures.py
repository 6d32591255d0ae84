"""Pictures. Each function draws one figure and returns it; nothing here computes what it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from winnow.data.dataset import Dataset
from winnow.files import replacing

# Okabe and Ito's colours: told apart by colour-blind readers too
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")


def panels(width: float, height: float, columns: int) -> tuple[Any, Any]:
    """An empty figure with so many plots side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", alpha=0.25)
        axis.set_axisbelow(True)
    return figure, axes


def save(figure: Any, path: str | Path) -> None:
    """Write a figure as what its name says (.svg, .png, .pdf), whole or not at all."""
    with replacing(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix.lstrip("."), dpi=150)


def weights(dataset: Dataset, weight: np.ndarray, title: str) -> Any:
    """Where the weight went: each source's share, the spread inside each, and along the episodes."""
    figure, (shares, spread, along) = panels(12, 3.6, 3)
    figure.suptitle(title, fontsize=10)
    labels, source, step = dataset.meta.sources, dataset.source, dataset.step
    places = np.arange(len(labels))
    of_rows = [float(np.mean(source == i)) for i in places]
    of_weight = [float(weight[source == i].sum() / weight.sum()) for i in places]
    shares.bar(places - 0.2, of_rows, 0.38, label="of the rows", color="#BBBBBB")
    shares.bar(places + 0.2, of_weight, 0.38, label="of the weight", color=[COLOURS[i % 8] for i in places])
    shares.set_xticks(places, labels)
    shares.set_ylim(0, 1.12)
    for place, part in zip(places, of_weight, strict=True):
        shares.text(place + 0.2, part + 0.02, f"{part:.0%}", ha="center", fontsize=8)
    shares.set_title("share of each source", fontsize=10)
    shares.legend(frameon=False, fontsize=8)

    floor = 1e-4
    edges = np.linspace(np.log10(floor), max(np.log10(weight.max()), 0.5), 50)
    for i, label in enumerate(labels):
        values = np.log10(np.maximum(weight[source == i], floor))
        spread.hist(values, edges, weights=np.full(len(values), 1 / max(len(values), 1)), histtype="step", lw=1.5,
                    color=COLOURS[i % 8], label=label)  # fmt: skip
    spread.axvline(0, color="#888888", lw=0.8, ls=":")
    spread.set_title("weights inside each source", fontsize=10)
    spread.set_xlabel("log₁₀ weight (0 = as in the data; the left edge holds all that is smaller)", fontsize=8)
    spread.set_ylabel("share of rows", fontsize=8)

    longest = int(step.max()) + 1
    bins = np.unique(np.linspace(0, longest, min(longest, 100) + 1).astype(int))
    for i, label in enumerate(labels):
        inside = source == i
        count, _ = np.histogram(step[inside], bins)
        total, _ = np.histogram(step[inside], bins, weights=weight[inside])
        seen = count > 0
        along.plot(bins[:-1][seen], total[seen] / count[seen], color=COLOURS[i % 8], lw=1.5, label=label)
    along.set_yscale("symlog", linthresh=1e-3)
    along.set_title("mean weight along episodes", fontsize=10)
    along.set_xlabel("step of the episode", fontsize=8)
    along.legend(frameon=False, fontsize=8)
    return figure


def scores(values: Mapping[str, Sequence[float]], title: str, marks: Mapping[str, float]) -> Any:
    """One bar for each method, one dot for each seed, and lines to compare with."""
    figure, (axis,) = panels(1.2 + 1.1 * len(values), 3.6, 1)
    for place, seeds in enumerate(values.values()):
        axis.bar(place, np.mean(seeds), 0.62, color=COLOURS[place % 8], alpha=0.75)
        axis.plot(np.full(len(seeds), place), seeds, "o", ms=4, color="black", alpha=0.7)
    axis.set_xticks(range(len(values)), list(values), rotation=20)
    for name, height in marks.items():
        axis.axhline(height, color="#888888", lw=0.8, ls=":")
        axis.text(len(values) - 0.4, height, name, va="bottom", ha="right", fontsize=8, color="#666666")
    axis.set_ylabel("normalised score")
    axis.set_title(title, fontsize=10)
    return figure


def returns(datasets: Mapping[str, Dataset], bins: int = 60) -> Any:
    """How the episodes' returns are spread, a plot for each dataset and a colour for each source."""
    figure, axes = panels(5.2 * len(datasets), 3.4, len(datasets))
    for axis, (title, dataset) in zip(axes, datasets.items(), strict=True):
        got, source = dataset.returns, dataset.episodes.source
        edges = np.linspace(got.min(), max(got.max(), got.min() + 1e-6), bins + 1)
        for i, label in enumerate(dataset.meta.sources):
            axis.hist(got[source == i], edges, color=COLOURS[i % 8], alpha=0.7, label=label)
        axis.set_yscale("log")
        axis.set_ylim(bottom=0.7)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("return of an episode", fontsize=8)
        axis.set_ylabel("episodes", fontsize=8)
        axis.legend(frameon=False, fontsize=8)
    return figure


def curves(values: Mapping[str, Mapping[int, Sequence[float]]], title: str) -> Any:
    """Scores while training: a line through the mean of the seeds for each method, a dot for each seed."""
    figure, (axis,) = panels(6.4, 3.6, 1)
    for i, (method, points) in enumerate(values.items()):
        steps = sorted(points)
        axis.plot(steps, [np.mean(points[step]) for step in steps], color=COLOURS[i % 8], lw=1.6, label=method)
        for step in steps:
            axis.plot([step] * len(points[step]), points[step], "o", ms=2.5, color=COLOURS[i % 8], alpha=0.6)
    axis.set_xlabel("updates", fontsize=8)
    axis.set_ylabel("normalised score")
    axis.set_title(title, fontsize=10)
    axis.legend(frameon=False, fontsize=8)
    return figure
