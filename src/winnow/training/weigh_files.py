"""Weights of a trained run for a set of Parquet files of any size: only blocks of a few files are in memory at a time.

OUT/NAME.parquet    for each file of the set: row (its number in the file), episode (its id there, if it has one) and
                    log_weight of each of its rows, null where a row has no successor
OUT/weights.json    what makes weights of it: weight = exp(log_weight − log_mean), with mean 1 over all rows

A file that is finished is not done again. On a Ray cluster each file is a task; nodes see the files under one path.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from winnow.data.choices import Actions
from winnow.data.columns import ALIASES, Progress
from winnow.data.dataset import Dataset, Kind
from winnow.data.scaling import Scaling
from winnow.data.shards import BLOCK, Shard, blocks, shards
from winnow.errors import BadInput
from winnow.packs.step import weigh
from winnow.packs.tables import read, start_of
from winnow.system.cores import cores_here
from winnow.system.files import replacing, sweep, write_text
from winnow.training.trained import Trained
from winnow.types import State, Weighter

Pair = tuple[Shard, Path]
"""A file, and the file for its weights."""
Watch = Callable[[int], None]
"""Called with the number of rows done since the last call."""

FORMAT = "winnow-weights-1"
MAX_NAMED = 10
"""Maximum number of bad files named in a message."""
ONE_CORE = {"JAX_PLATFORMS": "cpu", "WINNOW_CORES": "1"}
"""Environment of a task on a cluster, which reserves one core and uses no more."""


@dataclass(frozen=True)
class Scorer:
    """A run's weighter and the scaling of its dataset: all that a pass over files needs, without the dataset itself."""

    name: str
    stamp: str
    """Hash of the run's file."""
    kind: Kind
    weighter: Weighter
    state: State
    scaling: Scaling
    start_obs: np.ndarray
    actions: Actions = Actions()
    """What its rows' actions are, which files need not say."""

    @classmethod
    def of(cls, trained: Trained, path: Path) -> Scorer:
        """path: the run's file"""
        run = trained.run
        data = run.dataset
        if not run.weighs_any_row:
            raise BadInput(
                f"{path}: its weighter keeps a weight for each row it was trained on (fixed weights, or averages over "
                "trajectories) and has none for others; leave out --over"
            )
        start = data.start_obs if data.has_episodes else data.rows().obs
        digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
        state = jax.tree.map(np.asarray, trained.weighter_state)
        actions = Actions(data.action_kind, data.meta.action_choices, data.meta.choice_names)
        scaling = Scaling.of(data, run.weighter)
        return cls(run.name, digest, data.meta.kind, run.weighter, state, scaling, start, actions)

    def log_weight(self, data: Dataset, row: np.ndarray, where: str) -> np.ndarray:
        """log w of a dataset's rows. `row`: their numbers in the whole set."""
        for name, given, known in (
            ("observations", data.obs_dim, len(self.scaling.mean)),
            ("actions", data.action_dim, len(self.scaling.action_half)),
        ):
            if given != known:
                raise BadInput(f"{where}: {name} has {given} columns, the run was trained with {known}")
        count = len(row)
        index = np.minimum(np.arange(1 << (count - 1).bit_length()), count - 1)  # few lengths: few programs
        start = self.start_obs[start_of(row[index], len(self.start_obs))]
        batch = read(data.rows(index), start, self.scaling, row=row[index])
        return weigh(self.weighter, self.state, batch)[:count]


