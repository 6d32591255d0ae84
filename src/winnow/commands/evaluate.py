"""`winnow evaluate`: what trained policies earn in their environment."""

from __future__ import annotations

import time
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

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
        json: Print these lines, for programs, and nothing else.
        video: A film of one episode of the first run, .gif or .mp4.
    """
    from winnow import evaluation
    from winnow.system.files import write_text
    from winnow.system.progress import Progress

    if not run:
        raise BadInput("no run is given; name at least one file or folder that `winnow train` wrote")
    if video:
        from winnow.evaluation.video import film

        film(run[0], video, environment, seed)
    began: list[float] = []

    def progress(done: int, total: int) -> None:
        began.append(time.monotonic()) if not began else None
        bar.reach(done, total)

    with Progress(1, shown=not json, unit="episodes") as bar:
        bar.describe("playing")
        rounds = evaluation.evaluate(
            run,
            episodes,
            environment=environment,
            seed=seed,
            processes=processes,
            all_rounds=all_rounds,
            progress=progress,
        )
    seconds = time.monotonic() - began[0]
    lines = "".join(dumps(one.line()) + "\n" for one in rounds)
    if out:
        write_text(out, lines)
    if json:
        print(lines, end="")
    else:
        show(rounds, seconds, out)


def show(rounds: list[Round], seconds: float, out: Path | None) -> None:
    """A table, and what is to be known beside it."""
    import numpy as np
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    numbers = ("updates", "return", "±", "steps", "score")  # means over episodes, and the returns' deviation
    table = Table(Column("run", overflow="fold"), *(Column(name, justify="right") for name in numbers), box=None)
    for one in rounds:
        if one.failed:
            table.add_row(Text(one.run), f"{one.step:,}", Text(f"failed: {one.failed}"))
            continue
        score = "" if one.score is None else f"{one.score:.1f}"
        mean, spread, steps = np.mean(one.returns), np.std(one.returns), np.mean(one.lengths)
        table.add_row(Text(one.run), f"{one.step:,}", f"{mean:,.1f}", f"{spread:,.1f}", f"{steps:,.0f}", score)
    console = Console()
    console.print(table)
    for name in sorted({one.environment for one in rounds if not one.failed and one.score is None}):
        console.print(Text(f"raw returns only: {name} has no reference returns"))
    steps = sum(sum(one.lengths) for one in rounds)
    console.print(Text(f"{steps:,} steps in {seconds:.1f} s: {steps / seconds:,.0f} steps/s"))
    if out:
        console.print(Text(f"raw returns {out}"), soft_wrap=True)
