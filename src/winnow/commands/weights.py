"""`winnow weights`: the weight of every row of a run's dataset, as a table and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from winnow.commands._shared import answer, bar
from winnow.errors import BadInput
from winnow.training import weight_table

if TYPE_CHECKING:
    from winnow.training.trained import Trained


def weights(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    /,
    *,
    out: Path | None = None,
    format: Literal["parquet", "csv", "npy", "lerobot"] | None = None,
    figure: Path | None = None,
    dataset: str | None = None,
    export: str | None = None,
    over: str | None = None,
    on: Literal["local", "ray"] = "local",
    ray_address: str = "auto",
    json: bool = False,
) -> None:
    """Write the weight of every row, with the row's number and its episode's id in the file that you imported.

    `weight` is the row's share of the weighted data times the number of rows: 1 is what it has in the dataset itself.
    It is `probability` (how often the row is sampled) times `ratio` (how much it counts when it is sampled) times the
    number of rows. Join the table to your data by `source_row` (counted from 0), or by `source_episode` and `step`.

    With --over, weigh a set of Parquet files instead, which may be larger than memory: `log_weight` of each row (null
    where an episode is cut off without a next observation) with its number and its episode's id in the file, in a file
    of the same name. OUT/weights.json holds the
    log_mean that makes weights of it, exp(log_weight - log_mean), with mean 1. It is how much a row counts when it is
    sampled; how often the run's sampler would take it is not in it. A second call does only what is missing.

    Args:
        run: A finished run: a file that `winnow train` wrote.
        out: The table: a file ending in .parquet, .csv or .npy. Without it, RUN.weights.parquet. With --over, a folder:
            RUN.weights.
        format: The table's format. Without it, what the file's ending says. lerobot: a Parquet file with `index` and
            `weight` alone, which LeRobot reads (`sample_weighting.type: static`).
        figure: The picture, .svg, .png or .pdf. Without it, RUN.weights.svg.
        dataset: The dataset, if it is no longer where it was when the run was trained.
        export: Also write the dataset with one more column, `weight`, for other programs: minari:ID (it is in `infos`),
            or a file ending in .parquet, .npz or .hdf5.
        over: Parquet files to weigh: a folder, or a pattern in quotes ('shards/*.parquet'). Columns are those that
            `winnow data import` reads; an episode lies in one file.
        on: Where to weigh them: on this machine, or on a Ray cluster, whose nodes see files and OUT under one path.
        ray_address: HOST:PORT of the cluster, or ray://HOST:PORT. Without it $RAY_ADDRESS, or this machine's cluster.
        json: Print what was written and each source's share of the weight as one JSON object on stdout.
    """
    with answer(json) as report:
        if over is not None:
            if figure or export:
                raise BadInput("--over writes a table for each file; leave out --figure and --export")
            if format not in (None, "parquet"):
                raise BadInput(f"--over writes Parquet files, got --format {format}; leave it out")
            address = ray_address if on == "ray" else None
            report(_weigh_files(run, over, out or run.with_suffix(".weights"), dataset, address))
            return
        if on != "local":
            raise BadInput("--on ray goes with --over: it weighs a set of Parquet files")
        report(_weigh_rows(run, out, figure, dataset, export, format))


def _weigh_rows(
    run: Path,
    out: Path | None,
    figure: Path | None,
    dataset: str | None,
    export: str | None,
    format: Literal["parquet", "csv", "npy", "lerobot"] | None,
) -> dict[str, Any]:
    """Write the table, the picture and the dataset with weights. Returns the record for --json."""
    from rich.console import Console

    from winnow.data.export import check_target
    from winnow.data.export import export as write_dataset
    from winnow.render import figures

    out = out or run.with_suffix(f".weights{weight_table.ENDINGS[format or 'parquet']}")
    table_format = weight_table.format_of(out, format)
    figure = figure or run.with_suffix(".weights.svg")
    if figure.suffix not in (".svg", ".png", ".pdf"):
        raise BadInput(f"{figure}: the picture must end in .svg, .png or .pdf, got {figure.suffix!r}; rename it")
    if export is not None:
        check_target(export)
    trained = _opened(run, dataset)
    if export is not None:
        check_target(export, trained.run.dataset.meta.kind)
    console = Console()
    with console.status("weighing every row"):
        data = trained.run.dataset
        row_weights = trained.weights()
        weight_table.write(out, data, row_weights, table_format)
        figures.save(figures.weights(data, row_weights.weight, trained.run.name), figure)
    if export is not None:
        with bar(f"writing {export}") as progress:
            write_dataset(data, export, progress, row_weights.weight)
    shares = {}
    for number, label in enumerate(data.meta.sources):
        inside = data.source == number
        share = float(row_weights.weight[inside].sum() / row_weights.weight.sum())
        shares[label] = {"rows": float(inside.mean()), "weight": share}
        console.print(f"{label}: {inside.mean():.1%} of the rows, {share:.1%} of the weight", highlight=False)
    if table_format == "lerobot":
        console.print(
            "frames that are not in this table get LeRobot's fallback_weight, 1 by default; set it to 0 to train on "
            "the weighted frames alone",
            highlight=False,
        )
    written = f"\ndataset {export}" if export is not None else ""
    console.print(f"table {out}\npicture {figure}{written}", soft_wrap=True, highlight=False)
    return {"table": out, "picture": figure, "dataset": export, "rows": len(data), "sources": shares}


def _opened(run: Path, dataset: str | None) -> Trained:
    from winnow.data.sources import open_dataset
    from winnow.training.trained import Trained

    trained = Trained.load(run, open_dataset(dataset) if dataset else None)
    if trained.failure:
        raise BadInput(f"{run}: this run failed ({trained.failure}); it has no weights")
    return trained


def _weigh_files(run: Path, over: str, out: Path, dataset: str | None, address: str | None) -> dict[str, Any]:
    from winnow.training.weigh_files import Scorer, score_all

    scorer = Scorer.of(_opened(run, dataset), run)
    with bar("weighing") as progress:
        done = score_all(scorer, over, out, address=address, progress=progress)
    rows = done.sums.rows
    weighed = done.sums.weighed
    print(f"{rows:,} rows in {done.files} files ({done.before} of them were done before)")
    if weighed < rows:
        print(f"{rows - weighed:,} rows without a successor have no weight")
    print(f"effective sample size: {done.sums.effective:.1%} of the weighed rows")
    print(f"weight = exp(log_weight - {done.sums.log_mean:.6g}): {out / 'weights.json'}")
    return {
        "folder": out,
        "files": done.files,
        "files_done_before": done.before,
        "rows": rows,
        "rows_with_weight": weighed,
        "effective_share": done.sums.effective,
        "log_mean": done.sums.log_mean,
    }
