"""How often an interval that claims 95 % holds the truth: IQM of normal scores, stratified bootstrap over few seeds.

python experiments/statistics/coverage.py       writes results/statistics/coverage.json (a few minutes)
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from winnow import stats

OUT = Path(__file__).parents[2] / "results" / "statistics" / "coverage.json"
TRIALS, RESAMPLES = 2_000, 1_000


def main() -> None:
    found = {}
    for datasets in (4, 32):
        centre = np.linspace(0, 100, datasets)  # symmetric, so the IQM of the truth is 50
        for seeds in (3, 5, 10):
            rng, held = np.random.default_rng(0), 0
            for _ in range(TRIALS):
                scores = rng.normal(centre[:, None], 10, (datasets, seeds))
                estimate = stats.interval(scores, resamples=RESAMPLES)
                held += estimate.low <= 50 <= estimate.high
            found[f"{datasets} datasets, {seeds} seeds"] = held / TRIALS
            print(datasets, seeds, held / TRIALS, flush=True)
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
