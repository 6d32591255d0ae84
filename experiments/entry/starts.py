"""How the exact dual distributes weight, and how much an episode's first steps get. It trains weighters but no policy.

python experiments/entry/starts.py [--rows 300000] [--steps 10000] [--environment hopper]

Adds missing measures to results/entry/starts.json: share, entry and purity (see measures.py) of the weights of every
setting, on mixed and diverse datasets with 5 and 10 % of the expert.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from measures import measured

from winnow.algorithms import BC
from winnow.data.sources import open_dataset
from winnow.errors import run_script
from winnow.methods import make_sampler
from winnow.packs.run import Run
from winnow.training import train_runs
from winnow.weighters import Dual

SETTINGS: dict[str, dict[str, object]] = {
    "budget 1": {"budget": 1.0},
    "budget 2": {"budget": 2.0},
    "budget 3": {"budget": 3.0},
    "λ 0.1": {"control": "temperature", "temperature": 0.1},
    "λ 0.05": {"control": "temperature", "temperature": 0.05},
    "λ 0.025": {"control": "temperature", "temperature": 0.025},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--environment", default="hopper")
    args = parser.parse_args()
    learner = BC(hidden=(8,))
    out = Path(__file__).parents[2] / "results" / "entry" / "starts.json"
    measures: dict[str, dict[str, float]] = json.loads(out.read_text())["found"] if out.exists() else {}
    for share in (10, 5):
        for kind in ("diverse-", ""):
            name = f"{args.environment}-random-expert-{kind}{share}%"
            if any(label.startswith(f"{name} ") for label in measures):
                continue
            data = open_dataset(f"{name}@{args.rows}")
            runs = [
                Run(data, learner, make_sampler(drawn), Dual(average="trajectory", hidden=(64, 64), **how), 0, label)  # pyright: ignore
                for drawn in ("aw", "uniform")
                for how_name, how in SETTINGS.items()
                for label in [f"{drawn} {how_name}"]
            ]
            for trained in train_runs(runs, steps=args.steps, chunk=2_000, progress=False):
                weight = trained.weights().weight
                of_run = measured(data, weight) | {"ess": round(float(1 / np.mean(weight**2)), 4)}
                if "log_temperature" in trained.weighter_state.params:
                    of_run["temperature"] = round(float(np.exp(trained.weighter_state.params["log_temperature"])), 4)
                measures[f"{name} {trained.run.name}"] = of_run
                print(f"{name} {trained.run.name}", measures[f"{name} {trained.run.name}"], flush=True)
            out.write_text(json.dumps({"rows": args.rows, "steps": args.steps, "found": measures}, indent=1) + "\n")


if __name__ == "__main__":
    run_script(main)
