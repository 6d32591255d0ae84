"""Tables of scores, computed from the raw returns under `results/` when the site is built."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from source import ROOT


class Run(NamedTuple):
    """A finished run: what it is called in the table, its score, and its weight on the good rows where that is kept."""

    method: str
    score: float
    good: float | None


def table(folder: str) -> str:
    """One of the comparisons of `results/`: a line for each method, its mean over seeds and each seed."""
    name = folder.strip()
    runs = READ[name](json.loads((ROOT / "results" / name / "returns.json").read_text(encoding="utf-8")))
    by_method: dict[str, list[Run]] = {}
    for run in runs:
        by_method.setdefault(run.method, []).append(run)
    weighted = any(run.good is not None for run in runs)
    head = ["method", "score", "each seed", *(["weight on the good rows"] if weighted else [])]
    rows = [head, ["---"] * len(head)]
    for method, group in by_method.items():
        scores = [run.score for run in group]
        shares = [run.good for run in group if run.good is not None]
        good = [f"{mean(shares):.0%}".replace("%", " %")] if weighted else []
        each = ", ".join(f"{score:.0f}" for score in scores).replace("-", "−")
        rows.append([method, f"{mean(scores):.1f}".replace("-", "−"), each, *good])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _dome(file: Mapping[str, Any]) -> list[Run]:
    return [
        Run(name.split(".")[-2], _normalised(returns, file["score 0 and 100"]), file.get("good", {}).get(name))
        for name, returns in file["returns"].items()
    ]


def _baselines(file: Mapping[str, Any]) -> list[Run]:
    return [
        Run(
            name.removeprefix("bc ").rsplit(" ", 1)[0],
            _normalised(run["returns"], file["score 0 and 100"]),
            run["good"],
        )
        for name, run in file["runs"].items()
    ]


def _demo(file: Mapping[str, Any]) -> list[Run]:
    """A run's score is the mean of its last rounds, in D4RL's units."""
    from winnow.envs import lookup

    runs = []
    for name, rounds in file["rounds"].items():
        last = [value for played in rounds if played["round"] for value in played["returns"]]
        reference = lookup(rounds[0]["environment"]).reference
        runs.append(Run(name.split(".")[-2], _normalised(last, reference), None))
    return runs


def _normalised(returns: Sequence[float], reference: Any) -> float:
    low, high = reference
    return 100 * (mean(returns) - low) / (high - low)


READ: dict[str, Callable[[Any], list[Run]]] = {"dome": _dome, "baselines": _baselines, "demo": _demo}
"""The reader of each folder, since their files differ."""
