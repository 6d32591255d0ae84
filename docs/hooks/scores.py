"""Tables of scores, computed from the raw returns under `results/` when the site is built."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from source import ROOT


def table(words: str) -> str:
    """One of the comparisons of `results/`: a line for each method, its mean over seeds and each seed."""
    folder = words.strip()
    found = READ[folder](json.loads((ROOT / "results" / folder / "returns.json").read_text(encoding="utf-8")))
    by_method: dict[str, list[float]] = {}
    for (method, _), score in found.items():
        by_method.setdefault(method, []).append(score)
    rows = ["| method | score | each seed |", "|---|---|---|"]
    for method, each in by_method.items():
        rows.append(f"| {method} | {sum(each) / len(each):.1f} | {', '.join(f'{one:.0f}' for one in each)} |")
    return "\n".join(rows)


def _dome(said: Any) -> dict[tuple[str, str], float]:
    runs = {tuple(name.split(".")[-2:]): returns for name, returns in said["returns"].items()}
    return {run: _normalised(returns, said["score 0 and 100"]) for run, returns in runs.items()}  # pyright: ignore


def _baselines(said: Any) -> dict[tuple[str, str], float]:
    runs = {tuple(name.removeprefix("bc ").rsplit(" ", 1)): one["returns"] for name, one in said["runs"].items()}
    return {run: _normalised(returns, said["score 0 and 100"]) for run, returns in runs.items()}  # pyright: ignore


def _demo(said: Any) -> dict[tuple[str, str], float]:
    """A run's score is the mean of its last rounds, in D4RL's units."""
    from winnow.envs import lookup

    found = {}
    for name, rounds in said["rounds"].items():
        last = [value for one in rounds if one["round"] for value in one["returns"]]
        reference = lookup(rounds[0]["environment"]).reference
        found[tuple(name.split(".")[-2:])] = _normalised(last, reference)
    return found


def _normalised(returns: list[float], reference: Any) -> float:
    low, high = reference
    return 100 * (sum(returns) / len(returns) - low) / (high - low)


READ: dict[str, Callable[[Any], dict[tuple[str, str], float]]] = {"dome": _dome, "baselines": _baselines, "demo": _demo}
"""Each folder keeps its returns under names of its own."""
