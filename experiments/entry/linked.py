"""The exact dual's weights, continued past the end of each fragment as `winnow.samplers.fits.continued` does for
rewards.

python experiments/entry/linked.py [--rows 300000] [--steps 6000] [--environment hopper] [--shares 5,10]

Stationary weights leave an episode's first steps little weight, and so do their means over a fragment of 19 steps. Here
a fragment gets the mean of log w over itself and over what follows it in other fragments: log w, clipped to its
quantiles of 1 and 99 % and scaled to [0, 1], takes the place of rewards. It trains weighters but no policy. For each
dataset it prints, and keeps in results/entry/linked.json, share, entry and purity (see measures.py) of

rows      w of single rows
linked    the exponential of the mean along the continuation
level     the level of `continued` (0.5, η 0.03) on that mean
rewards   the same level on continued returns, without a dual: the sampler `continued` with networks of 64×64
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from measures import measured

from winnow.algorithms import BC
from winnow.data.dataset import Dataset
from winnow.data.sources import open_dataset
from winnow.errors import run_script
from winnow.methods import make_sampler
from winnow.packs.run import Run
from winnow.samplers import Continued
from winnow.samplers.fits.continued import _returns  # pyright: ignore
from winnow.training import train_runs
from winnow.weighters import Dual

FIT = Continued(hidden=(64, 64))
SETTINGS: dict[str, dict[str, Any]] = {
    "budget 2": {},
    "λ 0.1": {"control": "temperature", "temperature": 0.1},
    "λ 0.2": {"control": "temperature", "temperature": 0.2},
}


class Rewarded:
    """A dataset with replaced rewards."""

    def __init__(self, dataset: Dataset, reward: np.ndarray) -> None:
        self.dataset = dataset
        self.reward = reward.astype(np.float32)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)

    def rows(self) -> Any:
        return self.dataset.rows()._replace(reward=self.reward)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--environment", default="hopper")
    parser.add_argument("--shares", default="5,10")
    args = parser.parse_args()
    out = Path(__file__).parents[2] / "results" / "entry" / "linked.json"
    record: dict[str, Any] = {"rows": args.rows, "steps": args.steps, "found": {}}
    for share in args.shares.split(","):
        name = f"{args.environment}-random-expert-diverse-{share}%@{args.rows}"
        data = open_dataset(name)
        seen = record["found"][name] = {"rewards": measured(data, FIT.probabilities(data))}
        print(name, seen, flush=True)
        runs = [
            Run(data, BC(hidden=(8,)), make_sampler("uniform"), Dual(hidden=(64, 64), **how), 0, label)
            for label, how in SETTINGS.items()
        ]
        for trained in train_runs(runs, steps=args.steps, chunk=2_000, progress=False):
            log_weight = np.log(np.maximum(trained.weights().weight, 1e-30))
            low, high = np.quantile(log_weight, (0.01, 0.99))
            rewarded: Any = Rewarded(data, (np.clip(log_weight, low, high) - low) / (high - low))
            mean = np.clip(_returns(rewarded, FIT), 0, 1)
            linked = np.repeat(np.exp((high - low) * (mean - 1)), data.episodes.length)
            level = np.repeat(FIT.by_level(data, mean), data.episodes.length)
            ways = {"rows": np.exp(log_weight), "linked": linked, "level": level}
            for way, weight in ways.items():
                seen[f"{trained.run.name}, {way}"] = measured(data, weight)
                print(name, trained.run.name, way, seen[f"{trained.run.name}, {way}"], flush=True)
            out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_script(main)
