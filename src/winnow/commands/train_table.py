"""What `winnow train` shows at its end: the runs in a table, or as a record for `--json`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from winnow.system.metrics import read_metrics
from winnow.system.progress import warn

if TYPE_CHECKING:
    from winnow.training.trained import Trained

HEADS = ("run", "steps", "weighted reward", "effective share", "return", "score", "state")


def show(trained: Sequence[Trained], out: Path) -> None:
    """What was trained, where it is and what to do next."""
    from rich.console import Console

    from winnow.commands._tables import fitted

    last = _last_metrics(out)
    rows = [_cells(run, last.get(run.run.name, {})) for run in trained]
    for run, cells in zip(trained, rows, strict=True):
        state = "failed" if run.failure else "with warnings" if run.warnings else ""
        cells.append(state)
    console = Console()
    console.print(fitted(console, HEADS, rows, str(out)))
    for run in trained:
        if run.failure:
            warn(f"{run.run.name} failed: {run.failure}")
        for text in run.warnings:
            warn(f"warning: {run.run.name}: {text}")
    good = [run.run.name for run in trained if not run.failure]
    console.print(f"{len(good)} of {len(trained)} runs are trained; they are in {out}", soft_wrap=True, highlight=False)
    if good:
        best = out / f"{good[-1]}.safetensors"
        console.print(f"next: winnow weights {best}", soft_wrap=True, highlight=False)


def _last_metrics(out: Path) -> dict[str, dict[str, Any]]:
    return {line["run"]: line for line in read_metrics(out / "metrics.jsonl")}


def _cells(run: Trained, line: dict[str, Any]) -> list[str]:
    returns = last_returns(run)
    cells = [run.run.name, f"{run.steps:,}"]
    cells += [f"{line[name]:.3f}" if name in line else "" for name in ("weight/reward", "weight/ess")]
    cells.append(f"{sum(returns) / len(returns):,.1f}" if returns else "")
    cells.append("" if run.score is None else f"{run.score:.1f}")
    return cells


def last_returns(run: Trained) -> list[float]:
    """The returns of all episodes that the last rounds of a run's evaluation played."""
    return [value for played in run.rounds if played.round for value in played.returns]


def record(trained: Sequence[Trained], out: Path, notes: Sequence[str]) -> dict[str, Any]:
    """The runs, their files, and what was earned, for `--json`."""
    last = _last_metrics(out)
    runs = []
    for run in trained:
        returns = last_returns(run)
        metrics = {name: value for name, value in last.get(run.run.name, {}).items() if isinstance(value, float)}
        runs.append(
            {
                "name": run.run.name,
                "method": re.sub(r"\.seed\d+$", "", run.run.name).rpartition(".")[2],
                "seed": run.run.seed,
                "file": None if run.failure else out / f"{run.run.name}.safetensors",
                "steps": run.steps,
                "failure": run.failure,
                "warnings": list(run.warnings),
                "return": sum(returns) / len(returns) if returns else None,
                "score": run.score,
                "metrics": metrics,
            }
        )
    return {"out": out, "runs": runs, "notes": list(notes)}
