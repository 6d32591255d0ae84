"""The figure of README.md, docs/index.md and docs/evidence.md: gains over uniform sampling, with 95 % intervals.

python -m experiments.evidence.picture        writes docs/images/gains.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.as_published.tables import METHODS
from experiments.evidence.tables import SUITE_NAMES, lead
from winnow.errors import run_script
from winnow.render import figures

IMAGE = Path(__file__).resolve().parents[2] / "docs" / "images" / "gains.png"


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    names = [name for name in METHODS if name != "uniform"]
    colour = figures.colours(names)
    figure, axes = figures.panels(6.4, 2.9, len(SUITE_NAMES))
    for axis, (suite, title) in zip(axes, SUITE_NAMES.items(), strict=True):
        for position, name in enumerate(reversed(names)):
            gain = lead(suite, name, "uniform")
            axis.barh(position, gain.value, 0.66, color=colour[name], alpha=0.9)
            for width, shade in ((4.0, "white"), (1.8, "#303030")):
                axis.plot([gain.low, gain.high], [position, position], color=shade, lw=width, solid_capstyle="butt")
            axis.text(max(gain.high, gain.value) + 1.5, position, figures.signed(gain.value), va="center", fontsize=11)
        axis.set_yticks(range(len(names)), [METHODS[name] for name in reversed(names)], fontsize=11)
        axis.tick_params(axis="y", labelleft=axis is axes[0], length=0)
        axis.set_title(title, fontsize=12, loc="left", fontweight="bold")
        axis.set_xlim(-6, 76)
        axis.axvline(0, color="black", lw=0.9)
        axis.grid(visible=False, axis="y")
        axis.grid(axis="x", alpha=0.25)
        axis.tick_params(axis="x", labelsize=10)
    figure.supxlabel("points of score gained over uniform sampling", fontsize=11)
    figures.save(figure, IMAGE)


if __name__ == "__main__":
    run_script(main)
