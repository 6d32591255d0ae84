"""The README's figure of the demo.

python experiments/demo/plot.py       reads results/demo/returns.json, writes docs/images/demo.png and prints the table
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from winnow.errors import run_script
from winnow.render import figures

RESULTS = Path(__file__).parents[2] / "results" / "demo"


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    rounds = json.loads((RESULTS / "returns.json").read_text())["rounds"]
    scores: dict[str, list[float]] = {}
    for run, played in rounds.items():
        last = [entry["score"] for entry in played if entry["round"]]
        scores.setdefault(run.split(".")[-2], []).append(float(np.mean(last)))
    figure = figures.scores(scores, "IQL on hopper-random-expert-10%, a dot for each seed", {"D4RL's expert": 100.0})
    figures.save(figure, RESULTS.parents[1] / "docs" / "images" / "demo.png")
    for method, seeds in scores.items():
        print(f"| {method} | {np.mean(seeds):.1f} | {', '.join(f'{score:.0f}' for score in seeds)} |")


if __name__ == "__main__":
    run_script(main)
