"""Variants of the exact dual's weights, compared on a few datasets: which of them lead a policy to the good data?

python experiments/entry/explore.py [OUT] [--steps 50000] [--seeds 2] [--rows 1000000] [--environments hopper walker2d]

OUT is the folder of a grid (`winnow report` reads it). Its results without redundant fields are kept in
results/entry/explore.jsonl; `--table` prints them again. The datasets were chosen before any result was seen: hopper
and walker2d with the expert, σ 5 %, mixed and diverse, with IQL. Variants that were worth keeping are settings of
`winnow.Dual`; the others exist only here.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from winnow.bench import plan, run_local, suites
from winnow.bench.overrides import Setting
from winnow.bench.plan import How, Kind
from winnow.errors import run_script
from winnow.evaluation.settings import Evaluation
from winnow.methods import METHODS
from winnow.nets import adam_init, adam_step, mlp_init, scalar
from winnow.types import Array, Batch, Metrics, Spec, Weights, plugin
from winnow.weighters import WEIGHTERS
from winnow.weighters.diagnostics import diagnose
from winnow.weighters.dual import Dual, DualState
from winnow.weighters.marginal import marginal_fit


@plugin
class Trial:
    """`winnow.Dual` with more ways to use its weights."""

    budget: float = 2.0
    temperature: float = 0.1
    temperature_rate: float = 1e-2
    """0 fixes λ at `temperature`."""
    discount: float = 1.0
    floor: float = 0.0
    """Share of the policy's weight that is spread evenly over the batch."""
    value_floor: float = 0.0
    """The same for value losses."""
    average: Literal["row", "trajectory"] = "row"
    ratio: Literal["joint", "conditional"] = "joint"
    """conditional: w(a|s) = w(s,a) / w(s)."""
    learning_rate: float = 1e-3
    hidden: tuple[int, ...] = (256, 256)

    @property
    def dual(self) -> Dual:
        return Dual(
            budget=self.budget,
            temperature=self.temperature,
            discount=self.discount,
            average=self.average,
            hidden=self.hidden,
        )

    @property
    def refreshes(self) -> bool:
        return self.average == "trajectory"

    def init(self, key: Array, spec: Spec) -> DualState:
        state = self.dual.init(key, spec)
        params = dict(state.params)
        if self.ratio == "conditional":
            params["state"] = mlp_init(jax.random.fold_in(key, 1), (spec.obs_dim, *self.hidden, 1), last_scale=0.01)
        return state._replace(params=params, optimiser=adam_init(params))

    def update(self, state: DualState, batch: Batch, key: Array) -> tuple[DualState, Weights, Metrics]:
        count = batch.reward.shape[0]

        def loss(params: dict[str, Any]) -> tuple[Array, Array]:
            heat = jnp.exp(params["log_temperature"])
            score = self.dual._gain(params, batch) / heat
            total = heat * (jax.nn.logsumexp(score) - jnp.log(count) + self.budget)
            total += (1 - self.discount) * jnp.mean(scalar(params["nu"], batch.start_obs))
            score = state.table[batch.row] if self.refreshes else score
            if self.ratio == "conditional":
                ratio = jax.lax.stop_gradient(count * jax.nn.softmax(score))
                fit, marginal = marginal_fit(params["state"], batch.obs, ratio)
                total = total + fit
                score = score - marginal
            return total, score

        (total, score), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        rates = dict.fromkeys(state.params, self.learning_rate) | {"log_temperature": self.temperature_rate}
        params, optimiser = adam_step(state.params, grads, state.optimiser, rates)
        params["log_temperature"] = jnp.maximum(params["log_temperature"], jnp.log(0.02))
        weight = jax.nn.softmax(jax.lax.stop_gradient(score))
        policy, value = ((1 - part) * weight + part / count for part in (self.floor, self.value_floor))
        metrics = {"weighter/loss": total, "weighter/temperature": jnp.exp(state.params["log_temperature"])}
        return (
            DualState(params, optimiser, state.table),
            Weights(policy, policy, value),
            metrics | diagnose(weight, batch),
        )

    def log_weight(self, state: DualState, batch: Batch) -> Array:
        score = self.dual.log_weight(state, batch)
        return score - scalar(state.params["state"], batch.obs) if self.ratio == "conditional" else score

    def refresh(self, state: DualState, fetch: Any, episode: Array) -> DualState:
        return self.dual.refresh(state, fetch, episode)


