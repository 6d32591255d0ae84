"""Writing a dataset for others to read: Minari, D4RL HDF5, npz, Parquet.

Beside the usual columns, each file carries winnow's description and each row's episode, step, source and seed, so that
`open_dataset` makes the same dataset of it again. What others read is not changed by that. `source_row` and
`source_episode` say which row of the user's own file each row was, and in which episode. Weights may be added.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from winnow.data.columns import Progress
from winnow.data.dataset import UNKNOWN_ROW, Dataset
from winnow.data.minari import IDS, minari_root
from winnow.errors import BadInput
from winnow.system.files import replacing


def export(
    dataset: Dataset, to: str | Path, progress: Progress | None = None, weight: np.ndarray | None = None
) -> None:
    """Write the dataset to `minari:ID`, or to a file whose suffix is one of `WRITERS`.

    `weight` is one number a row. It becomes a column `weight`: in `infos` in Minari (with a 0 after the last step, for
    infos have an entry for every observation there) and in HDF5, beside the others elsewhere.
    """
    to = str(to)
    check_target(to, dataset.meta.kind)
    if weight is not None and weight.shape != (len(dataset),):
        raise BadInput(f"{to}: there are weights of shape {list(weight.shape)} for {len(dataset)} rows; give one a row")
    if to.startswith("minari:"):
        if dataset.propensity is not None:
            raise BadInput(f"{to}: Minari has no column for propensities; export to a file ending in .npz or .parquet")
        _write_minari(dataset, to.removeprefix("minari:"), progress or (lambda done, total: None), weight)
        return
    with replacing(to) as temporary:
        WRITERS[Path(to).suffix.lower()](dataset, temporary, weight)


def check_target(to: str, kind: str = "episodes") -> None:
    """Refuse a place that can't be written to, before any work is done."""
    if not to.startswith("minari:"):
        if Path(to).suffix.lower() not in WRITERS:
            raise BadInput(f"{to}: is no place to export to; give minari:ID or a file ending in {', '.join(WRITERS)}")
        return
    from minari.dataset.minari_dataset import parse_dataset_id

    identity = to.removeprefix("minari:")
    try:
        parse_dataset_id(identity)
    except (ValueError, TypeError) as error:
        raise BadInput(f"{to}: is not a Minari id; give one like minari:hopper/mixed-v0") from error
    if kind == "bag":
        raise BadInput(f"{to}: Minari holds episodes, and unordered rows have none; export to npz or Parquet")
    if (minari_root() / identity).exists():
        raise BadInput(f"{to}: is in {minari_root()} already; delete it (minari delete {identity}) or choose another")


def _rows(dataset: Dataset, weight: np.ndarray | None) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Columns that everyone knows, under D4RL's names, and those that winnow adds."""
    rows = dataset.rows()
    table = dataset.episodes
    end = np.zeros(len(dataset), bool)
    end[table.start + table.length - 1] = True
    usual = {
        "observations": rows.obs,
        "actions": rows.action[:, 0] if dataset.action_kind == "discrete" else rows.action,
        "rewards": rows.reward,
        "next_observations": rows.next_obs,
        "terminals": rows.terminal,
        "timeouts": end & ~rows.terminal,
    }
    added = {
        "episode": dataset.episode,
        "step": dataset.step,
        "source": dataset.source,
        "seed": np.repeat(table.seed, table.length),
        "origin": np.repeat(table.origin, table.length),
        "source_episode": dataset.source_episode,
    }
    if (table.row != UNKNOWN_ROW).any():
        added["source_row"] = dataset.source_row
    if dataset.propensity is not None:
        added["propensity"] = dataset.propensity
    return usual, added | ({} if weight is None else {"weight": weight})


def _write_hdf5(dataset: Dataset, path: Path, weight: np.ndarray | None) -> None:
    import h5py

    usual, added = _rows(dataset, weight)
    with h5py.File(path, "w") as file:
        file["infos/winnow"] = np.frombuffer(dataset.meta.to_json().encode(), np.uint8)
        for name, column in usual.items():
            file.create_dataset(name, data=column)
        for name, column in added.items():
            column = np.char.encode(column, "utf-8") if column.dtype.kind == "U" else column
            file.create_dataset(f"infos/{name}", data=column, compression="gzip", compression_opts=1, shuffle=True)


def _write_npz(dataset: Dataset, path: Path, weight: np.ndarray | None) -> None:
    usual, added = _rows(dataset, weight)
    np.savez(path, allow_pickle=False, **usual, **added, winnow=np.array(dataset.meta.to_json()))


