"""Distributions of returns of a mixed and a diverse dataset: two peaks and a long tail.

winnow data make hopper-random-expert-5%
python experiments/datasets/returns.py       writes docs/images/returns.png and results/datasets/returns.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from winnow.data.imbalance import imbalance
from winnow.data.sources import open_dataset
from winnow.errors import run_script
from winnow.render import figures

RESULTS = Path(__file__).parents[2] / "results" / "datasets"
TITLES = {
    "hopper-random-expert-5%": "mixed: whole episodes",
    "hopper-random-expert-diverse-5%": "diverse: fragments of 10 to 49 steps",
}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    datasets = {name: open_dataset(name) for name in TITLES}
    figure = figures.returns({f"{name}\n{TITLES[name]}": data for name, data in datasets.items()})
    figures.save(figure, RESULTS.parents[1] / "docs" / "images" / "returns.png")
    numbers = {}
    for name, data in datasets.items():
        count, edges = np.histogram(data.returns, 60)
        numbers[name] = {
            "rows": len(data),
            "episodes": len(data.episodes),
            "fingerprint": data.fingerprint,
            "physics": data.meta.physics,
            "RPSV, returns scaled to [0, 1]": imbalance(data).rpsv_scaled,
            "histogram": {"edges": edges.round(3).tolist(), "episodes": count.tolist()},
        }
        print(name, {key: value for key, value in numbers[name].items() if key != "histogram"})
    (RESULTS / "returns.json").write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    run_script(main)
