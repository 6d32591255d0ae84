"""How much weight the demo's runs give to the first steps of the expert's episodes.

python experiments/demo/starts.py [RUNS]      after `make demo`; reads demo/runs, writes results/demo/starts.json

A value of 1 means: these steps' share of the weight equals their share of the expert's rows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from winnow.commands.demo import METHODS
from winnow.errors import run_script
from winnow.training.trained import Trained

OUT = Path(__file__).parents[2] / "results" / "demo" / "starts.json"
SPANS = ((0, 10), (0, 20), (0, 50), (50, 100))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="?", type=Path, default=Path("demo/runs"), help="the folder of the demo's runs")
    parser.add_argument("--out", type=Path, default=OUT, help="a JSON file for the shares")
    args = parser.parse_args()
    if not args.runs.is_dir():
        parser.error(f"{args.runs}: there is no such folder; run `make demo` first")
    shares = {}
    for method in METHODS:
        for path in sorted(args.runs.glob(f"*.{method}.seed*.safetensors")):
            trained = Trained.load(path)
            weights = trained.weights()
            data = trained.run.dataset
            expert = data.source == data.meta.sources.index("expert")
            whole = weights.share(expert)
            shares_of_run: dict[str, float] = {}
            for low, high in SPANS:
                span = expert & (data.step >= low) & (data.step < high)
                part = weights.share(span) / whole / (span.sum() / expert.sum())
                shares_of_run[f"steps {low} to {high - 1}"] = round(part, 4)
            shares[f"{method} seed {trained.run.seed}"] = shares_of_run
            print(path.name, shares_of_run, flush=True)
    args.out.write_text(json.dumps(shares, indent=1) + "\n")


if __name__ == "__main__":
    run_script(main)
