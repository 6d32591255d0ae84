"""Why `continued` is worse on fragments of a medium policy: its samples contain no falls. Variants that include falls,
and whether they help.

python experiments/entry/falls.py [OUT] [--steps 80000] [--seeds 3] [--environments hopper walker2d] [--level medium]
       [--share 10] [--hidden 64x64] [--learning-rate 1e-3] [--rows 1000000] [--variants …]

The datasets are diverse ones. First it measures, with source labels, what each variant samples
(results/entry/falls.json); then IQL trains on it. OUT is the folder of a grid (`winnow report` reads it); the results
are kept in results/grid/falls-cpu.

    best-source   the good policy's rows, by label (the oracle)
    no-falls      the same without fragments that end in a terminal
    continued     the sampler as it is
    followed      continued, plus fragments whose first states are mostly selected, whatever happens later
    apart         half of the samples are uniform: values train on all samples, the policy on those of continued
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from learning import dosed, learn, options
from measures import measured

from winnow.bench import suites
from winnow.data.dataset import Dataset
from winnow.data.sources import open_dataset
from winnow.errors import run_script
from winnow.methods import METHODS, make_sampler
from winnow.samplers import SAMPLERS, Source
from winnow.types import Array, Batch, Metrics, Spec, Weights, plugin
from winnow.weighters import WEIGHTERS
from winnow.weighters.diagnostics import diagnose


def falls(data: Dataset) -> np.ndarray:
    """[episodes] whether each ends in a terminal state."""
    return data.rows().terminal[data.episodes.start + data.episodes.length - 1].astype(bool)


@dataclasses.dataclass(frozen=True)
class NoFalls:
    def probabilities(self, dataset: Dataset) -> np.ndarray:
        drawn = Source().probabilities(dataset) * ~np.repeat(falls(dataset), dataset.episodes.length)
        return drawn / drawn.sum()


@plugin
class Apart:
    """For samples half of which are uniform: the policy uses continued's weights, values use all samples alike."""

    reads_frequency: ClassVar[bool] = True

    def init(self, key: Array, spec: Spec) -> tuple[()]:
        return ()

    def update(self, state: tuple[()], batch: Batch, key: Array) -> tuple[tuple[()], Weights, Metrics]:
        assert batch.frequency is not None
        chosen = jnp.maximum(2 - 1 / batch.frequency, 0) + 1e-9
        weight = chosen / jnp.sum(chosen)
        even = jnp.full(batch.reward.shape, 1 / batch.reward.shape[0])
        return state, Weights(weight, weight, even), diagnose(weight, batch)

    def log_weight(self, state: tuple[()], batch: Batch) -> Array:
        return jnp.zeros(batch.reward.shape)


SAMPLERS.update({"no-falls": NoFalls, "half-even": dosed("continued", 0.5)})
WEIGHTERS["apart"] = Apart
METHODS.update({"no-falls": ("no-falls", "none"), "apart": ("half-even", "apart")})
VARIANTS = ["best-source", "no-falls", "continued", "followed", "apart"]
DRAWN = Path(__file__).parents[2] / "results" / "entry" / "falls.json"


def main() -> None:
    parser = options(__doc__, "falls")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--environments", nargs="+", default=["hopper", "walker2d"])
    parser.add_argument("--level", default="medium")
    parser.add_argument("--share", type=float, default=10)
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    parser.add_argument("--only-draws", action="store_true")
    args = parser.parse_args()
    every = suites.entries(["diverse"], rows=args.rows)
    entries = suites.chosen(every, args.environments, [args.level], [args.share])
    measures: dict[str, dict[str, float]] = json.loads(DRAWN.read_text()) if DRAWN.exists() else {}
    for entry in entries:
        data = open_dataset(entry.text)
        for variant in args.variants:
            probability = make_sampler(METHODS[variant][0]).probabilities(data)
            of_variant = measured(data, probability, args.level)
            of_variant["terminals in 10,000"] = round(1e4 * float(probability[data.rows().terminal].sum()), 2)
            measures[f"{entry.text} {variant}"] = of_variant
            print(entry.text, variant, of_variant, flush=True)
    DRAWN.write_text(json.dumps(dict(sorted(measures.items())), indent=1) + "\n")
    if args.only_draws:
        return
    learn(args, entries, args.variants)


if __name__ == "__main__":
    run_script(main)
