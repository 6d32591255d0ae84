"""How large the demo must be for its baselines to learn: uniform and AW alone, on seeds that the demo does not use.

python experiments/demo/sizing.py [FILE]       writes results/demo/sizing.json (two minutes on an accelerator)
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from winnow.commands.demo import HIDDEN, LEARNING_RATE, SET
from winnow.data.catalogue import open_named
from winnow.evaluation.settings import Evaluation
from winnow.methods import make_algorithm, resized
from winnow.training import train_runs
from winnow.training.planning import plan

SIZES = ((256, 40_000), (256, 60_000), (128, 60_000), (128, 80_000), (64, 100_000), (64, 160_000))
"""Batch size and updates."""
SEEDS = range(10, 15)


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "results" / "demo" / "sizing.json"
    dataset = open_named(SET, make=True)
    algorithm = dataclasses.replace(resized(make_algorithm("iql", dataset), HIDDEN), learning_rate=LEARNING_RATE)
    found = {}
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
            scores = [one.score for one in done if one.run.method == name]
            found[f"batch {batch_size}, {steps} updates, {name}"] = scores
            print(batch_size, steps, name, [round(score or 0, 1) for score in scores], flush=True)
        path.write_text(json.dumps({"set": SET, "seeds": list(SEEDS), "scores": found}, indent=1))


if __name__ == "__main__":
    main()
