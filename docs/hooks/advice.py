"""What samplers and `--method auto` do on known sets: tables from results/collapse and results/as_published."""

from __future__ import annotations

import json
from typing import Any

from conformance import _module, markdown
from source import ROOT

SHOWN = ("largest episode", "its rank by return", "good episodes", "effective rows", "mean return", "uniform")
PERCENT = ("largest episode", "good episodes", "effective rows")


def collapse(_: str) -> str:
    """The fits of `continued` and `followed` on the log of a plant, seed by seed."""
    lines: list[dict[str, Any]] = json.loads((ROOT / "results/collapse/seeds.json").read_text(encoding="utf-8"))
    rows = []
    for line in sorted(lines, key=lambda line: (line["sampler"], line["seed"])):
        cells = [f"{line[name]:.1%}" if name in PERCENT else f"{line[name]:g}".replace("-", "−") for name in SHOWN]
        rows.append([f"`{line['sampler']}`", str(line["seed"]), *cells])
    head = ["sampler", "seed", "share of the largest episode", "its rank by return", "share of the good episodes"]
    return markdown([*head, "effective rows", "mean return of the samples", "of uniform samples"], rows)


COLUMNS = {"hopper": 11, "walker2d": 17, "halfcheetah": 17}
"""Columns of an observation, by environment."""
ORACLE = "best-source"


def choices(_: str) -> str:
    """What `auto` chooses on each set of results/as_published, and how far it is from the best method there."""
    tables = _module("experiments/as_published/tables.py")
    rows = []
    for name in sorted({run.dataset for run in tables.runs()}, key=lambda name: ("diverse" in name, name)):
        runs = [run for run in tables.runs() if run.dataset == name]
        labels = sorted({run.label for run in runs if not run.swept} - {ORACLE})
        means = {label: tables.mean([run for run in runs if run.label == label]) for label in labels}
        chosen = chosen_for(name, runs[0].facts)
        best = max(means, key=lambda label: means[label])
        scores = ["not trained yet", ""]
        if chosen in means:
            scores = [f"{means[chosen]:.1f}", f"{means[chosen] - means[best]:+.1f}".replace("-", "−")]
        rows.append([f"`{name}`", f"`{chosen}`", *scores, f"`{best}` {means[best]:.1f}", f"{means['uniform']:.1f}"])
    head = ["set", "auto chooses", "its score", "less the best method's", "best method", "uniform"]
    return markdown(head, rows)


def chosen_for(name: str, facts: dict[str, Any]) -> str:
    """The method for a mixture, from what its name and its result say of it: no rows are needed."""
    from winnow.data.advice import decide
    from winnow.data.imbalance import Imbalance
    from winnow.data.names import parse

    recipe = parse(name).recipe
    assert recipe is not None
    unread: dict[str, Any] = dict.fromkeys(("mean", "rpsv", "rpsv_scaled", "gini", "effective_count"), 0.0)
    measured = Imbalance(
        **unread,
        of="return",
        kind="episodes",
        discount=1.0,
        count=facts["episodes"],
        rows=facts["rows"],
        quantiles={"0": 0.0, "1": 1.0},
        top_share={},
        effective_share=recipe.share,
        start_spread=None,
        fragments=recipe.shape == "segments",
        columns=COLUMNS[parse(name).environment],
        sources=(),
        histogram=(),
        histogram_edges=(),
    )
    return decide(measured).method
