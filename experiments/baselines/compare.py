"""Behaviour cloning with published baselines on the dome: 95 % random data, 5 % from a good policy.

python experiments/baselines/compare.py        writes results/baselines/returns.json (a few minutes on two cores)
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from winnow import toy
from winnow.errors import run_script
from winnow.methods import make_algorithm, method, resized
from winnow.training import train_runs
from winnow.training.planning import plan

ROWS = 100_000
SHARE = 0.05
EPISODES = 100
STEPS = 5_000
SEEDS = 3
HIDDEN = (64, 64)
OPTIDICE = [("optidice-w", {"alpha": alpha, "learning_rate": 1e-3}) for alpha in (0.1, 1.0, 5.0)]
PAIRS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    *(("bc", name, {}, {}) for name in ("uniform", "pf", "rw", "red", "odpr-a")),
    *(("bc", name, learn, weigh) for learn in ({}, {"extraction": "projection"}) for name, weigh in OPTIDICE),
]
"""Algorithm, method, settings of the algorithm, settings of the weighter."""


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    dataset = toy.imbalanced(ROWS, SHARE, expert_rows=20_000)
    runs = []
    for algorithm, name, learn, weigh in PAIRS:
        learner: Any = resized(make_algorithm(algorithm, dataset), HIDDEN)
        base: Any = method(name, algorithm)[1]
        weighter = resized(dataclasses.replace(base, **weigh), HIDDEN)
        label = "-".join([name, *(f"{value}" for value in (weigh | learn).values() if value != 1e-3)])
        for run in plan(dataset, dataclasses.replace(learner, **learn), name, weighter=weighter, seeds=SEEDS):
            runs.append(dataclasses.replace(run, name=f"{algorithm} {label} seed{run.seed}"))
    results: dict[str, dict[str, Any]] = {}
    lines: dict[str, list[tuple[float, float]]] = {}
    for trained in train_runs(runs, steps=STEPS):
        returns = toy.evaluate(trained.policy, EPISODES)
        weights = trained.weights()
        good = weights.share(dataset.source == 1)
        results[trained.run.name] = {"failure": trained.failure, "good": good, "returns": returns.tolist()}
        lines.setdefault(trained.run.name.rsplit(" ", 1)[0], []).append((float(toy.normalised(returns).mean()), good))
    print("| algorithm and method | score | each seed | weight on the good rows |\n|---|---|---|---|")
    for name, pairs in lines.items():
        scores, goods = zip(*pairs, strict=True)
        print(f"| {name} | {np.mean(scores):.1f} | {', '.join(f'{s:.0f}' for s in scores)} | {np.mean(goods):.0%} |")
    kept = {"score 0 and 100": toy.references(), "runs": results}
    (Path(__file__).parents[2] / "results" / "baselines" / "returns.json").write_text(json.dumps(kept))


if __name__ == "__main__":
    run_script(main)