class Sums(NamedTuple):
    """Sums over the weights of a number of rows."""

    rows: int = 0
    weighed: int = 0
    log_sum: float = -np.inf
    log_squares: float = -np.inf

    def __or__(self, other: Sums) -> Sums:
        sums = np.logaddexp(self[2:], other[2:])
        return Sums(self.rows + other.rows, self.weighed + other.weighed, *map(float, sums))

    @classmethod
    def of(cls, log_weight: np.ndarray, rows: int) -> Sums:
        """The sums over one block."""
        if len(log_weight) == 0:
            return cls(rows)
        exact = log_weight.astype(np.float64)
        top = float(log_weight.max())
        squares = np.log(np.sum(np.exp(2 * (exact - top)))) + 2 * top
        return cls(rows, len(exact), float(np.log(np.sum(np.exp(exact - top))) + top), float(squares))

    @property
    def log_mean(self) -> float:
        return self.log_sum - float(np.log(self.weighed))

    @property
    def effective(self) -> float:
        """Effective sample size as a fraction of the weighted rows: 1 for uniform weights."""
        return float(np.exp(2 * self.log_sum - self.log_squares - np.log(self.weighed)))


class Scored(NamedTuple):
    """The result of a pass over a set."""

    sums: Sums
    files: int
    before: int
    """How many of them an earlier pass had finished."""


