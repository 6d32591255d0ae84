"""Figures. Each function draws one figure and returns it; nothing here computes what is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from winnow.data.dataset import Dataset
from winnow.system.files import replacing

# Okabe and Ito's colours, which colour-blind readers can distinguish
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")
METHOD_COLOURS = {
    "uniform": "#8C8C8C",
    "auto": "#6A3D9A",
    "aw": "#0072B2",
    "rw": "#56B4E9",
    "pf": "#E69F00",
    "red": "#B8860B",
    "odpr-r": "#D9B44A",
    "odpr-a": "#7A5C00",
    "dw-uniform": "#F2A27E",
    "dw-uniform-script": "#F7C6B0",
    "dw-uniform-text": "#C98B70",
    "dw-aw": "#D55E00",
    "dw-aw-script": "#E58A4D",
    "dw-aw-text": "#A64900",
    "dual-uniform": "#66C2A5",
    "dual-aw": "#009E73",
    "dual-paths-uniform": "#A6D8C6",
    "dual-paths-aw": "#00664B",
    "optidice-w": "#F0E442",
    "continued": "#CC79A7",
    "followed": "#9B3F77",
    "dw-continued": "#E3B3CF",
    "dual-continued": "#5F2549",
    "best-source": "#000000",
}
"""A method has this colour in every figure, whatever else the figure shows. Relatives share a hue."""


def panels(width: float, height: float, columns: int, rows: int = 1) -> tuple[Any, Any]:
    """An empty figure with so many plots side by side, and its plots, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", alpha=0.25)
        axis.set_axisbelow(True)
    return figure, axes


def save(figure: Any, path: str | Path) -> None:
    """Write a figure in the format of its ending (.svg, .png, .pdf), whole or not at all."""
    with replacing(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix.lstrip("."), dpi=150)


def weights(dataset: Dataset, weight: np.ndarray, title: str) -> Any:
    """The weights: each source's share, their distribution within each source, and their mean along episodes."""
    figure, (shares, spread, along) = panels(12, 3.6, 3)
    figure.suptitle(plain(title, 150), fontsize=10)
    labels, source, step = [*map(plain, dataset.meta.sources)], dataset.source, dataset.step
    places = np.arange(len(labels))
    of_rows = [float(np.mean(source == i)) for i in places]
    of_weight = [float(weight[source == i].sum() / weight.sum()) for i in places]
    shares.bar(places - 0.2, of_rows, 0.38, label="of the rows", color="#BBBBBB")
    shares.bar(places + 0.2, of_weight, 0.38, label="of the weight", color=[COLOURS[i % 8] for i in places])
    shares.set_xticks(places, labels)
    shares.set_ylim(0, 1.12)
    for position, part in zip(places, of_weight, strict=True):
        shares.text(position + 0.2, part + 0.02, f"{part:.0%}", ha="center", fontsize=8)
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
    spread.set_xlabel("log₁₀ weight (0 = as in the data; smaller weights are at the left edge)", fontsize=8)
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
    colour = colours(list(values))
    for position, (method, seeds) in enumerate(values.items()):
        axis.bar(position, np.mean(seeds), 0.62, color=colour[method], alpha=0.75)
        axis.plot(np.full(len(seeds), position), seeds, "o", ms=4, color="black", alpha=0.7)
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
    colour = colours(list(values))
    for method, points in values.items():
        steps = sorted(points)
        axis.plot(steps, [np.mean(points[step]) for step in steps], color=colour[method], lw=1.6, label=method)
        for step in steps:
            axis.plot([step] * len(points[step]), points[step], "o", ms=2.5, color=colour[method], alpha=0.6)
    axis.set_xlabel("updates", fontsize=8)
    axis.set_ylabel("normalised score")
    axis.set_title(title, fontsize=10)
    axis.legend(frameon=False, fontsize=8)
    return figure


# ---------------------------------------------------------------------------------------------------- of a whole grid


class Bar(NamedTuple):
    """A number with its interval, where there is one, and the published number to compare it with."""

    value: float
    interval: tuple[float, float] | None
    published: float | None


class Band(NamedTuple):
    """A line, and the band around it where there is one."""

    x: Sequence[float]
    y: Sequence[float]
    band: tuple[Sequence[float], Sequence[float]] | None = None


