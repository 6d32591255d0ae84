"""`winnow inspect`: how imbalanced a dataset is, and which method fits it."""

from __future__ import annotations

import dataclasses
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from winnow.data.imbalance import Imbalance

WIDTH = 32
"""Characters of the longest bar."""


def inspect(
    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")],
    /,
    *,
    json: bool = False,
    discount: float = 1.0,
) -> None:
    """Say how imbalanced a dataset is and which method the evidence recommends.

    Args:
        dataset: A winnow dataset, or anything else that `winnow data import` reads.
        json: Print everything as JSON, for programs, and nothing else.
        discount: Discount of the returns; 1 leaves them undiscounted.
    """
    from winnow.commands.data import opened
    from winnow.data.imbalance import degree, imbalance, recommend, verdict

    data = opened(dataset)
    measured = imbalance(data, discount)
    method, why = recommend(measured)
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
            "recommended": {"method": method, "why": why},
        }
        print(dumps(record, indent=2, allow_nan=False))
        return
    _show(repr(data), measured, verdict(measured), method, why)


def _show(title: str, measured: Imbalance, said: str, method: str, why: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    numbers = Table(show_header=False, box=None)
    for name, value in _numbers(measured):
        numbers.add_row(Text(name, style="bold"), Text(value))
    sources = Table("source", "episodes", "rows", "share", f"mean {measured.of}", box=None)
    for one in measured.sources:
        cells: list[Any] = [f"{one.episodes:,}", f"{one.rows:,}", f"{100 * one.share:.1f} %", f"{one.mean:.4g}"]
        sources.add_row(Text(one.label), *cells)
    console.print(Text(title, style="bold"), numbers, "", sources, "", _histogram(measured), "", sep="\n")
    console.print(Text(said))
    console.print(Text.assemble("Recommended: ", (method, "bold"), f" — {why}."))


def _numbers(measured: Imbalance) -> list[tuple[str, str]]:
    """Names and values of the table."""
    quantiles = "  ".join(f"{100 * float(q):g} %: {value:.4g}" for q, value in measured.quantiles.items())
    top = "  ".join(f"{100 * float(part):g} %: {100 * value:.0f} %" for part, value in measured.top_share.items())
    discounted = f", discount {measured.discount:g}" if measured.discount < 1 else ""
    what = f"{measured.of}s{discounted}"
    lines = [
        ("mean", f"{measured.mean:.4g} over {measured.count:,} {what}"),
        ("quantiles", quantiles),
        ("RPSV", f"{measured.rpsv:.4g}   on max–min scaled {measured.of}s: {measured.rpsv_scaled:.4g}"),
        (f"{measured.of} held by the top", top),
        ("Gini", f"{measured.gini:.3f}"),
        ("effective sample size", f"{measured.effective_count:,.1f} of {measured.count:,}"),
        ("effective share of rows", f"{100 * measured.effective_share:.1f} %"),
    ]
    if measured.start_spread is not None:
        lines.append(("initial-state spread", f"{measured.start_spread:.3g} of that of all states"))
    return lines


def _histogram(measured: Imbalance) -> Any:
    """A bar for each bin. Bars are as long as the root of their count, or a few good episodes would not be seen."""
    from rich.text import Text

    most = max(measured.histogram)
    lines = [f"{measured.of}s (bars grow with the square root of the count)"]
    for count, edge in zip(measured.histogram, measured.histogram_edges, strict=False):
        length = max(1, round(WIDTH * (count / most) ** 0.5)) if count else 0
        lines.append(f"{edge:>12.4g}  {'█' * length:<{WIDTH}}  {count:,}")
    return Text("\n".join(lines))
