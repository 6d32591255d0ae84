"""The figure of docs/speed.md: how the cost of training grows, from what `benchmarks/growth.py --json` has kept.

python experiments/speed/picture.py [FILE …] [--out docs/images/growth.png]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

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
            if len({one[axis] for one in line}) < 2:
                continue
            places, rates = [one[axis] for one in line], [one["run-steps/s"] for one in line]
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
    parser.add_argument("files", type=Path, nargs="*", help="without them, those of results/speed that are there")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs" / "images" / "growth.png")
    words = parser.parse_args()
    files = words.files or [file for file in USUAL if file.exists()]
    kept = {}
    for file in files:
        held = json.loads(file.read_text(encoding="utf-8"))
        kept[f"{held['cores']} CPU cores" if held["device"] == "cpu" else held["device"]] = held["points"]
    figures.save(drawn(kept), words.out)


if __name__ == "__main__":
    main()
