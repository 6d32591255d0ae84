"""Learning curves of the runs from which the behaviour policies were taken.

python experiments/policies/plot.py       reads results/policies/curves, writes docs/images/policies.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from winnow.collect import behaviour
from winnow.errors import run_script
from winnow.render import figures

RESULTS = Path(__file__).parents[2] / "results" / "policies"


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    figure, axes = figures.panels(13, 3.2, 4)
    for axis, env in zip(axes, ("hopper", "halfcheetah", "walker2d", "ant"), strict=True):
        for number, path in enumerate(sorted((RESULTS / "curves").glob(f"{env}-*.jsonl"))):
            points = [json.loads(line) for line in path.read_text().splitlines()]
            seed = path.stem.split("-")[1]
            x = [p["step"] / 1e6 for p in points]
            y = [p["score"] for p in points]
            axis.plot(x, y, color=figures.COLOURS[number], lw=1.3, label=f"seed {seed}")
            for level in ("medium", "expert"):
                record = behaviour(env, level)[1]
                if str(record["seed"]) == seed:
                    axis.plot(record["step"] / 1e6, record["score"], "o", ms=7, mfc="none", color="black")
                    axis.annotate(level, (record["step"] / 1e6, record["score"]), fontsize=8, va="bottom", ha="right")
        axis.set_title(env, fontsize=10)
        axis.set_xlabel("million steps", fontsize=8)
        axis.legend(frameon=False, fontsize=8, loc="lower right")
    axes[0].set_ylabel("normalised score (16 episodes)", fontsize=8)
    figures.save(figure, RESULTS.parents[1] / "docs" / "images" / "policies.png")


if __name__ == "__main__":
    run_script(main)
