"""Why policies of `continued` and `followed` fall at once on hopper's fragments with 1 % of the expert, and two fixes.

python experiments/entry/rare.py [OUT] [--steps 40000] [--seeds 8] [--sets hopper-random-expert-diverse-1%]
       [--variants …] [--hidden 64x64] [--learning-rate 1e-3] [--only-draws]

First it measures, with source labels, what each variant samples and how the good policy's fragments from the start of
an episode rank by advantage (results/entry/rare.json); then IQL trains on it. OUT is the folder of a grid (`winnow
report` reads it); the results are kept in results/grid/rare-cpu.

    best-source   the good policy's rows, by label (the oracle)
    continued     the sampler as it is
    followed      the sampler as it is
    starts        followed, plus the good policy's fragments from the start of an episode, by label
    promising     followed, plus the fragments with the largest advantage (without labels): their continued return minus
                  its fit to first observations; so many that they make 2 % of the samples
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from learning import learn, options
from measures import measured

from winnow.bench import suites
from winnow.data.dataset import Dataset
from winnow.data.sources import open_dataset
from winnow.errors import run_script
from winnow.methods import METHODS, make_sampler
from winnow.samplers import SAMPLERS, Followed
from winnow.samplers.fits.continued import continued_returns
from winnow.samplers.fits.followed import with_followers
from winnow.samplers.fits.values import FOLDS, Folds, cut
from winnow.system.progress import Progress

PART = 0.02
"""Share of the samples for promising fragments: as large as that of the first 20 of 1,000 steps."""


def drawn_by_followed(data: Dataset) -> np.ndarray:
    """[episodes] the probability that `followed` selects it."""
    followed = Followed()
    return with_followers(data, followed.by_where_it_leads(data, "followed"), followed)


def advantages(data: Dataset) -> np.ndarray:
    """[episodes] returns continued past the last row, minus their fit to the first observation."""
    settings = Followed()
    score = continued_returns(data, settings)
    mean, std = data.obs_moments
    first = jnp.asarray((data.start_obs - mean) / std)
    rng = np.random.default_rng(settings.seed)
    fold = rng.permutation(len(score)) % FOLDS
    folds = Folds(fold, tuple(np.flatnonzero(fold != number) for number in range(FOLDS)))
    steps = cut(settings.steps, len(score))
    with Progress(steps, shown=False, unit="updates") as bar:
        before = folds.init(settings.seed, (first.shape[1], *settings.hidden, 1))
        fitted = folds.fit(before, first, score, steps, rng, bar)
        return score - folds.predict(fitted, first, np.arange(len(score)))


def over_rows(data: Dataset, drawn: np.ndarray) -> np.ndarray:
    rows = np.repeat(drawn, data.episodes.length)
    return rows / rows.sum()


def good(data: Dataset, within: int) -> np.ndarray:
    """[episodes] whether it is the good policy's and begins within this many steps of its episode."""
    return (data.episodes.source == len(data.meta.sources) - 1) & (data.episodes.offset < within)


@dataclasses.dataclass(frozen=True)
class Starts:
    def probabilities(self, dataset: Dataset) -> np.ndarray:
        return over_rows(dataset, np.maximum(drawn_by_followed(dataset), good(dataset, 1)))


@dataclasses.dataclass(frozen=True)
class Promising:
    def probabilities(self, dataset: Dataset) -> np.ndarray:
        drawn = drawn_by_followed(dataset)
        length = dataset.episodes.length
        order = np.argsort(-np.where(drawn < 0.5, advantages(dataset), -np.inf), kind="stable")
        chosen = order[np.cumsum(length[order]) <= PART * (length @ drawn)]
        drawn[chosen] = 1.0
        return over_rows(dataset, drawn)


SAMPLERS.update({"starts": Starts, "promising": Promising})
METHODS.update({name: (name, "none") for name in ("starts", "promising")})
VARIANTS = ["best-source", "continued", "followed", "starts", "promising"]
DRAWN = Path(__file__).parents[2] / "results" / "entry" / "rare.json"


def main() -> None:
    parser = options(__doc__, "rare")
    parser.set_defaults(steps=40_000, seeds=8)
    parser.add_argument("--sets", nargs="+", default=["hopper-random-expert-diverse-1%"])
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    parser.add_argument("--only-draws", action="store_true")
    args = parser.parse_args()
    measures: dict[str, Any] = json.loads(DRAWN.read_text()) if DRAWN.exists() else {}
    entries = suites.entries(args.sets)
    for entry in entries:
        data = open_dataset(entry.text)
        for variant in args.variants:
            probability = make_sampler(METHODS[variant][0]).probabilities(data)
            measures[f"{entry.text} {variant}"] = entry_measures = measured(data, probability, entry.level)
            print(entry.text, variant, entry_measures, flush=True)
        drawn = drawn_by_followed(data)
        gained = advantages(data)
        starts = np.flatnonzero(good(data, 1))
        others = gained[drawn < 0.5]
        missed = data.episodes.length * (1 - drawn)
        measures[f"{entry.text}: pieces from the start"] = entry_measures = {
            "pieces": len(data.episodes),
            "drawn by followed": [round(float(drawn[number]), 3) for number in starts],
            "of those not drawn, with a larger advantage": [int((others > gained[number]).sum()) for number in starts],
            "rows of the good policy that are not drawn": round(float(missed @ good(data, len(data))), 1),
            "of these, in pieces that begin in an episode's first 20 steps": round(float(missed @ good(data, 20)), 1),
        }
        print(entry.text, entry_measures, flush=True)
    DRAWN.write_text(json.dumps(dict(sorted(measures.items())), indent=1) + "\n")
    if not args.only_draws:
        learn(args, entries, args.variants)


if __name__ == "__main__":
    run_script(main)
