"""`winnow inspect`: how imbalanced a dataset is, and which method fits it, in the terminal or on a page."""

from __future__ import annotations

import dataclasses
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from winnow.errors import BadInput

if TYPE_CHECKING:
    from winnow.data.advice import Advice
    from winnow.data.dataset import Dataset
    from winnow.data.imbalance import Imbalance

WIDTH = 32
"""Characters of the longest bar."""


def inspect(
    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")],
    /,
    *,
    json: bool = False,
    discount: float = 1.0,
    html: Path | None = None,
    run: tuple[Path, ...] = (),
) -> None:
    """Say how imbalanced a dataset is and which method the evidence recommends.

    With --html, also write a page: returns, a map of the states, episodes as strips, and what uniform, AW, PF and
    learned weights make of the rows. It is one file that needs no network.

    Args:
        dataset: A winnow dataset, or anything else that `winnow data import` reads.
        json: Print everything as JSON, for programs, and nothing else.
        discount: Discount of the returns; 1 leaves them undiscounted.
        html: Write the page to this file. It is replaced if it exists.
        run: Finished runs on this dataset (files that `winnow train` wrote) whose weights the page shows beside the
            others; several after one another.
    """
    from winnow.commands._shared import opened
    from winnow.data.advice import advise, degree, verdict
    from winnow.data.imbalance import imbalance

    if run and html is None:
        raise BadInput("--run adds learned weights to a page; give its file with --html")
    data = opened(dataset)
    measured = imbalance(data, discount)
    advice = advise(data, measured)
    if html is not None:
        _write_page(html, dataset, data, measured, run)
    if json:
        record = {
            "dataset": {
                "name": data.meta.name,
                "environment": data.meta.environment,
                "kind": data.meta.kind,
                "rows": len(data),
                "episodes": len(data.episodes) if data.has_episodes else None,
                "observation": data.obs_dim,
                "action": data.action_dim,
                "notes": data.meta.notes,
            },
            "imbalance": dataclasses.asdict(measured),
            "degree": degree(measured),
            "verdict": verdict(measured),
            "recommended": {"method": advice.method, "settings": dict(advice.settings), "why": advice.why},
        }
        print(dumps(record, indent=2, allow_nan=False))
        return
    _show(repr(data), measured, verdict(measured), advice)
    if html is not None:
        print(f"page {html}")


def _write_page(html: Path, dataset: str, data: Dataset, measured: Imbalance, runs: tuple[Path, ...]) -> None:
    from rich.console import Console
    from rich.text import Text

    from winnow.data.advice import advise
    from winnow.inspection import page, weightings

    asked = ["winnow", "inspect", dataset, "--html", str(html)]
    asked += ["--discount", f"{measured.discount:g}"] if measured.discount < 1 else []
    asked += ["--run", *map(str, runs)] if runs else []
    recommended = weightings.recommended(data, advise(data, measured))  # a fit shows a bar of its own
    with Console(stderr=True).status("weighing every row") as status:
        page.write(html, data, measured, runs, asked, lambda what: status.update(Text(what)), recommended)


def _show(title: str, measured: Imbalance, summary: str, advice: Advice) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from winnow.inspection import words

    console = Console()
    numbers = Table(show_header=False, box=None)
    for line in words.numbers(measured):
        numbers.add_row(Text(line.name, style="bold"), Text(line.value))
    sources = Table("source", "episodes", "rows", "share", f"mean {measured.of}", box=None)
    for line in measured.sources:
        cells: list[Any] = [f"{line.episodes:,}", f"{line.rows:,}", f"{100 * line.share:.1f} %", f"{line.mean:.4g}"]
        sources.add_row(Text(line.label), *cells)
    console.print(Text(title, style="bold"), numbers, "", sources, "", _histogram(measured), "", sep="\n")
    console.print(Text(summary))
    console.print(Text.assemble("Recommended: ", (advice.method, "bold"), f": {advice.why}."))


def _histogram(measured: Imbalance) -> Any:
    """A bar for each bin. Bars are as long as the root of their count, or a few good episodes would not be seen."""
    from rich.text import Text

    most = max(measured.histogram)
    lines = [f"{measured.of}s (bars grow with the square root of the count)"]
    for count, edge in zip(measured.histogram, measured.histogram_edges, strict=False):
        length = max(1, round(WIDTH * (count / most) ** 0.5)) if count else 0
        lines.append(f"{edge:>12.4g}  {'█' * length:<{WIDTH}}  {count:,}")
    return Text("\n".join(lines))