def colours(labels: Sequence[str]) -> dict[str, str]:
    """A colour for each label. Methods have the colours of METHOD_COLOURS; other labels take what is left of COLOURS in
    order, then the same colours lighter, then darker."""
    from matplotlib.colors import to_hex, to_rgb

    fixed = {label: METHOD_COLOURS[label] for label in labels if label in METHOD_COLOURS}
    spare = [colour for colour in COLOURS if colour not in fixed.values()]

    def mixed(number: int) -> str:
        part, towards = ((0.0, 0.0), (0.5, 1.0), (0.5, 0.0))[number // len(spare) % 3]
        red, green, blue = ((1 - part) * channel + part * towards for channel in to_rgb(spare[number % len(spare)]))
        return to_hex((red, green, blue))

    others = [label for label in labels if label not in fixed]
    colour = fixed | {label: mixed(number) for number, label in enumerate(others)}
    return {label: colour[label] for label in labels}


def bars(values: Mapping[str, Mapping[str, Bar]], colour: Mapping[str, str], axis_title: str, mark: str) -> Any:
    """A plot for each algorithm, a bar for each method: our number with its interval, the published one as a tick."""
    most = max(map(len, values.values()))
    figure, axes = _row(max(5.5, len(values) * (0.9 + 0.5 * most)), values, axis_title)
    marked = False
    for axis, by_label in zip(axes, values.values(), strict=True):
        axis.bar(
            range(len(by_label)), [bar.value for bar in by_label.values()], 0.66, color=[colour[x] for x in by_label]
        )
        spans = [(position, *bar.interval) for position, bar in enumerate(by_label.values()) if bar.interval]
        if spans:
            axis.vlines(*zip(*spans, strict=True), color="black", lw=1.2, zorder=4)
            ends = ((position, end) for position, *interval in spans for end in interval)
            axis.plot(*zip(*ends, strict=True), "_", ms=6, mew=1.2, color="black", zorder=4)
        ticks = [
            (position, bar.published) for position, bar in enumerate(by_label.values()) if bar.published is not None
        ]
        if ticks:
            places, heights = (np.array(part) for part in zip(*ticks, strict=True))
            axis.hlines(heights, places - 0.42, places + 0.42, color="white", lw=3.6, zorder=2)
            name = None if marked else mark
            axis.hlines(heights, places - 0.42, places + 0.42, color="#6b6b6b", lw=2.2, zorder=2, label=name)
            marked = True
        axis.axhline(0, color="black", lw=0.8)
        axis.set_xticks(range(len(by_label)), list(map(plain, by_label)), rotation=30, ha="right", fontsize=8)
    if marked:
        figure.legend(loc="outside upper right", frameon=False, fontsize=8)
    return figure


def bands(
    values: Mapping[str, Mapping[str, Band]], colour: Mapping[str, str], x: str, y: str, top: float | None = None
) -> Any:
    """A plot for each algorithm, a thin line for each method."""
    from matplotlib.ticker import EngFormatter

    figure, axes = _row(max(6.0, 4.1 * len(values)), values, y)
    for axis, by_label in zip(axes, values.values(), strict=True):
        for label, line in by_label.items():
            axis.plot(line.x, line.y, color=colour[label], lw=1.3)
            if line.band:
                axis.fill_between(line.x, *line.band, color=colour[label], alpha=0.15, lw=0)
        axis.set_xlabel(x, fontsize=8)
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        if top is not None:
            axis.set_ylim(0, top)
    legend(figure, values, colour)
    return figure


def shares(values: Mapping[str, Mapping[str, Mapping[float, float]]], colour: Mapping[str, str]) -> Any:
    """A plot for each algorithm: how much of the weight each method puts on the good source, by how much of the rows
    come from it."""
    figure, axes = _row(max(6.0, 4.1 * len(values)), values, "share of the weight")
    for axis, by_label in zip(axes, values.values(), strict=True):
        parts = sorted({part for line in by_label.values() for part in line})
        step = 0.7 / max(len(by_label), 1)
        for number, (label, line) in enumerate(by_label.items()):
            places = [parts.index(part) + step * (number - (len(by_label) - 1) / 2) for part in line]
            axis.bar(places, list(line.values()), step * 0.9, color=colour[label])
        for position, part in enumerate(parts):
            axis.plot([position - 0.4, position + 0.4], [part / 100] * 2, color="black", lw=1, ls=":")
        axis.set_xticks(range(len(parts)), [f"{part:g} %" for part in parts])
        axis.set_ylim(0, 1.02)
        axis.set_xlabel("share of the rows (dotted)", fontsize=8)
    legend(figure, values, colour)
    return figure


def scatter(
    values: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], colour: Mapping[str, str], x: str, y: str
) -> Any:
    """A plot for each algorithm, a dot for each dataset and method, against x on a logarithmic scale."""
    figure, axes = _row(max(6.0, 4.1 * len(values)), values, y)
    for axis, by_label in zip(axes, values.values(), strict=True):
        for label, points in by_label.items():
            axis.plot(*zip(*points, strict=True), "o", ms=4, alpha=0.75, mew=0, color=colour[label])
        axis.axhline(0, color="black", lw=0.8)
        axis.set_xscale("log")
        axis.set_xlabel(x, fontsize=8)
    legend(figure, values, colour)
    return figure


def _row(width: float, values: Mapping[str, Any], y: str) -> tuple[Any, Any]:
    """A plot for each algorithm, side by side on one scale."""
    figure, axes = panels(width, 3.5, len(values))
    for axis, title in zip(axes, values, strict=True):
        axis.set_title(plain(title), fontsize=10)
        axis.tick_params(labelsize=8, labelleft=axis is axes[0])
        if axis is not axes[0]:
            axis.sharey(axes[0])
    axes[0].set_ylabel(y, fontsize=8)
    return figure, axes


def legend(figure: Any, values: Mapping[str, Mapping[str, Any]], colour: Mapping[str, str]) -> None:
    """The methods, once for all plots of a figure."""
    from matplotlib.lines import Line2D

    seen = [label for label in colour if any(label in by_label for by_label in values.values())]
    handles = [Line2D([], [], color=colour[label], lw=3, label=plain(label)) for label in seen]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(seen), 6), frameon=False, fontsize=8)


def signed(value: float) -> str:
    """A gain with its sign, and a true minus sign."""
    return f"{value:+.1f}".replace("-", "−")


def plain(text: str, width: int = 24) -> str:
    """A name as a picture can show it: in short lines, and with nothing that would be read as a formula or hidden."""
    import textwrap

    lines = textwrap.wrap(text.replace("$", r"\$"), width)
    return "\n".join(lines) if not text.startswith("_") else "\u200a" + "\n".join(lines)
