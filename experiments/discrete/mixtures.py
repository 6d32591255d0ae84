"""Weights and samplers on imbalanced sets of CartPole and Acrobot: a few episodes of an expert among random ones.

    python experiments/discrete/mixtures.py            trains, and writes results/discrete/mixtures.json
    python experiments/discrete/mixtures.py --tables   the tables of docs/discrete.md from that file

`best-source` is an oracle: it samples the expert's rows alone. Where it does not reach nine tenths of what the expert
earns above random, the algorithm or the data is broken, and a comparison of the others means nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from winnow.data.catalogue import open_named
from winnow.errors import run_script
from winnow.evaluation.settings import Evaluation
from winnow.methods import make_algorithm, method, resized
from winnow.training import train_runs
from winnow.training.planning import plan

ENVIRONMENTS = ("cartpole", "acrobot")
PERCENTS = (1, 5, 10)
METHODS = ("uniform", "aw", "dw-aw", "best-source")
ALGORITHMS = ("bc", "cql", "iql")
ROWS = 60_000
SEEDS = 5
STEPS = 1_500
BATCH = 64
HIDDEN = (64, 64)
RATE = 1e-3
EPISODES = 10
FILE = Path(__file__).parents[2] / "results" / "discrete" / "mixtures.json"


def train(environment: str, algorithm: str, percents: Sequence[int], methods: Sequence[str]) -> list[dict[str, Any]]:
    """All runs of an algorithm in an environment: their returns, and the weight of the expert's rows."""
    runs = []
    for percent in percents:
        data = open_named(f"{environment}-random-expert-{percent}%@{ROWS}", make=True)
        learner: Any = dataclasses.replace(resized(make_algorithm(algorithm, data), HIDDEN), learning_rate=RATE)
        for name in methods:
            weighter: Any = resized(method(name, f"discrete-{algorithm}")[1], HIDDEN)
            if hasattr(weighter, "learning_rate"):
                weighter = dataclasses.replace(weighter, learning_rate=RATE)
            runs += plan(data, learner, name, weighter=weighter, seeds=SEEDS)
    last = Evaluation(episodes=EPISODES, rounds=1, spacing=STEPS, curve=0)
    lines = []
    for trained in train_runs(runs, steps=STEPS, batch_size=BATCH, chunk=STEPS, evaluate=last):
        data = trained.run.dataset
        _, name, label, seed = trained.run.name.rsplit(".", 3)
        lines.append(
            {
                "environment": environment,
                "percent": round(100 * data.meta.recipe["share"]) if data.meta.recipe else 0,
                "algorithm": name.removeprefix("discrete-"),
                "method": label,
                "seed": int(seed.removeprefix("seed")),
                "returns": trained.rounds[-1].returns,
                "expert_weight": trained.weights().share(data.source == 1),
            }
        )
    return lines


def sources(environment: str) -> dict[str, float]:
    """The mean return of each source."""
    pools = {level: open_named(f"{environment}-{level}@{ROWS}", make=True) for level in ("random", "expert")}
    return {level: float(pool.returns.mean()) for level, pool in pools.items()}


def tables(kept: dict[str, Any]) -> str:
    """Scores: 0 is the random source and 100 the expert. The mean over seeds, and its standard error."""
    parts = []
    for algorithm in dict.fromkeys(line["algorithm"] for line in kept["runs"]):
        rows = [f"**{algorithm}**\n", f"| set | {' | '.join(METHODS)} |", "|---" * (len(METHODS) + 1) + "|"]
        for environment in kept["sources"]:
            for percent in PERCENTS:
                cells = [cell(kept, algorithm, environment, percent, name) for name in METHODS]
                if any(cells):
                    shown = [text or "not run" for text in cells]
                    rows.append(f"| {environment} {percent} % | {' | '.join(shown)} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def cell(kept: dict[str, Any], *which: Any) -> str:
    names = ("algorithm", "environment", "percent", "method")
    low, high = (kept["sources"][which[1]][level] for level in ("random", "expert"))
    scores = [
        100 * (np.mean(line["returns"]) - low) / (high - low)
        for line in kept["runs"]
        if tuple(line[name] for name in names) == which
    ]
    if not scores:
        return ""
    return f"{round(np.mean(scores)) + 0} ± {np.std(scores, ddof=1) / np.sqrt(len(scores)):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--algorithms", nargs="+", default=list(ALGORITHMS))
    parser.add_argument("--environments", nargs="+", default=list(ENVIRONMENTS))
    parser.add_argument("--percents", nargs="+", type=int, default=list(PERCENTS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    options = parser.parse_args()
    kept: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {"sources": {}, "runs": []}
    if not options.tables:
        for environment in options.environments:
            kept["sources"][environment] = sources(environment)
            for algorithm in options.algorithms:
                fresh = train(environment, algorithm, options.percents, options.methods)
                names = ("environment", "algorithm", "percent", "method", "seed")
                done = {tuple(line[name] for name in names) for line in fresh}
                kept["runs"] = [x for x in kept["runs"] if tuple(x[name] for name in names) not in done] + fresh
                FILE.write_text(json.dumps(kept) + "\n")
    print(tables(kept))


if __name__ == "__main__":
    run_script(main)
