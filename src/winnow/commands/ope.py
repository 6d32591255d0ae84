"""`winnow ope`: what trained policies are worth by episodes that were held out, without an environment."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from winnow.commands._shared import answer
from winnow.errors import BadInput
from winnow.ope.fqe import FQE, USUAL
from winnow.system.progress import warn

if TYPE_CHECKING:
    from winnow.ope.estimate import Interval, Judgement

NOT_COVERED = (
    "95 %: over resampled episodes of the log, initial Q networks, held-out first states and, where a method has "
    "several runs, training seeds. Not covered: Q's errors in states and actions that nobody logged."
)


def ope(
    run: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")],
    /,
    *,
    held_out: str | None = None,
    fit: Literal["train", "held-out", "both"] = "held-out",
    dataset: str | None = None,
    out: Path | None = None,
    json: bool = False,
    each: bool = False,
    fqe: FQE = USUAL,
) -> None:
    """Estimate what trained policies are worth from logged episodes alone, and which method is best.

    Fitted Q evaluation gives the discounted return of a policy from the held-out episodes' first states on. The
    weighted reward is the mean reward of a held-out step as the run samples and weighs it: what its weights promise.
    Both are estimates; see docs/ope.md for how far they could be trusted where the truth was known.

    Args:
        run: Finished runs that `winnow train` wrote, or folders of them.
        held_out: A file of episodes that training has not seen, or a share (say 0.2) of what it has seen, which
            flatters. Without it, what `winnow data split` held out of the dataset.
        fit: The rows that Q is fitted to. Those of training flatter policies that follow them closely.
        dataset: The training data, if it is no longer where it was when the runs were trained.
        out: A file for everything, .json, or for the two tables, .csv.
        json: Print everything as one JSON object on stdout; the rest goes to stderr.
        each: Show every run, not only the methods.
        fqe: How Q is fitted.
    """
    if out and out.suffix not in (".json", ".csv"):
        raise BadInput(f"{out}: results are written as .json or .csv; choose one of these endings")
    with answer(json) as report:
        from winnow.ope import estimate
        from winnow.system.files import write_text
        from winnow.system.progress import Progress

        trained, failed = estimate.load(run, dataset)
        with Progress(fqe.steps * len(trained), shown=True, unit="updates") as bar:
            bar.compiling("fitting Q")
            judgements = estimate.judge(
                trained,
                held_out,
                fqe,
                fit,
                bar.count,
                lambda name, value: bar.say(f"{name}: value {value:.4g}"),
            )
        record = [judgement.record() for judgement in judgements]
        if out:
            write_text(out, dumps(record, indent=1) + "\n" if out.suffix == ".json" else table(judgements))
        for line in failed:
            warn(line)
        if not json:
            for judgement in judgements:
                show(judgement, each)
            if out:
                print(f"results {out}")
        report({"estimates": record, "failed": failed, "results": out})


def show(judgement: Judgement, each: bool) -> None:
    """Print the methods, best first, and notes on them."""
    from rich.console import Console
    from rich.text import Text

    from winnow.commands._tables import fitted

    console = Console()
    held_out = judgement.held_out
    title = f"{held_out['name']}: {held_out['episodes']:,} episodes, {held_out['rows']:,} rows"
    heads = ("method", "runs", f"value (γ {judgement.settings.discount:g})", "95 %", "best", "J(D_w) a step")
    rows = []
    for method in judgement.methods:
        promised = "" if method.weighted is None else f"{method.weighted:.4g}"
        rows.append([method.method, str(method.runs), *_cells(method.value), f"{method.best:.0%}", promised])
    console.print(Text(f"{title}; Q fitted to {judgement.fit} rows", style="bold"))
    console.print(fitted(console, heads, rows))
    if judgement.data:
        value, interval = _cells(judgement.data)
        text = f"the held-out episodes themselves: {value}, 95 % {interval}, {judgement.reward.value:.4g} a step"
        console.print(Text(text))
    if each:
        heads = ("run", "value", "95 %", "drift", "clipped", "J(D_w)", "95 %", "episodes", "flow")
        rows = []
        for run in judgement.runs:
            weighted = run.weighted
            promised = ("", "", "", "")
            if weighted:
                promised = (*_cells(weighted.reward), f"{weighted.episodes:.1f}", f"{weighted.flow:.3f}")
            rows.append([run.run, *_cells(run.value), f"{run.drift:+.3g}", f"{run.clipped:.0%}", *promised])
        console.print("", fitted(console, heads, rows), sep="\n")
    if rows := _importance(judgement):
        heads = ("run", "by importance sampling", "value", "95 %", "effective episodes")
        console.print("", fitted(console, heads, rows), sep="\n")
    for note in [*judgement.notes, NOT_COVERED]:
        console.print(Text(note), soft_wrap=False)


def _importance(judgement: Judgement) -> list[list[str]]:
    """Estimates by importance sampling, a line for each run and kind of estimate."""
    rows = []
    for run in judgement.runs:
        for kind, value in (run.importance._asdict() if run.importance else {}).items():
            if kind != "effective" and value and run.importance:
                rows.append([run.run, kind.replace("_", " "), *_cells(value), f"{run.importance.effective:.1f}"])
    return rows


def _cells(value: Interval) -> tuple[str, str]:
    return f"{value.value:.4g}", f"{value.low:.4g} to {value.high:.4g}"


def table(judgements: Sequence[Judgement]) -> str:
    """Methods and runs as lines of one CSV table."""
    heads = ["dataset", "held_out", "level", "name", "runs", "seed", "value", "low", "high", "best"]
    heads += ["weighted_reward", "weighted_low", "weighted_high", "drift", "clipped"]
    text = io.StringIO()
    writer = csv.DictWriter(text, heads, lineterminator="\n")
    writer.writeheader()
    for judgement in judgements:
        dataset_columns = {"dataset": judgement.dataset, "held_out": judgement.held_out["name"]}
        for method in judgement.methods:
            line: dict[str, Any] = {"level": "method", "name": method.method, "runs": method.runs, "best": method.best}
            line |= method.value._asdict() | {"weighted_reward": method.weighted}
            writer.writerow(dataset_columns | line)
        for run in judgement.runs:
            line = {"level": "run", "name": run.run, "runs": 1, "seed": run.seed, **run.value._asdict()}
            line |= {"drift": run.drift, "clipped": run.clipped}
            if run.weighted:
                value, low, high = run.weighted.reward
                line |= {"weighted_reward": value, "weighted_low": low, "weighted_high": high}
            writer.writerow(dataset_columns | line)
    return text.getvalue()
