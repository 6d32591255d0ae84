"""How many updates the demo's baselines need to learn: uniform and AW alone, with seeds that the demo does not use.

python experiments/demo/sizing.py [FILE]       writes results/demo/sizing.json (two minutes on an accelerator)
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from winnow.commands.demo import HIDDEN, LEARNING_RATE, SET
from winnow.data.catalogue import open_named
from winnow.errors import run_script
from winnow.evaluation.settings import Evaluation
from winnow.methods import make_algorithm, resized
from winnow.training import train_runs
from winnow.training.planning import plan

OUT = Path(__file__).parents[2] / "results" / "demo" / "sizing.json"
SIZES = ((256, 40_000), (256, 60_000), (128, 60_000), (128, 80_000), (64, 100_000), (64, 160_000))
"""Batch size and updates."""
SEEDS = range(10, 15)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path, default=OUT, help="a JSON file for the scores")
    args = parser.parse_args()
    dataset = open_named(SET, make=True)
    algorithm = dataclasses.replace(resized(make_algorithm("iql", dataset), HIDDEN), learning_rate=LEARNING_RATE)
    scores_of = {}
    for batch_size, steps in SIZES:
        runs = [run for name in ("uniform", "aw") for run in plan(dataset, algorithm, name, seeds=list(SEEDS))]
        done = train_runs(
            runs,
            steps=steps,
            batch_size=batch_size,
            evaluate=Evaluation(episodes=10, rounds=3, curve=4),
            progress=False,
        )
        for name in ("uniform", "aw"):
            scores = [trained.score for trained in done if trained.run.method == name]
            scores_of[f"batch {batch_size}, {steps} updates, {name}"] = scores
            print(batch_size, steps, name, [round(score or 0, 1) for score in scores], flush=True)
        args.out.write_text(json.dumps({"set": SET, "seeds": list(SEEDS), "scores": scores_of}, indent=1))


if __name__ == "__main__":
    run_script(main)
