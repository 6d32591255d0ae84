"""The tables of docs/speed.md, from `results/speed/`.

    python -m experiments.speed            prints all tables
    python -m experiments.speed packs      prints one

The docs site calls the same functions while it is built.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.as_published.tables import markdown

RESULTS = Path(__file__).resolve().parents[2] / "results" / "speed"
LIBRARIES = ("iql", "td3bc", "cql")
ENVIRONMENTS = ("hopper", "halfcheetah", "walker2d", "ant")
PACKS = (
    "iql uniform × 128",
    "iql dw-aw × 16",
    "iql dw-aw × 128",
    "iql dw-aw × 512",
    "td3bc dw-aw × 128",
    "cql dw-aw × 64",
    "cql dw-aw × 128",
)


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def d3rlpy() -> str:
    """One run in winnow and in d3rlpy, on two CPU cores and on one H200."""
    cpu = read("cpu")
    gpu = read("h200-peers")["one run, steps/s"]
    rows = []
    for name in LIBRARIES:
        both = cpu[f"against d3rlpy, {name}"]
        ours = gpu[f"winnow, {name} uniform"]
        theirs = gpu[f"d3rlpy, {name} uniform"]
        cells = [both["winnow"], both["d3rlpy"]]
        ratios = [f"{both['ratio']:.1f} ×", f"{ours / theirs:.0f} ×"]
        rows.append([name, *(f"{value:.0f}" for value in cells), ratios[0], f"{ours:,.0f}", f"{theirs:.0f}", ratios[1]])
    head = ["updates per second", "CPU, winnow", "CPU, d3rlpy", "", "H200, winnow", "H200, d3rlpy", ""]
    return markdown(head, rows)


def weights() -> str:
    """What weights and packs cost beside a plain loop, one run on a CPU."""
    one_run = read("cpu")["one run"]
    plain = one_run["plain scan, IQL"]
    names = {
        "plain scan, IQL": "a plain JAX loop of IQL",
        "pack of one, IQL": "winnow, IQL",
        "pack of one, IQL + DW": "winnow, IQL with DW",
        "pack of one, IQL + dual": "winnow, IQL with the exact dual",
    }
    rows = [[text, f"{one_run[name]:.0f}", f"{plain / one_run[name]:.2f} ×"] for name, text in names.items()]
    return markdown(["one run on two CPU cores", "updates per second", "time, against the plain loop"], rows)


def packs() -> str:
    """Packs of many runs on one H200."""
    points = read("h200")
    rows = []
    for name in PACKS:
        what, count = name.split(" × ")
        rows.append([what, count, f"{points[name]['run-steps/s']:,.0f}"])
    return markdown(["algorithm and method", "runs in the pack", "run-steps per second"], rows)


def play() -> str:
    """Evaluation beside Gymnasium's own loop."""
    points = read("evaluation")
    rows = [
        [
            name,
            f"{points[name]['one']:,.0f}",
            f"{points[name]['play']:,.0f}",
            f"{points[name]['of one × cores']:.2f} ×",
        ]
        for name in ENVIRONMENTS
    ]
    return markdown(["steps per second", "Gymnasium, one core", "winnow, two cores", "of twice Gymnasium's rate"], rows)


TABLES: Mapping[str, Callable[[], str]] = {"d3rlpy": d3rlpy, "weights": weights, "packs": packs, "play": play}
