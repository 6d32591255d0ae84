"""winnow compared with the authors' code and d3rlpy: tables from results/conformance, and the
deviations that plug-ins list in their docstrings."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from source import EXAMPLES, ROOT

CONFORMANCE = ROOT / "results" / "conformance"
ALGORITHMS = ("iql", "cql", "td3bc")
QUANTITIES = {
    "score": "score",
    "q, unseen": "Q(s,a)",
    "v, unseen": "V(s)",
    "nll, unseen": "−log π(a|s)",
    "error, unseen": "(π(s) − a)²",
}
"""Columns of the table of curves. All but the score are on held-out rows."""


def deviations(_: str) -> str:
    """The paragraph 'Follows … Deviates in this: …' of each algorithm's and weighter's docstring."""
    from winnow import algorithms, weighters

    parts = []
    for name, kind in (algorithms.ALGORITHMS | weighters.WEIGHTERS).items():
        docstring = (inspect.getdoc(kind) or "").partition(f"\n\n{EXAMPLES}\n")[0]
        if "Deviates in this:" in docstring:
            page = f"{'algorithms' if name in algorithms.ALGORITHMS else 'weighters'}/{name}.md"
            paragraphs = docstring.split("\n\n")
            first = next(number for number, text in enumerate(paragraphs) if re.search(r"\bFollows\s", text))
            follows = "\n\n".join(paragraphs[first:])
            parts.append(f"### [{name}]({page})\n\n{follows}")
    return "\n\n".join(parts)


def density(_: str) -> str:
    """The settings of the density weighter in `dw-aw` and `dw-uniform`, by algorithm."""
    from winnow.methods import SCRIPT_LAMBDAS, make_weighter

    weighters: list[Any] = [make_weighter("density", name) for name in ALGORITHMS]
    names = ("form", "lambda_k", "lambda_f", "reward_scaling", "standardise", "state_weight", "initialisation")
    rows = [[f"`{name}`", *(f"`{getattr(weighter, name)}`" for weighter in weighters)] for name in names]
    scripts = [", ".join(f"`{number}`" for number in SCRIPT_LAMBDAS[name]) for name in ALGORITHMS]
    rows.append(["`lambda_k`, `lambda_f` in `dw-…-script`", *scripts])
    return markdown(["setting", *(f"with {name}" for name in ALGORITHMS)], rows)


def exact(_: str) -> str:
    """Largest difference of any parameter array from the authors' code, by dataset, algorithm and updates."""
    results = json.loads((CONFORMANCE / "exact.json").read_text(encoding="utf-8"))
    rows = []
    for dataset, sides in results.items():
        for name, figures in sides.items():
            far = [f"{figures['parameters'][count]:.0e}" for count in ("1", "10", "100")]
            rows.append([f"`{dataset}`", name, *far, _largest(figures["losses"]), f"{figures['moved']:.2f}"])
    head = ["rows", "algorithm", "after 1 update", "after 10", "after 100", "losses", "moved in 100 updates"]
    return markdown(head, rows)


def _largest(differences: dict[str, float]) -> str:
    return f"{max(differences.values()):.0e}" if differences else "not reported"


def curves(_: str) -> str:
    """Results at the end of training, winnow and d3rlpy: both means and an interval of their difference."""
    runs = json.loads((CONFORMANCE / "curves.json").read_text(encoding="utf-8"))
    rows = []
    for line in _module("benchmarks/conformance.py").table(runs):
        if line["quantity"] not in QUANTITIES:
            continue
        ours, theirs = line["means"]
        inside = line["low"] <= 0 <= line["high"]
        span = f"[{line['low']:+.2f}, {line['high']:+.2f}]".replace("-", "−")
        rows.append(
            [
                line["algorithm"],
                f"`{line['dataset']}`",
                f"{line['updates']:,}",
                QUANTITIES[line["quantity"]],
                f"{ours:.2f}",
                f"{theirs:.2f}",
                span if inside else f"**{span}**",
                str(min(line["seeds"])),
            ]
        )
    head = ["algorithm", "rows", "updates", "quantity", "winnow", "d3rlpy", "difference [95 %]", "seeds"]
    return markdown(head, rows)


@functools.cache
def _module(path: str) -> ModuleType:
    """A script of the repository as a module."""
    name = re.sub(r"\W", "_", path)
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in cells] for cells in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
