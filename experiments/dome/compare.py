"""TD3+BC with six methods on a dome that a puck slides off: 95 % random data, 5 % from a policy that keeps it up.

python experiments/dome/compare.py        writes results/dome/returns.json (about a minute on two cores)
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from winnow import toy
from winnow.errors import run_script
from winnow.methods import make_algorithm, method, resized
from winnow.training import train_runs
from winnow.training.planning import plan

METHODS = ("uniform", "aw", "dw-uniform", "dw-aw", "dual-uniform", "dual-aw")
ROWS = 100_000
SHARE = 0.05
EPISODES = 100
STEPS = 5_000
SEEDS = 3
HIDDEN = (64, 64)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    dataset = toy.imbalanced(ROWS, SHARE, expert_rows=20_000)
    algorithm = resized(make_algorithm("td3bc", dataset), HIDDEN)
    runs = []
    for name in METHODS:
        weighter = resized(method(name, "td3bc")[1], HIDDEN)
        runs += plan(dataset, algorithm, name, weighter=weighter, seeds=SEEDS)
    by_run: dict[str, list[float]] = {}
    share: dict[str, float] = {}
    lines: dict[str, list[tuple[float, float]]] = {}
    for trained in train_runs(runs, steps=STEPS):
        name = trained.run.name
        returns = toy.evaluate(trained.policy, EPISODES)
        weight = trained.weights().weight
        by_run[name] = returns.tolist()
        good = share[name] = float(weight[dataset.source == 1].sum() / weight.sum())
        lines.setdefault(trained.run.method, []).append((float(toy.normalised(returns).mean()), good))
    print("| method | score | each seed | weight on the expert's rows |\n|---|---|---|---|")
    for name, pairs in lines.items():
        scores, goods = zip(*pairs, strict=True)
        each = ", ".join(f"{score:.0f}" for score in scores)
        print(f"| {name} | {np.mean(scores):.1f} | {each} | {np.mean(goods):.0%} |")
    kept = {"score 0 and 100": toy.references(), "returns": by_run, "good": share}
    (Path(__file__).parents[2] / "results" / "dome" / "returns.json").write_text(json.dumps(kept))


if __name__ == "__main__":
    run_script(main)
