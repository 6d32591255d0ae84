"""`winnow report`: what folders of results say, as a page, as tables, or on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from winnow.commands._shared import answer
from winnow.errors import BadInput
from winnow.system.progress import warn

if TYPE_CHECKING:
    from winnow.report.compare import Gain
    from winnow.report.runs import Run
    from winnow.report.statistics import Line


def report(
    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR...")],
    /,
    *,
    compare: tuple[str, str] | None = None,
    html: Path | None = None,
    markdown: Path | None = None,
    latex: Path | None = None,
    csv: Path | None = None,
    study: str | None = None,
    json: bool = False,
) -> None:
    """Statistics of grids: IQMs with intervals, every dataset, curves and weights, beside the published numbers.

    Without an option it prints the IQMs. With several folders their runs are taken together, each run once. Runs that
    were trained or played differently are never averaged. Nothing in the folders is changed. Studies (see `winnow bench
    list`) of which all variants are there have a section of their own.

    Args:
        folders: Folders that `winnow bench run --out` has written to, or what `winnow bench pack` has made of them.
        compare: Two methods: print how far the first is ahead of the second over all datasets that both have.
        html: A page with figures and a table to sort and filter; one file that needs no other. Its scores link to the
            files with their raw returns.
        markdown: The IQMs and the table of all datasets.
        latex: The same for LaTeX (booktabs, longtable).
        csv: Every run's score, a line each.
        study: Only the runs of this study, called as it calls them, also where some are missing.
        json: Print the IQMs, or the comparison, as one JSON object on stdout; everything else goes to stderr.
    """
    files = {"--html": html, "--markdown": markdown, "--latex": latex, "--csv": csv}
    written = {option: path for option, path in files.items() if path is not None}
    if not folders:
        raise BadInput("no folder is given; name at least one that `winnow bench run --out` has written to")
    if compare and (written or study):
        raise BadInput("--compare prints a table and writes no file; leave out the other options")
    _check_places(folders, written)
    with answer(json) as send:
        from winnow.report.runs import read

        skipped: list[str] = []

        def skip(line: str) -> None:
            skipped.append(line)
            warn(f"winnow report: {line}")

        runs = read(folders, skip)
        if compare:
            from winnow.report.compare import gains

            table = gains(runs, *compare)
            show_gains(table)
            send({"folders": folders, "gains": [gain.record() for gain in table], "skipped": skipped})
        else:
            send(_report(folders, runs, written, study, skipped))


def _check_places(folders: Sequence[Path], written: Mapping[str, Path]) -> None:
    """Refuse files that are the same, or that would lie among the results."""
    from winnow.bench.results import packed_of

    paths = {option: path.resolve() for option, path in written.items()}
    if twice := [option for option, path in paths.items() if list(paths.values()).count(path) > 1]:
        raise BadInput(f"{' and '.join(twice)} are the same file; give each its own")
    results = [(folder / "results").resolve() for folder in folders]
    packed = [packed_of(folder).resolve() for folder in folders]
    if inside := [path for path in paths.values() if path.parent in results or path in packed]:
        raise BadInput(f"{inside[0]}: lies among the results, where it would be taken for one; choose another folder")


def _report(
    folders: Sequence[Path], runs: list[Run], written: Mapping[str, Path], study: str | None, skipped: list[str]
) -> dict[str, Any]:
    """Print or write what was asked for. Returns the record for --json."""
    from winnow.bench.study import PREFIX
    from winnow.bench.study_list import named
    from winnow.report import doubts, page, published, statistics, studies, tables
    from winnow.system.files import write_text

    chosen = named(study.removeprefix(PREFIX)) if study else None
    complete = [studies.study_report(each, runs) for each in ([chosen] if chosen else studies.complete_studies(runs))]
    paper = complete[0].paper if chosen else published.score
    if "--csv" in written:
        write_text(written["--csv"], tables.scores(complete[0].runs if chosen else runs, paper))
    runs = complete[0].runs if chosen else studies.grid_runs(runs, complete)
    record: dict[str, Any] = {"folders": folders, "files": written, "skipped": skipped}
    if written.keys() != {"--csv"}:
        lines = [] if chosen else statistics.lines(runs)
        problems = [*doubts.weak_oracles(runs), *doubts.warned(runs)]
        record["iqms"] = [_line_record(line) for line in [*lines, *(line for each in complete for line in each.lines)]]
        record["problems"] = problems
        if not written:
            tables.show(lines, complete, problems)
        rows = complete[0].rows if chosen else statistics.rows(runs) if written else []
        if "--html" in written:
            every = complete[0].lines if chosen else lines
            page.write(written["--html"], folders, runs, every, rows, skipped, complete, only=bool(chosen))
        if "--markdown" in written:
            write_text(written["--markdown"], tables.markdown(runs, lines, rows, complete))
        if "--latex" in written:
            write_text(written["--latex"], tables.latex(runs, lines, rows, complete))
    for option, path in written.items():
        print(f"{option[2:]} {path} ({path.stat().st_size / 1e6:.2f} MB)")
    return record


def _line_record(line: Line) -> dict[str, Any]:
    return {
        "suite": line.suite,
        "algorithm": line.algorithm,
        "method": line.label,
        "iqm": line.iqm._asdict() if line.iqm else None,
        "gain_over_uniform": line.gain.iqm._asdict() if line.gain else None,
        "published": line.published,
        "published_gain": line.published_gain,
        "datasets": sorted(line.scores),
        "runs": sum(map(len, line.scores.values())),
        "failed": line.failed,
        "best": line.best,
    }


def show_gains(table: Sequence[Gain]) -> None:
    """One method against another: a line for each suite and algorithm, and notes on what speaks against them."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    from winnow.report.tables import interval, number

    heads = ("gain of the mean [95 %]", "gain of the IQM [95 %]", "runs better", "better on", "p", "runs")
    columns = [Column("suite", overflow="fold"), Column("algorithm")]
    shown = Table(*columns, *(Column(head, justify="right") for head in heads), box=None, pad_edge=False)
    for gain in table:
        compared = gain.comparison
        estimates = [f"{number(e.value, True)} {interval(e.low, e.high, True)}" for e in (compared.mean, compared.iqm)]
        better = f"{compared.wins} of {gain.sets}"
        cells = [*estimates, f"{compared.improvement.value:.0%}", better, f"{compared.p_value:.2g}", str(gain.runs)]
        shown.add_row(Text(gain.suite), gain.algorithm, *map(Text, cells))
    console = Console()
    console.print(Text(f"{table[0].first} over {table[0].second}, normalised score", style="bold"), shown, sep="\n")
    notes = [note for gain in table for note in (gain.comparison.iqm.warning, gain.comparison.warning) if note]
    failed = max(gain.failed for gain in table)
    notes += [f"{failed} runs failed and are left out"] if failed else []
    for note in dict.fromkeys(notes):
        console.print(Text(note))
