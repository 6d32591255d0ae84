"""`winnow demo`: the main job from nothing to a table and a picture, in a few minutes on two cores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

METHODS = ("uniform", "aw", "dw-uniform", "dw-aw", "dual-uniform", "dual-aw")
"""All that are compared, and all that are shown, whoever wins."""
ROWS, SHARE, EPISODES, HIDDEN = 100_000, 0.05, 100, (64, 64)


def demo(*, out: Path = Path("demo"), steps: int = 5_000, seeds: int = 3) -> None:
    """A dome that a puck slides off: 95 % of the data is random, 5 % comes from a policy that keeps it up.

    TD3+BC learns from it with uniform sampling, with advantage weighting (AW), and with learned density-ratio weights
    (DW as published, and its exact dual) on top of both. All runs of a shape train in one compiled program.

    Args:
        out: A folder for the dataset, the runs, the table and the pictures. Runs that are there already are kept.
        steps: Updates of each run.
        seeds: Runs of each method.
    """
    from winnow import figures, toy
    from winnow.data import recipes, store
    from winnow.data.imbalance import imbalance, verdict
    from winnow.data.sources import open_dataset
    from winnow.files import write_text

    source = out / "dome-random-expert-5.safetensors"
    if not source.exists():
        low, high = (
            toy.make(toy.random, ROWS, seed=0, name="random"),
            toy.make(toy.expert, 20_000, seed=1, name="expert"),
        )
        labels: dict[str, Any] = {"low_label": "random", "high_label": "expert", "name": "dome-random-expert-5"}
        store.save(recipes.mixed(low, high, SHARE, ROWS, **labels), source)
    dataset = open_dataset(source)
    print(f"{dataset}\n{verdict(imbalance(dataset))}\n")

    trained = _train(dataset, out / "runs", steps, seeds)
    returns = {one.run.name: toy.evaluate(one.policy, EPISODES) for one in trained}
    by_method = {
        method: [one for one in trained if one.run.name.split(".")[-2] == method]
        for method in METHODS
    }  # fmt: skip
    scores = {m: [float(toy.normalised(returns[o.run.name]).mean()) for o in runs] for m, runs in by_method.items()}
    good = {m: [_share(o, "expert") for o in runs] for m, runs in by_method.items()}
    _show(scores, good, out)
    write_text(
        out / "returns.json",
        json.dumps({"score 0 and 100": toy.references(), "returns": {k: v.tolist() for k, v in returns.items()}}),
    )
    title = f"TD3+BC on {dataset.meta.name}: {seeds} seeds, {steps:,} updates"
    figures.save(figures.scores(scores, title, {"best possible": 100.0, "random": 0.0}), out / "scores.png")
    last = by_method["dual-uniform"][0]
    figures.save(figures.weights(dataset, last.weights().weight, last.run.name), out / "weights.png")
    print(f"\npictures {out / 'scores.png'} and {out / 'weights.png'}, raw returns {out / 'returns.json'}")


def _train(dataset: Any, out: Path, steps: int, seeds: int) -> list[Any]:
    import dataclasses

    from winnow.methods import make_algorithm, method
    from winnow.training import plan, train_runs

    algorithm: Any = dataclasses.replace(make_algorithm("td3bc", dataset), hidden=HIDDEN)  # pyright: ignore
    runs = []
    for name in METHODS:
        weighter: Any = method(name, "td3bc")[1]
        if hasattr(weighter, "hidden"):
            weighter = dataclasses.replace(weighter, hidden=HIDDEN)
        runs += plan(dataset, algorithm, name, weighter=weighter, seeds=seeds)
    return train_runs(runs, steps=steps, out=out, resume=True)


def _share(trained: Any, label: str) -> float:
    """The part of the weighted data that comes from one source."""
    data, weight = trained.run.dataset, trained.weights().weight
    return float(weight[data.source == data.meta.sources.index(label)].sum() / weight.sum())


def _show(scores: dict[str, list[float]], good: dict[str, list[float]], out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "method", "score", "each seed", "weight on expert rows", title="TD3+BC, normalised score (100 = best)"
    )
    for method, seeds in scores.items():
        each = "  ".join(f"{score:.0f}" for score in seeds)
        table.add_row(method, f"{np.mean(seeds):.1f}", each, f"{np.mean(good[method]):.0%}")
    Console().print(table)
