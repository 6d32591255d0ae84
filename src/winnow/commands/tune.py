"""`winnow tune`: a method and its settings, chosen by held-out episodes in a bounded number of packed runs."""

from __future__ import annotations

import shlex
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from winnow.errors import BadInput
from winnow.ope.candidates import Candidate, usual
from winnow.ope.tune import AS_USUAL, Tuning
from winnow.system.progress import say

if TYPE_CHECKING:
    from winnow.ope.tune import Choice

CAUTION = "An estimate chose, no environment: docs/ope.md says how often that went wrong where the truth is known."


def tune(
    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")],
    /,
    *,
    out: Path,
    candidates: tuple[str, ...] = (),
    held_out: str | None = None,
    resume: bool = False,
    json: bool = False,
    tuning: Annotated[Tuning, tyro.conf.arg(name="")] = AS_USUAL,
) -> None:
    """Choose a method and its settings for a dataset by fitted Q evaluation, without an environment.

    A fifth of the episodes is held out to choose by. Every candidate is trained once on the rest, the best third again
    with other seeds, and so on until the runs are spent. Where the intervals of candidates
    overlap, they tie, and the simplest is chosen. The options for `winnow train` are printed and written to
    OUT/chosen.words: `xargs winnow train --out runs < OUT/chosen.words` trains the choice on the whole dataset.

    Args:
        dataset: A winnow dataset, or anything else that `winnow data import` reads.
        out: A folder for the runs, the estimates (tune.json) and the choice (chosen.words).
        candidates: What to choose from, as METHOD or METHOD:weighter.budget=1,sampler.temperature=0.5. `auto` is the
            method that the data asks for. Default: auto, and a dozen methods and settings.
        held_out: A file of episodes to choose by, instead of a share of the dataset's own.
        resume: Continue with what the folder holds. Give the same command again.
        json: Print everything as JSON, for programs, and nothing else.
        tuning: How candidates are trained and judged.
    """
    from winnow.commands._shared import opened
    from winnow.ope import tune
    from winnow.system.files import write_text
    from winnow.system.locks import alone

    data = opened(dataset)
    wanted = [Candidate.parse(text) for text in candidates] or usual(data)
    if not data.path:
        raise BadInput(f"{dataset}: can't be opened again by name; import it first (`winnow data import`)")
    with alone(out):
        choice = tune.tune(
            data,
            out,
            tuning,
            wanted,
            held_out=opened(held_out) if held_out else None,
            resume=resume,
            progress=not json,
            say=say,
        )
        write_text(out / "chosen.words", shlex.join(choice.train_options) + "\n")
    print(dumps(choice.record(), indent=1)) if json else show(choice, out)


def show(choice: Choice, out: Path) -> None:
    """The candidates, best first, the choice, and how sure it is."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    console = Console()
    heads = ("runs", "value", "95 %", "best")
    table = Table(Column("candidate", overflow="fold"), *(Column(head, justify="right") for head in heads), box=None)
    for line in choice.table:
        low, high = f"{line.value.low:.4g}", f"{line.value.high:.4g}"
        cells = (str(line.runs), f"{line.value.value:.4g}", f"{low} to {high}", f"{line.best:.0%}")
        table.add_row(Text(line.method, style="bold" if line.method == choice.chosen.label else ""), *cells)
    console.print(table)
    if len(choice.tied) > 1:
        console.print(Text(f"tie: the intervals of {', '.join(choice.tied)} overlap, so no method is the winner"))
        console.print(Text(f"chosen: {choice.chosen.label}, the simplest of these; more --runs may separate them"))
    else:
        odds = f"{choice.probability:.0%} to be the best of all, {choice.ahead:.0%} to be ahead of {choice.runner_up}"
        console.print(Text(f"chosen: {choice.chosen.label}: {odds}"))
    for note in [*choice.notes, CAUTION]:
        console.print(Text(note))
    console.print(
        Text(f"next: winnow train {shlex.join(choice.train_options)} --out runs\nwords {out / 'chosen.words'}"),
        soft_wrap=True,
    )
