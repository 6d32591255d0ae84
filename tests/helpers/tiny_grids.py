"""Tiny grids, as plans and as command lines, shared by tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from winnow.bench.plan import How, Planned, grid
from winnow.bench.results import Result, collect
from winnow.bench.suites import entries
from winnow.evaluation.settings import Evaluation

DATASETS = ["hopper-random-expert-5%@300", "hopper-random-medium-10%@300"]
METHODS = ["uniform", "aw", "dw-aw"]
EVALUATION: dict[str, Any] = {"episodes": 2, "rounds": 2, "spacing": 10, "curve": 1}
HOW = How(steps=60, batch_size=32, chunk=10, evaluation=Evaluation(**EVALUATION))
SWEEPS = ["algorithm.hidden=16x16", "weighter.hidden=16x16"]


def command_line(out: Path, algorithm: str = "bc", datasets: Sequence[str] = DATASETS) -> list[str]:
    """The command line of the same grid as `planned`."""
    options = {"out": out, "algorithms": algorithm, "methods": ",".join(METHODS), "seeds": 2}
    options |= {"steps": HOW.steps, "batch-size": HOW.batch_size, "chunk": HOW.chunk}
    options |= {f"evaluation.{name}": value for name, value in EVALUATION.items()}
    pairs = [*options.items(), *(("sweep", sweep) for sweep in SWEEPS)]
    return ["bench", "run", *datasets, *(word for name, value in pairs for word in (f"--{name}", str(value)))]


def planned(
    algorithm: str = "bc",
    methods: Sequence[str] = METHODS,
    seeds: int = 2,
    datasets: Sequence[str] = DATASETS,
    sweeps: Sequence[str] = SWEEPS,
) -> list[Planned]:
    fitting = [sweep for sweep in sweeps if sweep.startswith("algorithm") or any("dw" in name for name in methods)]
    return grid(entries(datasets), [algorithm], methods, seeds, HOW, fitting)


def outcome(result: Result) -> dict[str, Any]:
    """A result without its time and its command."""
    return dataclasses.asdict(result) | {"seconds": None, "command": None}


def outcomes(folder: Path) -> dict[str, dict[str, Any]]:
    """All results of a folder by id; reading them must give no message."""
    lines: list[str] = []
    by_id = {result.id: outcome(result) for result in collect(folder, lines.append)}
    assert lines == []
    return by_id
