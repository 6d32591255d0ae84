"""`winnow evaluate`: what trained policies earn in their environment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from winnow.commands._shared import answer
from winnow.errors import BadInput

if TYPE_CHECKING:
    from winnow.evaluation.records import Round


def evaluate(
    run: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")],
    /,
    *,
    episodes: int = 20,
    seed: int | None = None,
    environment: str | None = None,
    all_rounds: bool = False,
    processes: int | None = None,
    out: Path | None = None,
    json: bool = False,
    video: Path | None = None,
) -> None:
    """Play trained policies, with their mean action and the environment's time limit, and say what they earn.

    Which episodes a run plays depends on its seed alone: runs with the same seed are compared on the same ones.

    Args:
        run: Finished runs that `winnow train` wrote, or folders of them.
        episodes: Episodes of each run.
        seed: One seed for all runs, instead of each one's own.
        environment: The environment, where the dataset does not name it or another one is wanted.
        all_rounds: Play the policies of every round that `winnow train --evaluation.keep` has kept, not the final ones.
        processes: Processes that play; without it, one for each core.
        out: A file for the raw returns, a line of JSON for each run.
        json: Print the same as one JSON object on stdout; everything else goes to stderr.
        video: A film of one episode of the first run, .gif or .mp4.
    """
    with answer(json) as report:
        if not run:
            raise BadInput("no run is given; name at least one file or folder that `winnow train` wrote")
        if video:
            from winnow.evaluation.video import film

            film(run[0], video, environment, seed)
        settings = {"environment": environment, "seed": seed, "processes": processes, "all_rounds": all_rounds}
        rounds, seconds = _play(run, episodes, settings)
        if out:
            from winnow.system.files import write_text

            write_text(out, "".join(dumps(played.line()) + "\n" for played in rounds))
        if not json:
            show(rounds, seconds, out)
        report({"runs": [played.line() for played in rounds], "seconds": seconds, "raw_returns": out, "video": video})


def _play(run: Sequence[Path], episodes: int, settings: dict[str, Any]) -> tuple[list[Round], float]:
    """Play all runs under a bar. Returns the rounds and the seconds since the environments are there."""
    from winnow import evaluation
    from winnow.system.progress import Progress

    began: list[float] = []

    def progress(done: int, total: int) -> None:
        if not began:
            began.append(time.monotonic())
        bar.reach(done, total)

    with Progress(1, shown=True, unit="episodes") as bar:
        bar.describe("playing")
        rounds = evaluation.evaluate(run, episodes, progress=progress, **settings)
    return rounds, time.monotonic() - began[0]


def show(rounds: list[Round], seconds: float, out: Path | None) -> None:
    """Print a table of the runs, and notes on it."""
    import numpy as np
    from rich.console import Console
    from rich.text import Text

    from winnow.commands._tables import fitted
    from winnow.system.progress import warn

    heads = ("run", "updates", "return", "±", "steps", "score")  # means over episodes, and the returns' deviation
    rows = []
    for played in rounds:
        cells = [played.run, f"{played.step:,}"]
        if played.failed:
            rows.append([*cells, "failed", "", "", ""])
            continue
        cells += [
            f"{np.mean(played.returns):,.1f}",
            f"{np.std(played.returns):,.1f}",
            f"{np.mean(played.lengths):,.0f}",
        ]
        rows.append([*cells, "" if played.score is None else f"{played.score:.1f}"])
    console = Console()
    console.print(fitted(console, heads, rows))
    for played in rounds:
        if played.failed:
            warn(f"{played.run} failed: {played.failed}")
    for name in sorted({played.environment for played in rounds if not played.failed and played.score is None}):
        console.print(Text(f"raw returns only: {name} has no reference returns"))
    steps = sum(sum(played.lengths) for played in rounds)
    console.print(Text(f"{steps:,} steps in {seconds:.1f} s: {steps / seconds:,.0f} steps/s"))
    if out:
        console.print(Text(f"raw returns {out}"), soft_wrap=True)
