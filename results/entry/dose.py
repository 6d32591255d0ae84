"""Does a pinch of bad data keep good rows from being learnt by heart? On small sets AW holds out where the labels do
not, though but one in two thousand of its draws is bad.

python results/entry/dose.py [OUT] [--steps 80000] [--seeds 3] [--sets hopper-random-expert-10%-small …]
       [--hidden 64x64] [--learning-rate 1e-3] [--doses 0 0.0005 0.01] [--samplers source followed]

Each sampler with each part of its draws even over all rows. OUT gets a grid's folder (`winnow report` reads its
results); kept in results/grid/dose-cpu.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np

from winnow.bench import local, plan, suites
from winnow.bench.plan import How, Kind
from winnow.bench.settings import Setting
from winnow.data.dataset import Dataset
from winnow.evaluation import Evaluation
from winnow.methods import METHODS, make_sampler
from winnow.samplers import SAMPLERS

SETS = ["hopper-random-expert-10%-small", "walker2d-random-expert-10%-small"]


def dosed(name: str, dose: float) -> type:
    @dataclasses.dataclass(frozen=True)
    class Dosed:
        def probabilities(self, dataset: Dataset) -> np.ndarray:
            return dose / len(dataset) + (1 - dose) * make_sampler(name).probabilities(dataset)

    return Dosed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path("dose"))
    parser.add_argument("--steps", type=int, default=80_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--hidden", default="64x64")
    parser.add_argument("--learning-rate", default="0.001")
    parser.add_argument("--doses", nargs="+", type=float, default=[0, 0.0005, 0.01])
    parser.add_argument("--samplers", nargs="+", default=["source", "followed"])
    words = parser.parse_args()
    settings = (
        Setting("algorithm", "hidden", (words.hidden,)),
        Setting("algorithm", "learning_rate", (words.learning_rate,)),
    )
    kinds = []
    for sampler in words.samplers:
        for dose in words.doses:
            name = f"{sampler}-{dose:g}"
            SAMPLERS[name], METHODS[name] = dosed(sampler, dose), (name, "none")
            kinds.append(Kind("iql", name, settings))
    entries = suites.entries(words.sets)
    how = How(words.steps, 256, 10_000, Evaluation(episodes=10, rounds=3, spacing=words.steps // 20, curve=3))
    local.run(plan.packs(plan.planned(entries, kinds, words.seeds, how)), words.out)


if __name__ == "__main__":
    main()
