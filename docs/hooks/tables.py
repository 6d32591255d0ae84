"""Tables that a script of `experiments/` computes from `results/`, with the command that prints them."""

from __future__ import annotations

import importlib
import json
import sys
from types import ModuleType

from source import ROOT


def table(request: str) -> str:
    """`NAME TABLE`: what `python -m experiments.NAME TABLE` prints, and a line that says so."""
    experiment, name = request.split()
    markdown = experiment_tables(experiment).TABLES[name]()
    return f"{markdown}\n\nComputed from `results/` by `python -m experiments.{experiment} {name}`.\n{{: .computed }}"


def experiment_tables(experiment: str) -> ModuleType:
    """The module `tables` of a folder of `experiments/`."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    return importlib.import_module(f"experiments.{experiment}.tables")


def hours(_: str) -> str:
    """What each suite takes on one H200, estimated from measured rates."""
    suites = json.loads((ROOT / "results" / "paper" / "hours.json").read_text(encoding="utf-8"))
    names = ("mixed", "diverse", "small", "d4rl-mujoco", "d4rl-antmaze", "d4rl-kitchen", "d4rl-adroit", "paper")
    rows = ["| suite | runs | hours on one H200 |", "| --- | --- | --- |"]
    rows += [f"| `{name}` | {suites[name]['runs']:,} | {suites[name]['hours']:.1f} |" for name in names]
    return "\n".join(
        [*rows, "", "Estimated from measured rates by `python experiments/paper/hours.py`.", "{: .computed }"]
    )
