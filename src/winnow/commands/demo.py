"""`winnow demo`: the main job from nothing to a page with a table and pictures, in a few minutes on two cores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from winnow.data.advice import Advice

METHODS = {
    "uniform": "samples every row equally often: plain behaviour cloning",
    "aw": "samples fragments by their advantage over the mean return from their start",
    "dw-aw": "AW, and learns how much a sampled row counts (density-ratio weighting, as published)",
    "auto": "what winnow does by default",
    "best-source": "samples the expert's rows alone, by their labels: an oracle, since real data has no such labels",
}
"""All that are compared, and all that are shown, whoever wins."""

# Algorithm, rows, widths, learning rate and updates were chosen on seeds 10 to 12, with all methods in view. The demo
# has other seeds.
ALGORITHM = "bc"
ROWS = 100_000
HIDDEN = (64, 64)
LEARNING_RATE = 1e-3
SET = f"hopper-random-expert-diverse-10%@{ROWS}"
EPISODES = 10
ROUNDS = 3
CURVE = 4


def demo(*, out: Path = Path("demo"), steps: int = 8_000, seeds: int = 3, rows: int = ROWS, open: bool = False) -> None:
    """Hopper from fragments of episodes, 90 % random and 10 % from an expert: what does re-weighting change?

    The data is played first, from policies that come with winnow. Behaviour cloning then learns from it with uniform
    sampling, with advantage weighting (AW), with learned weights on top of AW (DW-AW), with the default method `auto`,
    and from the expert's rows alone (an oracle): all runs of a shape in one compiled program, evaluated in the
    environment while they train. It ends in a page.

    Args:
        out: A folder for the runs, the page and the raw returns. Runs that are there already are kept.
        steps: Updates of each run.
        seeds: Runs of each method.
        rows: Rows of the dataset.
        open: Open the page in a browser at the end.
    """
    from winnow.commands._shared import made
    from winnow.data.advice import advise, verdict
    from winnow.data.imbalance import imbalance
    from winnow.render import figures, pages
    from winnow.system.files import write_text

    name = SET if rows == ROWS else f"{SET.split('@')[0]}@{rows}"
    dataset = made(name)
    measured = imbalance(dataset)
    text = verdict(measured)
    advice = advise(dataset, measured)
    print(f"{dataset}\n{text}\n{advice.line(dataset.meta.name)}\n")
    methods = compared(advice)

    trained = _train(dataset, methods, out / "runs", steps, seeds)
    by_method = {method: [run for run in trained if run.run.method == method] for method in methods}
    scores = {method: [run.score for run in runs] for method, runs in by_method.items()}
    weights = {method: [run.weights() for run in runs] for method, runs in by_method.items()}
    expert = dataset.source == dataset.meta.sources.index("expert")
    good = {
        method: float(np.mean([seed.share(expert) for seed in row_weights])) for method, row_weights in weights.items()
    }
    _show(scores, good, advice.method)

    curves: dict[str, dict[int, list[float]]] = {method: {} for method in methods}
    for method, runs in by_method.items():
        for played in (played for run in runs for played in run.rounds):
            curves[method].setdefault(played.step, []).append(played.score)
    title = f"Behaviour cloning on {dataset.meta.name}"
    pictures = {
        "returns": figures.returns({dataset.meta.name: dataset}),
        "scores": figures.scores(scores, title, {"D4RL's expert": 100.0, "random": 0.0}),
        "curves": figures.curves(curves, "while training"),
    }
    weighed = [
        figures.weights(dataset, row_weights[0].weight, f"{method}, seed 0")
        for method, row_weights in weights.items()
        if method != "uniform"
    ]
    raw = {run.run.name: [played.line() for played in run.rounds] for run in trained}
    write_text(out / "returns.json", json.dumps({"dataset": dataset.fingerprint, "rounds": raw}))
    page = out / "index.html"
    pages.write(
        page,
        "demo.html",
        title="What re-weighting does to imbalanced data",
        dataset={"rows": f"{len(dataset):,}", "environment": "hopper", "share": f"{np.mean(dataset.source == 1):.0%}"},
        verdict=text,
        runs=trained,
        steps=f"{steps:,}",
        rounds=ROUNDS,
        episodes=EPISODES,
        methods=[
            {
                "name": method,
                "score": f"{np.mean(scores[method]):.1f}",
                "each": "  ".join(f"{score:.0f}" for score in scores[method]),
                "good": f"{good[method]:.0%}",
                "words": about,
            }
            for method, about in methods.items()
        ],
        figures={name: pages.embedded(figure) for name, figure in pictures.items()}
        | {"weights": [pages.embedded(figure) for figure in weighed]},
        command=f"winnow demo --steps {steps} --seeds {seeds} --rows {rows}",
        versions=_versions(dataset),
    )
    print(f"\npage {page}\nraw returns {out / 'returns.json'}")
    if open:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def compared(advice: Advice) -> dict[str, str]:
    """The methods of the demo, with what `auto` chose and why."""
    return METHODS | {"auto": f"{METHODS['auto']}; here it chose {advice.method}, because {advice.why}"}


def _train(dataset: Any, methods: dict[str, str], out: Path, steps: int, seeds: int) -> list[Any]:
    import dataclasses

    from winnow.data.advice import AUTO
    from winnow.evaluation.settings import Evaluation
    from winnow.methods import make_algorithm, method, resized
    from winnow.training import train_runs
    from winnow.training.planning import plan

    algorithm = dataclasses.replace(resized(make_algorithm(ALGORITHM, dataset), HIDDEN), learning_rate=LEARNING_RATE)
    runs = []
    for name in methods:
        weighter = None if name == AUTO else resized(method(name, ALGORITHM)[1], HIDDEN)
        runs += plan(dataset, algorithm, name, weighter=weighter, seeds=seeds)
    often = Evaluation(episodes=EPISODES, rounds=ROUNDS, curve=CURVE)
    return train_runs(runs, steps=steps, out=out, resume=True, evaluate=often)


def _show(scores: dict[str, list[float]], good: dict[str, float], chosen: str) -> None:
    from rich.console import Console
    from rich.table import Table

    title = "Behaviour cloning: score (0 = random, 100 = D4RL's expert)"
    table = Table("method", "score", "each seed", "weight on expert rows", title=title)
    for method, seeds in scores.items():
        each = "  ".join(f"{score:.0f}" for score in seeds)
        table.add_row(
            f"auto ({chosen})" if method == "auto" else method, f"{np.mean(seeds):.1f}", each, f"{good[method]:.0%}"
        )
    Console().print(table)


def _versions(dataset: Any) -> str:
    import jax

    from winnow import __version__

    return f"winnow {__version__}, jax {jax.__version__}, {dataset.meta.physics}"
