"""Why `dual-aw` fails on the dome and which form of the dual weighter fixes it.

python experiments/dome/entry.py          writes results/dome/entry.csv (about two minutes on two cores)
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
from pathlib import Path

from winnow import toy
from winnow.algorithms import TD3BC
from winnow.data.recipes import mixed
from winnow.errors import run_script
from winnow.training import train_runs
from winnow.training.planning import plan
from winnow.weighters import Dual

HIDDEN = (64, 64)
FORMS = {
    "row": Dual(hidden=HIDDEN),
    "row, discount 0.99": Dual(hidden=HIDDEN, discount=0.99),
    "trajectory": Dual(hidden=HIDDEN, average="trajectory"),
    "trajectory, discount 0.99": Dual(hidden=HIDDEN, average="trajectory", discount=0.99),
}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    low = toy.make(toy.random, 100_000, seed=0, name="random")
    high = toy.make(toy.expert, 20_000, seed=1, name="expert")
    dome = mixed(low, high, 0.05, 100_000, low_label="random", high_label="expert", name="dome")
    runs = [
        dataclasses.replace(run, name=f"{form}/{method}/{run.seed}".replace("/", "|"))
        for form, weighter in FORMS.items()
        for method in ("dual-aw", "dual-uniform")
        for run in plan(dome, TD3BC(hidden=HIDDEN), method, weighter=weighter, seeds=3)
    ]
    trained = train_runs(runs, steps=5_000, chunk=1_000)
    with (Path(__file__).parents[2] / "results" / "dome" / "entry.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["form", "method", "seed", "score", "mean return"])
        for result in trained:
            returns = toy.evaluate(result.policy)
            row = [*result.run.name.split("|"), f"{toy.normalised(returns).mean():.1f}", f"{returns.mean():.2f}"]
            table.writerow(row)
            print(*row)


if __name__ == "__main__":
    run_script(main)
