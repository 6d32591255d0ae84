"""The README's picture of the demo.

python experiments/demo/plot.py       reads results/demo/returns.json, writes docs/images/demo.png and prints the table
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from winnow.render import figures

RESULTS = Path(__file__).parents[2] / "results" / "demo"


def main() -> None:
    rounds = json.loads((RESULTS / "returns.json").read_text())["rounds"]
    scores: dict[str, list[float]] = {}
    for run, played in rounds.items():
        last = [one["score"] for one in played if one["round"]]
        scores.setdefault(run.split(".")[-2], []).append(float(np.mean(last)))
    figure = figures.scores(scores, "IQL on hopper-random-expert-10%, a dot for each seed", {"D4RL's expert": 100.0})
    figures.save(figure, RESULTS.parents[1] / "docs" / "images" / "demo.png")
    for method, seeds in scores.items():
        print(f"| {method} | {np.mean(seeds):.1f} | {', '.join(f'{score:.0f}' for score in seeds)} |")


if __name__ == "__main__":
    main()
