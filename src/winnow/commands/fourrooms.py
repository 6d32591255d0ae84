"""`winnow fourrooms`: which weights join fragments of episodes, where the exact answer is known."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from winnow.tabular.fourrooms import Seed, Settings, Summary

SHOWN = ("behaviour", "optimal policy", "PF", "AW", "DW paper", "DW code", "DW dual λ")
"""Panels of the figure: the first form of each that begins so."""


def fourrooms(
    *,
    slip: float = 0.0,
    seeds: int = 10,
    out: Path | None = None,
    episodes: int = 1000,
    random: float = 0.5,
    aw: tuple[float, ...] = (0.1,),
    pf: tuple[float, ...] = (0.1,),
    density: tuple[tuple[float, float], ...] = ((0.2, 0.1), (1.0, 1.0)),
    dual: tuple[float, ...] = (0.003,),
) -> None:
    """Weigh 1000 episodes of which none is optimal: which weights make an optimal policy of them?

    The grid has 11 by 11 cells, four rooms, four moves, and 16 moves from the start to the goal in the opposite room.
    The goal pays 1 and leads back to the start, so the best average reward is 1/17. For each way of weighing, the table
    has what it reports, J(D_w); how far the weighted data is from conserving flow; its total variation from the nearest
    optimal occupancy; and the true average reward of the policy π(a|s) ∝ D(s,a) w(s,a). docs/fourrooms.md explains it.

    Args:
        slip: Probability that a move goes to the left of where it was meant to go, and that it goes to the right.
        seeds: Datasets, each with its own seed.
        out: A folder for the figure (fourrooms.png), the table (table.md, table.csv) and the raw values (raw.json).
        episodes: Episodes of the behaviour policy in each dataset.
        random: How often the behaviour policy moves at random; else it follows a shortest way.
        aw: η of advantage weighting, one row for each.
        pf: Share of the episodes that percentage filtering keeps, one row for each.
        density: λK and λF of DW as in the paper and as in its code, two numbers for each row.
        dual: λ of the exact dual, one row for each. A row with its own default, a budget, is always there.
    """
    from winnow.system.progress import Progress
    from winnow.tabular.fourrooms import Settings, run, summarise
    from winnow.tabular.grid import Grid

    settings = Settings(episodes, random, aw, pf, density, dual)
    if out is not None and out.is_file():
        from winnow.errors import BadInput

        raise BadInput(f"{out}: is a file; give --out the name of a folder")
    with Progress(seeds * episodes, shown=True, unit="episodes") as bar:
        bar.describe("weighing")
        results = run(slip, seeds, settings, done=lambda seed: bar.count(episodes))
    grid = Grid(slip)
    summary = summarise(results, grid.best)
    _show(summary, results, grid.best)
    if out is not None:
        _write(out, results, summary, settings, grid)


def _heading(results: Sequence[Seed], best: float, slip: float) -> str:
    mean = sum(seed.numbers["rows"] for seed in results) / len(results)
    shortest = min(seed.numbers["shortest"] for seed in results)
    moves = f"slip {slip:g}" if slip else "deterministic"
    return (
        f"Four rooms, {moves}: the best policy earns {best:.4f} a step. "
        f"{len(results)} datasets, {mean:,.0f} steps on average; the shortest episode has {shortest:g}."
    )


def _show(summary: Sequence[Summary], results: Sequence[Seed], best: float) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=None)
    table.add_column("weights", no_wrap=True)
    for name in ("J(D_w)", "flow", "distance", "policy's reward", "of best"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in summary:
        value = line.of["value"]
        table.add_row(
            line.form,
            *(f"{line.of[name].value:.4f}" for name in ("reported", "flow", "distance")),
            f"{value.value:.4f} ±{(value.high - value.low) / 2:.4f}",
            f"{100 * line.optimum:.1f} %",
        )
    lucky, possible = (
        sum(seed.numbers[name] for seed in results) / len(results)
        for name in ("linear program by outcome", "linear program")
    )
    console.print(table)
    text = f"The best policy earns {best:.4f}; the linear program finds {possible:.4f} in the data"
    if lucky > possible + 1e-6:
        text += f", and {lucky:.4f} if it may weigh lucky outcomes of a move more than unlucky ones"
    text += f". Means over {len(results)} dataset(s), ± half of the 95 % interval over them."
    console.print(f"\n{text}", highlight=False)
    if warning := summary[0].of["value"].warning:
        console.print(warning, highlight=False)


def _write(out: Path, results: Sequence[Seed], summary: Sequence[Summary], settings: Settings, grid: Any) -> None:
    """The figure, the table and the raw values, each whole or not at all."""
    import dataclasses

    from winnow import __version__
    from winnow.render import figures
    from winnow.system.files import write_text
    from winnow.tabular.fourrooms import MEASURES, record
    from winnow.tabular.maps import draw

    of_form = {line.form: line for line in summary}
    shown = [next(form for form in of_form if form.startswith(start)) for start in _panels(of_form)]
    maps = {row.form: row.map for row in results[0].rows}
    below = {
        form: f"J {of_form[form].of['reported'].value:.4f}   policy {of_form[form].of['value'].value:.4f}"
        for form in shown
    }
    title = _heading(results, grid.best, grid.slip)
    figures.save(draw(grid, {form: maps[form] for form in shown}, below, title), out / "fourrooms.png")

    head = ["weights", *MEASURES.values(), "of the best"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    cells = io.StringIO()
    writer = csv.writer(cells, lineterminator="\n")
    writer.writerow(["form", *(f"{name}{part}" for name in MEASURES for part in ("", "_low", "_high")), "optimum"])
    for line in summary:
        shown_of = [f"{estimate.value:.4f} ({estimate.low:.4f}–{estimate.high:.4f})" for estimate in line.of.values()]
        lines.append(f"| {line.form} | {' | '.join(shown_of)} | {100 * line.optimum:.1f} % |")
        numbers = [number for estimate in line.of.values() for number in (estimate.value, estimate.low, estimate.high)]
        writer.writerow([line.form, *(f"{number:.6g}" for number in (*numbers, line.optimum))])
    write_text(out / "table.md", f"{title}\n\n" + "\n".join(lines) + "\n")
    write_text(out / "table.csv", cells.getvalue())
    facts = {
        "winnow": __version__,
        "slip": grid.slip,
        "settings": dataclasses.asdict(settings),
        "rooms": grid.rooms,
        "best": grid.best,
        **record(results),
    }
    write_text(out / "raw.json", json.dumps(facts, allow_nan=False) + "\n")
    print(f"figure {out / 'fourrooms.png'}\ntable {out / 'table.md'}, table.csv\nraw values {out / 'raw.json'}")


def _panels(forms: dict[str, Any]) -> list[str]:
    """What the figure shows, as far as it is there; where moves slip also the dual that does not count on luck."""
    starts = [start for start in SHOWN if any(form.startswith(start) for form in forms)]
    apart = next((form for form in forms if form.endswith("by (s,a)")), "linear program")
    return [*starts, apart]