KEPT = Path(__file__).parents[2] / "results" / "entry" / "explore.jsonl"
JOINT = [
    {"budget": 2},  # as `dual` is set
    {"budget": 1},
    {"budget": 0.5},
    {"budget": 2, "discount": 0.99},
    {"budget": 1, "discount": 0.99},
    {"budget": 2, "floor": 0.3},
    {"budget": 1, "floor": 0.3},
    {"budget": 1, "discount": 0.99, "floor": 0.3},
    {"budget": 1, "floor": 0.3, "value_floor": 1},
    {"budget": 1, "discount": 0.99, "floor": 0.3, "value_floor": 1},
    {"temperature": 0.2, "temperature_rate": 0},
    {"temperature": 0.2, "temperature_rate": 0, "discount": 0.99},
    {"temperature": 0.5, "temperature_rate": 0},
]
CONDITIONAL = [
    {"budget": 2},
    {"budget": 2, "discount": 0.99},
    {"budget": 1, "discount": 0.99},
    {"budget": 1, "discount": 0.99, "value_floor": 1},
    {"temperature": 0.2, "temperature_rate": 0, "discount": 0.99},
    {"temperature": 0.1, "temperature_rate": 0, "discount": 0.99},
    {"temperature": 0.2, "temperature_rate": 0, "discount": 0.99, "value_floor": 1},
]
TRAJECTORY = [
    {"budget": 2},
    {"budget": 1},
    {"budget": 1, "discount": 0.99},
    {"budget": 1, "floor": 0.3},
]
VARIANTS: list[dict[str, Any]] = [*JOINT]
VARIANTS += [changes | {"ratio": "conditional"} for changes in CONDITIONAL]
VARIANTS += [changes | {"average": "trajectory"} for changes in TRAJECTORY]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path("explore"))
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--environments", nargs="+", default=["hopper", "walker2d"])
    parser.add_argument("--hidden", default="256x256")
    parser.add_argument("--variants", type=int, default=len(VARIANTS), help="train only the first of them")
    parser.add_argument("--table", action="store_true", help="only print the table of the results that are kept")
    args = parser.parse_args()
    if args.table:
        print("\n".join(table()))
        return
    WEIGHTERS["trial"] = Trial
    METHODS.update({"trial-aw": ("aw", "trial"), "trial-uniform": ("uniform", "trial")})
    how = How(
        args.steps,
        256,
        min(10_000, args.steps),
        Evaluation(episodes=args.episodes, rounds=2, spacing=min(10_000, args.steps // 2), curve=1),
    )
    every = suites.entries(["mixed", "diverse"], rows=args.rows)
    entries = suites.chosen(every, args.environments, ["expert"], [5])
    small = args.hidden != "256x256"
    sizes = [Setting(family, "hidden", (args.hidden,)) for family in ("algorithm", "weighter") if small]
    kinds = [
        Kind(
            "iql", f"trial-{sampler}", (*sizes, *(Setting("weighter", name, (str(v),)) for name, v in changes.items()))
        )
        for changes in VARIANTS[: args.variants]
        for sampler in ("aw", "uniform")
    ]
    kinds += [Kind("iql", method, tuple(sizes[:1])) for method in ("uniform", "aw", "best-source")]
    run_local.run(plan.packs(plan.planned(entries, kinds, args.seeds, how)), args.out)
    keep(args.out)
    print("\n".join(table()))


def keep(folder: Path) -> None:
    """Save the results of a grid without redundant fields, one per line."""
    names = ("method", "swept", "score", "shares", "rounds")
    lines = []
    for path in sorted((folder / "results").glob("*.json")):
        result = json.loads(path.read_text())
        config = {name: result["config"][name] for name in ("seed", "steps", "batch_size", "chunk", "evaluation")}
        line = {"dataset": result["config"]["dataset"]["name"]} | {name: result[name] for name in names} | config
        lines.append(json.dumps(line | {"made_with": result["made_with"]}))
    KEPT.write_text("\n".join(lines) + "\n")


def table() -> list[str]:
    """Mean score of each variant on each dataset, best mean first; in brackets the expert's share of the weight."""
    scores: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for line in map(json.loads, KEPT.read_text().splitlines()):
        changes = " ".join(f"{k.split('.')[1]}={v}" for k, v in line["swept"].items() if not k.endswith("hidden"))
        share = sum(part for label, part in line["shares"].items() if "expert" in label)
        score = float("nan") if line["score"] is None else line["score"]
        scores[f"{line['method']} {changes}"][line["dataset"]].append((score, share))
    sets = sorted({data for by_set in scores.values() for data in by_set})
    means = {
        kind: {data: np.mean(rounds, axis=0) for data, rounds in by_set.items()} for kind, by_set in scores.items()
    }

    def mean_score(kind: str) -> float:
        return float(np.nanmean([score for score, _ in means[kind].values()]))

    order = sorted(means, key=lambda kind: -mean_score(kind))
    lines = ["  mean | " + " ".join(f"{data.partition('@')[0].replace('random-', ''):>27}" for data in sets)]
    for kind in order:
        cells = [f"{means[kind][data][0]:.1f} ({means[kind][data][1]:.2f})" for data in sets]
        lines.append(f"{mean_score(kind):6.1f} | " + " ".join(f"{cell:>27}" for cell in cells) + f" | {kind}")
    return lines


if __name__ == "__main__":
    run_script(main)
