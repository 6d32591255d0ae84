"""Training for the scripts of this folder: a grid of IQL with small networks and the given methods, on a CPU."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from winnow.bench import plan, run_local
from winnow.bench.overrides import Setting
from winnow.bench.plan import How, Kind
from winnow.bench.suites import Entry
from winnow.data.dataset import Dataset
from winnow.evaluation.settings import Evaluation
from winnow.methods import make_sampler


def options(about: str | None, out: str) -> argparse.ArgumentParser:
    """A parser with the options that `learn` reads."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path(out))
    parser.add_argument("--steps", type=int, default=80_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hidden", default="64x64")
    parser.add_argument("--learning-rate", default="0.001")
    return parser


def learn(args: argparse.Namespace, entries: Sequence[Entry], methods: Sequence[str]) -> None:
    settings = (
        Setting("algorithm", "hidden", (args.hidden,)),
        Setting("algorithm", "learning_rate", (args.learning_rate,)),
    )
    kinds = [Kind("iql", method, settings) for method in methods]
    how = How(args.steps, 256, 10_000, Evaluation(episodes=10, rounds=3, spacing=args.steps // 20, curve=3))
    runs = plan.planned(list(entries), kinds, args.seeds, how, command=typed(args.out))
    run_local.run(plan.packs(runs), args.out)


def typed(out: Path) -> str:
    """The command that the results record, without the folders of this machine."""
    script, *others = sys.argv
    words_kept = [out.name if word == str(out) else word for word in others]
    return shlex.join(["python", f"experiments/entry/{Path(script).name}", *words_kept])


def dosed(name: str, dose: float) -> type:
    """A sampler mixed with this share of uniform samples over all rows."""

    @dataclasses.dataclass(frozen=True)
    class Dosed:
        def probabilities(self, dataset: Dataset) -> np.ndarray:
            return dose / len(dataset) + (1 - dose) * make_sampler(name).probabilities(dataset)

    return Dosed