def score(scorer: Scorer, shard: Shard, target: Path, watch: Watch | None = None, size: int = BLOCK) -> Sums:
    """Write the weights of one file."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    total = Sums()
    stamp = shard.stamp
    schema = _schema(shard.path)
    packed: dict[str, Any] = {"use_dictionary": ["episode"], "column_encoding": {"row": "DELTA_BINARY_PACKED"}}
    with replacing(target) as temporary, ParquetWriter(temporary, schema, **packed) as writer:
        for block in blocks(shard, scorer.kind, size, scorer.actions):
            column = np.full(block.length, np.nan, np.float32)
            log_weight = column[:0]
            if block.dataset is not None:
                number = shard.first + block.first + block.row
                log_weight = scorer.log_weight(block.dataset, number, str(shard.path))
                if not np.isfinite(log_weight).all():
                    row = block.first + int(block.row[np.argmin(np.isfinite(log_weight))])
                    raise BadInput(f"{shard.path}: row {row}: its weight is not a finite number; look at its numbers")
                column[block.row] = log_weight
            total |= Sums.of(log_weight, block.length)
            table: dict[str, Any] = {"row": np.arange(block.first, block.first + block.length)}
            if block.episode is not None and "episode" in schema.names:
                table["episode"] = block.episode
            table["log_weight"] = pa.array(column, mask=np.isnan(column))
            writer.write_table(pa.table(table).cast(schema))
            if watch:
                watch(block.length)
        if total.rows != shard.rows:
            raise BadInput(f"{shard.path}: has changed while it was read; run the same command again")
        record = {"run": scorer.stamp, "source": stamp, "sums": list(total)}
        writer.add_key_value_metadata({FORMAT: json.dumps(record)})
    return total


def _schema(path: Path) -> Any:
    """The columns of a table of weights: whole numbers stay ids of episodes, anything else becomes text."""
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    columns = {"row": pa.int64(), "log_weight": pa.float32()}
    known = read_schema(path)
    name = next((name for name in ALIASES["episode"] if name in known.names), None)
    if name is not None:
        whole = pa.types.is_integer(known.field(name).type) or pa.types.is_boolean(known.field(name).type)
        columns = {"row": pa.int64(), "episode": pa.int64() if whole else pa.string(), "log_weight": pa.float32()}
    return pa.schema(columns)


def finished(scorer: Scorer, shard: Shard, target: Path) -> Sums | None:
    """The sums that an earlier pass wrote for a file, if it was of this run and the file has not changed since."""
    from pyarrow.parquet import read_metadata

    if not target.exists():
        return None
    try:
        record = json.loads((read_metadata(target).metadata or {})[FORMAT.encode()])
        same = (record["run"], record["source"]) == (scorer.stamp, shard.stamp)
        return Sums(*record["sums"]) if same else None
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise BadInput(f"{target}: already exists and holds no weights; choose another folder") from error


def score_all(
    scorer: Scorer, pattern: str, out: Path, *, address: str | None = None, progress: Progress | None = None
) -> Scored:
    """Compute the weight of every row of a set, here or (with an address) on a Ray cluster. Bad files are reported
    after the others are done."""
    files, bad = shards(pattern)
    out = out.resolve()
    rows = sum(shard.rows for shard in files)
    passed = 0
    pairs = list(zip(files, _targets([shard.path for shard in files], out), strict=True))
    for folder in {target.parent for _, target in pairs}:
        sweep(folder)
    lock = threading.Lock()

    def watch(more: int) -> None:
        nonlocal passed
        with lock:
            passed += more
            if progress:
                progress(passed, rows)

    known = {pair: sums for pair in pairs if (sums := finished(scorer, *pair))}
    left = [pair for pair in pairs if pair not in known]
    for stale in [target for _, target in left] + [out / "weights.json"] * bool(left or bad):
        stale.unlink(missing_ok=True)
    watch(sum(sums.rows for sums in known.values()))
    each = _here(scorer, left, watch) if address is None else _on_ray(scorer, left, address, watch)
    results = [*known.values(), *each]
    bad += [result for result in results if isinstance(result, str)]
    total = functools.reduce(Sums.__or__, (result for result in results if isinstance(result, Sums)), Sums())
    if bad:
        more = [f"and {len(bad) - MAX_NAMED} more"] if len(bad) > MAX_NAMED else []
        raise BadInput(
            "\n".join([*bad[:MAX_NAMED], *more, f"the rest is in {out}: run the same command again to continue"])
        )
    if total.weighed == 0:
        raise BadInput(f"{pattern}: no row has a successor; add next_observations")
    record = {"format": FORMAT, "run": scorer.name, "files": len(files), "rows": total.rows, "weighed": total.weighed}
    record |= {"log_mean": total.log_mean, "effective": total.effective}
    write_text(out / "weights.json", json.dumps(record, indent=1) + "\n")
    return Scored(total, len(files), len(files) - len(left))


def _targets(paths: Sequence[Path], out: Path) -> list[Path]:
    """The file for the weights of each file: the same name, in the same folder below their common folder."""
    shared = os.path.commonpath([path.parent for path in paths]) if paths else out
    targets = [out / path.relative_to(shared) for path in paths]
    if set(targets) & set(paths):
        raise BadInput(f"{out}: is the folder of the set itself, whose files would be replaced; choose another folder")
    return targets


def _attempt(scorer: Scorer, shard: Shard, target: Path, watch: Watch | None = None) -> Sums | str:
    """Write the weights of a file. Returns their sums, or the error message."""
    try:
        return score(scorer, shard, target, watch)
    except BadInput as error:
        return str(error)


def _here(scorer: Scorer, pairs: Sequence[Pair], watch: Watch) -> Iterator[Sums | str]:
    """Process as many files at a time as there are cores."""
    stopped = threading.Event()

    def look(rows: int) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        watch(rows)

    with ThreadPoolExecutor(cores_here()) as cores:
        try:
            yield from cores.map(lambda pair: _attempt(scorer, pair[0], pair[1], look), pairs)
        finally:
            stopped.set()  # so that Ctrl-C does not wait for whole files
            cores.shutdown(wait=False, cancel_futures=True)


def _on_ray(scorer: Scorer, pairs: Sequence[Pair], address: str, watch: Watch) -> Iterator[Sums | str]:
    """One task for each file, on any free core of the cluster."""
    from winnow.system.ray import RETRIES, RayError, connected, ray

    if not pairs:
        return

    with connected(address):
        task: Any = ray.remote(num_cpus=1, max_retries=RETRIES, runtime_env={"env_vars": ONE_CORE})(_attempt)
        given = ray.put(scorer)
        tasks = {task.remote(given, *pair): pair for pair in pairs}
        try:
            while tasks:
                for finished_task in ray.wait(list(tasks))[0]:
                    watch(tasks.pop(finished_task)[0].rows)
                    yield ray.get(finished_task)
        except RayError as error:
            raise BadInput(f"the cluster gave up ({error}); run the same command again to continue") from error
