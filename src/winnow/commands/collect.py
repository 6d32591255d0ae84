"""`winnow collect train | check`: train behaviour policies online, and test what their data is good for."""

from __future__ import annotations

import argparse
import contextlib
import json as json_module
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from winnow.commands import config
from winnow.commands._shared import answer
from winnow.errors import BadInput

if TYPE_CHECKING:
    from winnow.collect.check import Report


def options(arguments: list[str], asked: Mapping[str, Any]) -> config.Options:
    """The options that --config may set."""
    from winnow.collect.run import parser_of

    return config.options_of_parser(parser_of(""))


def train(arguments: list[str], prog: str) -> None:
    """The options are those of `python -m winnow.collect`, which needs no tyro."""
    from winnow.collect import main
    from winnow.commands.table import epilogue
    from winnow.system.locks import alone

    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--out", type=Path)
    out = first.parse_known_args(arguments)[0].out
    with alone(out) if out else contextlib.nullcontext():
        main(arguments, prog, epilogue("collect train"))


def check(
    policy: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="POLICY...")],
    /,
    *,
    level: Literal["medium", "expert"] | None = None,
    rows: int = 200_000,
    updates: int = 20_000,
    seeds: int = 3,
    episodes: int = 20,
    processes: int | None = None,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Test whether behaviour policies make data that methods can be compared on. Exit code 1 if one fails.

    A policy passes if its score is in the range of its level, if an expert's episodes do not collapse, and if clones of
    it earn 95 % of its return. What it keeps of its return under action noise is reported. docs/policies.md says where
    the limits come from.

    Args:
        policy: Policies that `winnow collect train` wrote, or shipped ones by name: hopper-expert.
        level: What the policies are to be, where their names do not say it.
        rows: Rows that a policy plays; its clones are trained on them. Fewer are a trial, not the test.
        updates: Updates of each clone.
        seeds: Number of clones.
        episodes: Episodes of each clone, and of the policy with each amount of noise.
        processes: Processes that play; without it, one for each core.
        out: A file for the raw returns and what they say, as JSON.
        json: Print the same as one JSON object on stdout; everything else goes to stderr.
    """
    from winnow.collect.check import Settings, locate
    from winnow.collect.check import check as check_policy
    from winnow.system.files import write_text
    from winnow.system.progress import Progress

    with answer(json) as report_json:
        if not policy:
            raise BadInput("no policy is given; name a file that `winnow collect train` wrote, or hopper-expert")
        settings = Settings(rows, updates, seeds, episodes)
        for name in policy:
            locate(name, level)  # refuse a wrong name before minutes are spent on the others
        reports: list[Report] = []
        records: list[dict[str, Any]] = []
        for name in policy:
            with Progress(1, shown=True, unit="") as bar:

                def step(title: str, done: int, total: int, bar: Progress = bar, name: str = name) -> None:
                    bar.describe(f"{name}: {title}")
                    bar.reach(done, total)

                reports.append(check_policy(name, settings, level=level, processes=processes, step=step))
            records = [report.record() for report in reports]
            if out:  # after each policy, so that stopping loses none that is finished
                write_text(out, json_module.dumps(records, indent=1) + "\n")
            if not json:
                show(reports[-1])
        report_json({"policies": records})
    if not all(report.passed for report in reports):
        sys.exit(1)


def show(report: Report) -> None:
    """A policy's criteria as a table, and what it keeps under noise."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("criterion", "value", "must be", "", box=None)
    for criterion in report.criteria:
        verdict = Text("passed") if criterion.passed else Text("failed", style="bold red")
        table.add_row(criterion.name, f"{criterion.value:.3g}", criterion.wanted, verdict)
    console = Console()
    console.print(Text(f"{report.policy}: {'passed' if report.passed else 'failed'} as {report.level}"))
    console.print(table)
    kept = ", ".join(f"{part:.0%} with {amount}" for amount, part in report.kept_under_noise.items())
    console.print(Text(f"return kept under action noise: {kept}"))
