"""What samplers select on mixed and diverse datasets, measured with source labels that they do not read. No training.

python experiments/entry/drawn.py [--environments hopper …] [--samplers aw continued] [--shares 5 10]
       [--kinds mixed diverse] [--levels expert] [--rows 1000000]

Adds share, entry and purity (see measures.py) of the sampling probabilities to results/entry/drawn.json, for every
dataset with each of these percentages of the good policy.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from measures import measured

from winnow.data.sources import open_dataset
from winnow.errors import run_script
from winnow.methods import make_sampler

OUT = Path(__file__).parents[2] / "results" / "entry" / "drawn.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", nargs="+", default=["hopper", "walker2d", "halfcheetah", "ant"])
    parser.add_argument("--samplers", nargs="+", default=["aw", "continued"])
    parser.add_argument("--shares", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--kinds", nargs="+", default=["mixed", "diverse"])
    parser.add_argument("--levels", nargs="+", default=["expert"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    args = parser.parse_args()
    measures: dict[str, dict[str, float]] = json.loads(OUT.read_text()) if OUT.exists() else {}
    names = [
        (f"{environment}-random-{level}-{'diverse-' if kind == 'diverse' else ''}{share}%", level)
        for environment in args.environments
        for level in args.levels
        for kind in args.kinds
        for share in args.shares
    ]
    for name, level in names:
        data = open_dataset(f"{name}@{args.rows}")
        for sampler in args.samplers:
            measures[f"{name} {sampler}"] = measured(data, make_sampler(sampler).probabilities(data), level)
            print(f"{name} {sampler}", measures[f"{name} {sampler}"], flush=True)
            OUT.write_text(json.dumps(dict(sorted(measures.items())), indent=1) + "\n")


if __name__ == "__main__":
    run_script(main)
