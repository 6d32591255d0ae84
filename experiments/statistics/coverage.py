"""How often a 95 % interval covers the truth: IQM of normal scores, stratified bootstrap over few seeds.

python experiments/statistics/coverage.py       writes results/statistics/coverage.json (a few minutes)
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from winnow import stats
from winnow.errors import run_script

OUT = Path(__file__).parents[2] / "results" / "statistics" / "coverage.json"
TRIALS = 2_000
RESAMPLES = 1_000


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    coverage = {}
    for datasets in (4, 32):
        centre = np.linspace(0, 100, datasets)  # symmetric, so the IQM of the truth is 50
        for seeds in (3, 5, 10):
            rng = np.random.default_rng(0)
            covered = 0
            for _ in range(TRIALS):
                scores = rng.normal(centre[:, None], 10, (datasets, seeds))
                estimate = stats.interval(scores, resamples=RESAMPLES)
                covered += estimate.low <= 50 <= estimate.high
            coverage[f"{datasets} datasets, {seeds} seeds"] = covered / TRIALS
            print(datasets, seeds, covered / TRIALS, flush=True)
    OUT.write_text(json.dumps(coverage, indent=1) + "\n")


if __name__ == "__main__":
    run_script(main)
