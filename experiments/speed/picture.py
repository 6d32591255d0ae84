"""The figure of docs/speed.md: how the cost of training grows, from the files of `benchmarks/growth.py --json`.

python experiments/speed/picture.py [FILE …] [--out docs/images/growth.png]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from winnow.errors import run_script
from winnow.render import figures

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from growth import AXES, along  # pyright: ignore

USUAL = [Path(__file__).parents[2] / "results" / "speed" / name for name in ("growth-h200.json", "growth-cpu.json")]


def drawn(kept: dict[str, list[dict[str, Any]]]) -> Any:
    """A plot for each axis, a line for each device: run-steps/s of IQL with DW, both scales logarithmic."""
    figure, axes = figures.panels(12.5, 3.3, len(AXES))
    for plot, (axis, title) in zip(axes, AXES.items(), strict=True):
        ticks: set[int] = set()
        for colour, (device, points) in zip(figures.COLOURS, kept.items(), strict=False):
            line = along(points, axis)
            if len({point[axis] for point in line}) < 2:
                continue
            places = [point[axis] for point in line]
            rates = [point["run-steps/s"] for point in line]
            fixed = "" if axis == "runs" else f", {line[0]['runs']} run{'s' * (line[0]['runs'] > 1)}"
            plot.plot(places, rates, "o-", ms=4, lw=1.6, color=colour, label=device + fixed)
            ticks |= set(places)
        plot.set_xscale("log")
        plot.set_yscale("log")
        plot.set_xticks(sorted(ticks), [short(tick) for tick in sorted(ticks)], fontsize=8)
        plot.minorticks_off()
        plot.set_xlabel(title, fontsize=9)
        plot.legend(frameon=False, fontsize=8)
    axes[0].set_ylabel("run-steps/s", fontsize=9)
    return figure


def short(number: int) -> str:
    return f"{number:,}" if number < 10_000 else f"10{'⁰¹²³⁴⁵⁶⁷⁸⁹'[len(str(number)) - 1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="*", help="files of growth.py; default: those in results/speed")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs" / "images" / "growth.png")
    args = parser.parse_args()
    files = args.files or [file for file in USUAL if file.exists()]
    kept = {}
    for file in files:
        measured = json.loads(file.read_text(encoding="utf-8"))
        kept[f"{measured['cores']} CPU cores" if measured["device"] == "cpu" else measured["device"]] = measured[
            "points"
        ]
    figures.save(drawn(kept), args.out)


if __name__ == "__main__":
    run_script(main)
