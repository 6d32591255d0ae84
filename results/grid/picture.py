"""The README's figure and table: gains over uniform sampling in the grids of results/grid, with 95 % intervals.

python results/grid/picture.py [--out docs/images/grid.png]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from winnow import figures
from winnow.report.numbers import Line, lines
from winnow.report.runs import read

HERE = Path(__file__).parent
GRIDS = {"IQL": HERE / "iql-expert-100k", "TD3+BC": HERE / "td3bc-expert-100k"}
METHODS = {
    "dw-uniform": "DW-Uniform",
    "dw-aw": "DW-AW",
    "aw": "AW",
    "continued": "continued",
    "best-source": "expert's rows by label",
}


def gains(folder: Path) -> dict[str, dict[str, Line]]:
    """By suite and method."""
    found: dict[str, dict[str, Line]] = {"mixed": {}, "diverse": {}}
    for line in lines(read(folder, print)):
        if line.label in METHODS:
            found[line.suite][line.label] = line
    return found


def drawn(grids: dict[str, dict[str, dict[str, Line]]]) -> Any:
    """A plot for each algorithm and suite, a bar for each method, a grey tick for the paper's gain."""
    plots = [
        (f"{name}, {suite} (8 sets)", by_method) for name, one in grids.items() for suite, by_method in one.items()
    ]
    figure, axes = figures.panels(13, 3.4, len(plots))
    colours = dict(zip(METHODS, ["#b9b9b9", "#8a8a8a", "#7fa8d6", "#d1495b", "#cfc7a0"], strict=True))
    for axis, (title, by_method) in zip(axes, plots, strict=True):
        for place, label in enumerate(METHODS):
            line = by_method[label]
            assert line.gain is not None
            gain = line.gain.iqm
            axis.bar(place, gain.value, 0.7, color=colours[label])
            axis.vlines(place, gain.low, gain.high, color="black", lw=1.2)
            if line.published_gain is not None:
                axis.hlines(line.published_gain, place - 0.42, place + 0.42, color="#303030", lw=2, ls=":")
        axis.axhline(0, color="black", lw=0.8)
        axis.set_title(title, fontsize=10)
        axis.set_ylim(-8, 95)
        axis.set_xticks(range(len(METHODS)), list(METHODS.values()), rotation=30, ha="right", fontsize=8)
    axes[0].set_ylabel("gain in IQM over uniform", fontsize=9)
    axes[0].hlines([], 0, 1, color="#303030", lw=2, ls=":", label="the paper's gain (D4RL data, 1M updates)")
    axes[0].legend(frameon=False, fontsize=7.5, loc="upper left")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "docs" / "images" / "grid.png")
    words = parser.parse_args()
    grids = {name: gains(folder) for name, folder in GRIDS.items()}
    figures.save(drawn(grids), words.out)
    columns = [(name, suite) for name in grids for suite in ("mixed", "diverse")]
    print("| gain in IQM over uniform |", " | ".join(f"{name}, {suite}" for name, suite in columns), "|")
    print("|---" * (len(columns) + 1) + "|")
    for label, words_for in METHODS.items():
        cells = []
        for name, suite in columns:
            gain = grids[name][suite][label].gain
            assert gain is not None
            cells.append(f"{gain.iqm.value:+.1f} [{gain.iqm.low:.1f}, {gain.iqm.high:.1f}]".replace("-", "−"))
        print(f"| {words_for} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
