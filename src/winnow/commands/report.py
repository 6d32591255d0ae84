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
    study: str | None = None,
) -> None:
    """Statistics of a grid: IQMs with intervals, every dataset, curves and weights, beside the published numbers.

    Without an option it prints the IQMs. Runs that were trained or played differently are never averaged. Nothing in
    the folder is changed. Studies (see `winnow bench list`) of which all variants are there have a section of their
    own.

    Args:
        folder: The folder that `winnow bench run --out` has written to, or what `winnow bench pack` has made of it.
        html: A page with figures and a table to sort and filter; one file that needs no other.
        markdown: The IQMs and the table of all datasets.
        latex: The same for LaTeX (booktabs, longtable).
        csv: Every run's score, a line each.
        study: Only the runs of this study, called as it calls them, also where some are missing.
    """
    asked = {"--html": html, "--markdown": markdown, "--latex": latex, "--csv": csv}
    wanted = {option: path.resolve() for option, path in asked.items() if path is not None}
    if twice := [option for option, path in wanted.items() if list(wanted.values()).count(path) > 1]:
        raise BadInput(f"{' and '.join(twice)} are the same file; give each its own")

    from winnow.bench.results import packed_of

    results = (folder / "results").resolve(), packed_of(folder).resolve()
    if inside := [str(path) for path in wanted.values() if path.parent == results[0] or path == results[1]]:
        raise BadInput(f"{inside[0]}: lies among the results, where it would be taken for one; choose another place")

    from winnow.bench.study import PREFIX
    from winnow.bench.study_list import named
    from winnow.report import doubts, page, published, statistics, studies, tables
    from winnow.report.runs import read
    from winnow.system.files import write_text

    chosen = named(study.removeprefix(PREFIX)) if study else None
    skipped: list[str] = []

    def skip(said: str) -> None:
        skipped.append(said)
        print(f"winnow report: {said}", file=sys.stderr)

    runs = read(folder, skip)
    told = [studies.told(one, runs) for one in ([chosen] if chosen else studies.held(runs))]
    paper = told[0].paper if chosen else published.score
    if csv:
        write_text(csv, tables.scores(told[0].runs if chosen else runs, paper))
    runs = told[0].runs if chosen else studies.others(runs, told)
    if wanted.keys() != {"--csv"}:
        lines = [] if chosen else statistics.lines(runs)
        if not wanted:
            tables.show(lines, told, [*doubts.weak_oracles(runs), *doubts.warned(runs)])
        if html or markdown or latex:
            rows = told[0].rows if chosen else statistics.rows(runs)
            if html:
                every = told[0].lines if chosen else lines
                page.write(html, folder, runs, every, rows, skipped, told, only=bool(chosen))
            if markdown:
                write_text(markdown, tables.markdown(runs, lines, rows, told))
            if latex:
                write_text(latex, tables.latex(runs, lines, rows, told))
    for option, path in asked.items():
        if path:
            print(f"{option[2:]} {path} ({path.stat().st_size / 1e6:.2f} MB)")