def _write_parquet(dataset: Dataset, path: Path, weight: np.ndarray | None) -> None:
    """Singular names, as tables have them; observations and actions are lists of fixed size."""
    import pyarrow as pa
    from pyarrow import parquet

    usual, added = _rows(dataset, weight)
    columns: dict[str, Any] = {}
    for name, column in usual.items():
        whole = pa.array(column.reshape(-1))
        columns[name.removesuffix("s")] = (
            pa.FixedSizeListArray.from_arrays(whole, column.shape[1]) if column.ndim == 2 else whole
        )
    labels = pa.array(dataset.meta.sources, pa.string())
    columns |= {name: pa.array(column) for name, column in added.items()}
    if added["source_episode"].dtype.kind == "U":
        columns["source_episode"] = columns["source_episode"].dictionary_encode()
    columns["source"] = pa.DictionaryArray.from_arrays(pa.array(added["source"]), labels)
    table = pa.table(columns).replace_schema_metadata({"winnow": dataset.meta.to_json()})
    parquet.write_table(table, path)


WRITERS: dict[str, Callable[[Dataset, Path, np.ndarray | None], None]] = {
    ".hdf5": _write_hdf5,
    ".h5": _write_hdf5,
    ".npz": _write_npz,
    ".parquet": _write_parquet,
}


# ------------------------------------------------------------------------------------------------------ Minari


def _write_minari(dataset: Dataset, identity: str, progress: Progress, weight: np.ndarray | None) -> None:
    """Written under a hidden name in Minari's own folder, and moved to its place when it is whole."""
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.namespace import create_namespace, list_local_namespaces

    try:
        root = minari_root()
        root.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".winnow-", dir=root))
    except OSError as error:
        raise BadInput(f"minari:{identity}: can't be written ({error.strerror}); set MINARI_DATASETS_PATH") from error
    try:
        _fill_minari(dataset, identity, temporary / "data", progress, weight)
        namespace = parse_dataset_id(identity)[0]
        if namespace is not None and namespace not in list_local_namespaces():
            create_namespace(namespace)
        temporary.chmod(0o755)
        temporary.rename(root / identity)
    except OSError as error:
        raise BadInput(f"minari:{identity}: can't be written ({error}); nothing was changed") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _fill_minari(dataset: Dataset, identity: str, folder: Path, progress: Progress, weight: np.ndarray | None) -> None:
    import minari
    from gymnasium.spaces import Box, Discrete
    from minari.dataset.minari_storage import MinariStorage

    meta = dataset.meta
    table = dataset.episodes
    low = np.array(meta.action_low, np.float32)
    high = np.array(meta.action_high, np.float32)
    storage = MinariStorage.new(
        folder,
        observation_space=Box(-np.inf, np.inf, (dataset.obs_dim,), np.float32),
        action_space=Discrete(meta.action_choices) if meta.action_choices else Box(low, high, dtype=np.float32),
        env_spec=_env_spec(meta.environment),
    )
    storage.update_metadata(
        {
            "dataset_id": identity,
            "minari_version": minari.__version__,
            "algorithm_name": ", ".join(meta.sources),
            "description": f"{meta.name}, exported by winnow",
            "winnow": meta.to_json(),
        }
        | ({IDS: table.id.tolist()} if table.id.dtype.kind == "U" else {})
    )
    storage.update_episodes(_buffers(dataset, progress, weight))
    storage.update_episode_metadata(
        {
            "source": meta.sources[source],
            "source_index": int(source),
            "offset": int(offset),
            "origin": int(origin),
            "source_row": int(row),
        }
        | ({} if isinstance(identity, str) else {"source_episode": int(identity)})
        for source, offset, origin, row, identity in zip(
            table.source, table.offset, table.origin, table.row, table.id.tolist(), strict=True
        )
    )


def _buffers(dataset: Dataset, progress: Progress, weight: np.ndarray | None) -> Iterator[Any]:
    from minari.data_collector import EpisodeBuffer

    for number, (start, length) in enumerate(zip(dataset.episodes.start, dataset.episodes.length, strict=True)):
        progress(number, len(dataset.episodes))
        rows = dataset.rows(slice(start, start + length))
        last = np.arange(length) == length - 1
        seed = int(dataset.episodes.seed[number])
        yield EpisodeBuffer(
            seed=seed if seed >= 0 else None,
            observations=np.concatenate([rows.obs, rows.next_obs[-1:]]),  # pyright: ignore[reportArgumentType]
            actions=rows.action[:, 0] if dataset.action_kind == "discrete" else rows.action,  # pyright: ignore
            rewards=rows.reward,  # pyright: ignore[reportArgumentType]
            terminations=rows.terminal,  # pyright: ignore[reportArgumentType]
            truncations=last & ~rows.terminal,  # pyright: ignore[reportArgumentType]
            infos=None if weight is None else {"weight": np.append(weight[start : start + length], 0.0)},
        )
    progress(len(dataset.episodes), len(dataset.episodes))


def _env_spec(environment: str | None) -> Any:
    """The environment as gymnasium knows it; None where it is not one of gymnasium's."""
    import gymnasium

    try:
        return gymnasium.spec(environment) if environment else None
    except gymnasium.error.Error:
        return None
