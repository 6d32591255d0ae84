"""`winnow weights`: the weight of every row of a run's dataset, as a table and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro

from winnow.errors import BadInput
from winnow.files import replacing

if TYPE_CHECKING:
    from winnow.data.dataset import Dataset
    from winnow.training import RowWeights


def weights(
    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
    /,
    *,
    out: Path | None = None,
    figure: Path | None = None,
    dataset: str | None = None,
    export: str | None = None,
) -> None:
    """Write the weight of every row: row, episode, step, source, how often it is drawn, how much it counts, and both.

    `weight` is the row's share of the weighted data times the number of rows: 1 is what it has in the dataset itself.

    Args:
        run: A finished run: a file that `winnow train` wrote.
        out: The table, .parquet or .npy. Without it, RUN.weights.parquet.
        figure: The picture, .svg, .png or .pdf. Without it, RUN.weights.svg.
        dataset: The dataset, if it is no longer where it was when the run was trained.
        export: Also write the dataset with a column `weight` more, for other programs: minari:ID (it is in `infos`), or
            a file ending in .parquet, .npz or .hdf5.
    """
    from rich.console import Console

    from winnow import figures
    from winnow.commands.data import bar
    from winnow.data.export import check_target
    from winnow.data.export import export as write_dataset
    from winnow.data.sources import open_dataset
    from winnow.training import Trained

    out, figure = out or run.with_suffix(".weights.parquet"), figure or run.with_suffix(".weights.svg")
    if out.suffix not in (".parquet", ".npy"):
        raise BadInput(f"{out}: the table is written as .parquet or .npy; choose one of these endings")
    if figure.suffix not in (".svg", ".png", ".pdf"):
        raise BadInput(f"{figure}: the picture is written as .svg, .png or .pdf; choose one of these endings")
    if export is not None:
        check_target(export)
    trained = Trained.load(run, open_dataset(dataset) if dataset else None)
    if trained.failure:
        raise BadInput(f"{run}: this run failed ({trained.failure}); it has no weights")
    if export is not None:
        check_target(export, trained.run.dataset.meta.kind)
    console = Console()
    with console.status("weighing every row"):
        data, found = trained.run.dataset, trained.weights()
        write(out, data, found)
        figures.save(figures.weights(data, found.weight, trained.run.name), figure)
    if export is not None:
        with bar(f"writing {export}") as progress:
            write_dataset(data, export, progress, found.weight)
    for number, label in enumerate(data.meta.sources):
        inside = data.source == number
        share = float(found.weight[inside].sum() / found.weight.sum())
        console.print(f"{label}: {inside.mean():.1%} of the rows, {share:.1%} of the weight", highlight=False)
    written = f"\ndataset {export}" if export is not None else ""
    console.print(f"table {out}\npicture {figure}{written}", soft_wrap=True, highlight=False)


def write(path: Path, data: Dataset, found: RowWeights) -> None:
    """The table, one line a row."""
    columns = {
        "row": np.arange(len(data)),
        "episode": data.episode,
        "step": data.step,
        "source": np.asarray(data.meta.sources)[data.source],
        "probability": found.probability,
        "ratio": found.ratio,
        "weight": found.weight,
    }
    with replacing(path) as temporary:
        if path.suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet

            columns["source"] = pa.array(columns["source"]).dictionary_encode()
            pyarrow.parquet.write_table(pa.table(columns), temporary)
        else:
            table = np.empty(len(data), dtype=[(name, column.dtype) for name, column in columns.items()])
            for name, column in columns.items():
                table[name] = column
            with temporary.open("wb") as file:
                np.save(file, table, allow_pickle=False)
