"""`winnow report`: what a folder of results says, as a page, as tables, or on the terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import tyro

from winnow.errors import BadInput


def report(
    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")],
    /,
    *,
    html: Path | None = None,
    markdown: Path | None = None,
    latex: Path | None = None,
    csv: Path | None = None,
) -> None:
    """Statistics of a grid: IQMs with intervals, every dataset, curves and weights, beside the published numbers.

    Without an option it prints the IQMs. Runs that were trained or played differently are never averaged. Nothing in
    the folder is changed.

    Args:
        folder: The folder that `winnow bench run --out` has written to.
        html: A page with figures and a table to sort and filter; one file that needs no other.
        markdown: The IQMs and the table of all datasets.
        latex: The same for LaTeX (booktabs, longtable).
        csv: Every run's score, a line each.
    """
    asked = {"--html": html, "--markdown": markdown, "--latex": latex, "--csv": csv}
    wanted = {option: path.resolve() for option, path in asked.items() if path is not None}
    if twice := [option for option, path in wanted.items() if list(wanted.values()).count(path) > 1]:
        raise BadInput(f"{' and '.join(twice)} are the same file; give each its own")
    if inside := [str(path) for path in wanted.values() if path.parent == (folder / "results").resolve()]:
        raise BadInput(f"{inside[0]}: lies among the results, where it would be taken for one; choose another place")

    from winnow.files import write_text
    from winnow.report import numbers, page, tables
    from winnow.report.runs import read

    skipped: list[str] = []
    runs = read(folder, skipped.append)
    for said in skipped:
        print(f"winnow report: {said}", file=sys.stderr)
    if csv:
        write_text(csv, tables.scores(runs))
    if wanted.keys() != {"--csv"}:
        lines = numbers.lines(runs)
        if not wanted:
            tables.show(lines)
        if html or markdown or latex:
            rows = numbers.rows(runs)
            if html:
                page.write(html, folder, runs, lines, rows, skipped)
            if markdown:
                write_text(markdown, tables.markdown(runs, lines, rows))
            if latex:
                write_text(latex, tables.latex(runs, lines, rows))
    for option, path in asked.items():
        if path:
            print(f"{option[2:]} {path} ({path.stat().st_size / 1e6:.2f} MB)")
