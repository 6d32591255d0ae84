"""Weights that were made elsewhere: one number a row, read from a file."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.minari import is_minari, minari_metadata, minari_weights
from winnow.data.size_limits import Budget
from winnow.errors import BadInput
from winnow.types import Array, Batch, Metrics, Spec, Weights, plugin
from winnow.weighters.diagnostics import diagnose


@plugin
class Fixed:
    """w(row) from what `winnow weights` wrote, or any .npy, Parquet or Minari dataset with one weight a row.

    Examples:
        >>> from winnow import BC, toy, train
        >>> data = toy.imbalanced(2_000, share=0.1)
        >>> np.save("mine.npy", np.where(data.source == 1, 9.0, 1.0))
        >>> (run,) = train(data, BC(hidden=(8,)), "uniform", weighter=Fixed("mine.npy"), steps=300, progress=False)
        >>> round(run.weights().share(data.source == 1), 1)  # of a batch's weight; 0.1 of the rows are good
        0.5
    """

    path: str = ""
    """A .npy file with one number ≥ 0 a row (or with a field `weight`), a Parquet file with a column `weight`, or a
    Minari dataset (minari:ID) with `weight` in its infos."""

    def check(self, dataset: Dataset) -> None:
        weight = read_weights(self.path)
        if len(weight) != len(dataset):
            raise BadInput(f"{self.path}: holds {len(weight)} weights, the dataset has {len(dataset)} rows")

    @property
    def stamp(self) -> int:
        """Changes when the file does."""
        file = minari_metadata(self.path) if is_minari(self.path, Path(self.path)) else Path(self.path)
        return file.stat().st_mtime_ns

    def init(self, key: Array, spec: Spec) -> Array:
        """The table of log weights, as long as the longest dataset of the pack."""
        with np.errstate(divide="ignore"):
            table = np.log(read_weights(self.path))
        return jnp.asarray(np.pad(table, (0, spec.rows - len(table))), jnp.float32)

    def update(self, state: Array, batch: Batch, key: Array) -> tuple[Array, Weights, Metrics]:
        weight = jnp.exp(jax.lax.stop_gradient(state)[batch.row])
        total = jnp.sum(weight)
        # A batch of nothing but zero weights must not divide by zero; no row of it teaches anything.
        weight = jnp.where(total > 0, weight / jnp.where(total > 0, total, 1.0), 0.0)
        return state, Weights(weight, weight), diagnose(weight, batch)

    def log_weight(self, state: Array, batch: Batch) -> Array:
        return state[batch.row]


def read_weights(path: str) -> np.ndarray:
    """One weight a row, checked."""
    if not path:
        raise BadInput("weighter.path is empty; give the file that holds one weight a row")
    try:
        if is_minari(path, Path(path)):
            weight = minari_weights(path)
        elif not Path(path).is_file():  # a pipe would have to be waited for, an address fetched
            raise FileNotFoundError("there is no such file")
        elif Path(path).suffix == ".parquet":
            weight = _parquet_weights(Path(path))
        else:
            with Path(path).open("rb") as file:
                weight = np.lib.format.read_array(file, allow_pickle=False)
            weight = weight["weight"] if weight.dtype.names else weight
    except BadInput:
        raise
    except Exception as error:  # the libraries raise anything for a damaged file
        raise BadInput(f"{path}: holds no weights that can be read ({error}); give a .npy or Parquet file") from error
    if weight.ndim != 1 or weight.dtype.kind not in "fiu":
        raise BadInput(f"{path}: has shape {list(weight.shape)} of {weight.dtype}; it must be one number a row")
    bad = ~(np.isfinite(weight) & (weight >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise BadInput(f"{path}: weight, row {row}: {weight[row]} is not a finite number ≥ 0")
    if not weight.any():
        raise BadInput(f"{path}: all weights are 0; nothing could be learned")
    return weight.astype(np.float64)


def _parquet_weights(path: Path) -> np.ndarray:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        Budget(str(path), path).take(8 * file.metadata.num_rows, "weight")
        return file.read(columns=["weight"])["weight"].to_numpy()
