"""Every kind of file that winnow reads: how to make a good one, how to change its content, and how to read it.

A reader does what winnow's commands do: it opens a file and uses all of it. It returns the messages that were printed,
and raises `BadInput` if the file is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from helpers.datasets import columns, dataset, source, write_hdf5
from helpers.hostile.mutations import warped, written

Messages = list[str]


class Kind(NamedTuple):
    """A kind of file."""

    make: Callable[[Path], list[Path]]
    """Write good files and all that must be beside them into a folder; returns the files that may be corrupted."""
    read: Callable[[Path], Messages]
    warp: Callable[[bytes, random.Random], bytes] | None = None
    """Change the content and keep format and checksum valid, which random changes of bytes rarely do."""
    heavy: bool = False
    """Whether its reader needs jax."""


def as_json(raw: bytes, dice: random.Random) -> bytes:
    return written(warped(json.loads(raw), dice), dice)


def as_lines(raw: bytes, dice: random.Random) -> bytes:
    lines = raw.splitlines()
    number = dice.randrange(len(lines))
    lines[number] = as_json(lines[number], dice)
    return b"\n".join(lines) + b"\n"


def as_header(raw: bytes, dice: random.Random) -> bytes:
    """A safetensors file with a changed header, or changed JSON inside its metadata."""
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    metadata = header["__metadata__"]
    inside = [name for name, text in metadata.items() if text.startswith("{")]
    if inside and dice.random() < 0.7:
        metadata[inside[0]] = as_json(metadata[inside[0]].encode(), dice).decode()
        text = json.dumps(header).encode()
    else:
        text = written(warped(header, dice), dice)
    return struct.pack("<Q", len(text)) + text + raw[8 + size :]


# ------------------------------------------------------------------------------------------------------------- datasets


def use(path: Path | str, **options: Any) -> Messages:
    """Open a dataset and look at everything in it, as `data import`, `inspect` and `train` do."""
    from winnow.data.advice import advise, verdict
    from winnow.data.imbalance import imbalance
    from winnow.data.sources import open_dataset

    data = open_dataset(path, **options)
    rows = data.rows()
    table = data.episodes
    assert len(data) >= 1
    assert all(len(column) == len(data) for column in rows)
    assert all(np.isfinite(column).all() for column in (rows.obs, rows.action, rows.reward, rows.next_obs))
    assert rows.obs.dtype == rows.action.dtype == rows.reward.dtype == np.float32
    assert rows.terminal.dtype == np.bool_
    assert (data.source < len(data.meta.sources)).all()
    assert (table.length >= 1).all()
    measured = imbalance(data)
    texts = [
        verdict(measured),
        advise(data, measured).line(data.meta.name),
        repr(data),
        data.fingerprint,
        *data.meta.sources,
        *data.meta.notes,
    ]
    "\n".join([data.meta.name, data.meta.environment or "", *texts]).encode()  # can be printed and written
    data.meta.to_json()
    return []


def hdf5(folder: Path) -> list[Path]:
    import h5py

    from winnow.data.export import export

    export(dataset(), folder / "exported.hdf5")
    with h5py.File(folder / "packed.hdf5", "w") as file:
        for name, column in columns((40, 20), (True, False)).items():
            file.create_dataset(name, data=column, chunks=(16, *column.shape[1:]), compression="gzip", shuffle=True)
    return [write_hdf5(folder / "plain.hdf5", columns()), folder / "exported.hdf5", folder / "packed.hdf5"]


def replay(folder: Path) -> list[Path]:
    """D4RL's replay files, which are repaired before they are checked."""
    return [write_hdf5(folder / "plain.hdf5", columns())]


def use_replay(path: Path) -> Messages:
    from winnow.data import d4rl

    d4rl.open_named("hopper-medium-replay-v2", path)
    return []


def npz(folder: Path) -> list[Path]:
    from winnow.data.export import export

    np.savez(folder / "plain.npz", **columns())
    np.savez_compressed(folder / "packed.npz", **columns())
    export(dataset(), folder / "exported.npz")
    return [folder / f"{name}.npz" for name in ("plain", "packed", "exported")]


def parquet(folder: Path) -> list[Path]:
    import pyarrow as pa
    from pyarrow import parquet

    from winnow.data.export import export

    table = {name: list(column) for name, column in columns().items()}
    parquet.write_table(pa.table(table), folder / "plain.parquet", compression="none", use_dictionary=False)
    parquet.write_table(pa.table(table), folder / "packed.parquet", compression="zstd")
    export(dataset(), folder / "exported.parquet")
    return [folder / f"{name}.parquet" for name in ("plain", "packed", "exported")]


def use_shards(path: Path) -> Messages:
    """As `winnow weights` reads many files: a file that can't be opened gets a message."""
    from winnow.data.shards import blocks, shards

    good, lines = shards(str(path.parent))
    for shard in good:
        if shard.path.name == path.name:
            assert all(block.length >= 0 for block in blocks(shard, "episodes", 4))
    return lines


def csv(folder: Path) -> list[Path]:
    lines = [f"{i},{i / 2},{0.5},{i},{i == 1},{'ab'[i > 1]},{'night' if i > 1 else 'day'}" for i in range(5)]
    (folder / "log.csv").write_text("\n".join(["obs_0,obs_1,action_0,reward,terminal,episode,source", *lines]) + "\n")
    return [folder / "log.csv"]


def stored(folder: Path) -> list[Path]:
    from winnow.data import store
    from winnow.data.recipes import mixed

    store.save(dataset(), folder / "plain.safetensors")
    store.save(mixed(source(0.1), source(1.0, seed=1), 0.1, 500), folder / "mixed.safetensors")
    return [folder / "plain.safetensors", folder / "mixed.safetensors"]


def split(folder: Path) -> list[Path]:
    """The training part of a split, which refers to its held-out part."""
    from winnow.data import holdout

    holdout.write(*holdout.split(source(0.3)), folder / "train.safetensors", folder / "held-out.safetensors")
    return [folder / "train.safetensors"]


def use_split(path: Path) -> Messages:
    from winnow.data import holdout
    from winnow.data.sources import open_dataset

    holdout.held_out_of(open_dataset(path))
    return []


def minari(folder: Path, data_format: str = "hdf5") -> Path:
    """A Minari dataset written by Minari itself; returns the folder of its files."""
    import warnings

    from gymnasium.spaces import Box
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    data_folder = folder / "data"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storage = MinariStorage.new(
            data_folder,
            observation_space=Box(-np.inf, np.inf, (3,), np.float64),
            action_space=Box(-1, 1, (2,), np.float32),
            data_format=data_format,
        )
        storage.update_metadata({"dataset_id": "toy/v0"})
        rng = np.random.default_rng(0)
        storage.update_episodes(
            EpisodeBuffer(
                seed=7,
                observations=rng.normal(size=(length + 1, 3)),  # pyright: ignore[reportArgumentType]
                actions=rng.uniform(-1, 1, (length, 2)).astype(np.float32),  # pyright: ignore[reportArgumentType]
                rewards=rng.normal(size=length),  # pyright: ignore[reportArgumentType]
                terminations=np.arange(length) == length - 1,  # pyright: ignore[reportArgumentType]
                truncations=np.zeros(length, bool),  # pyright: ignore[reportArgumentType]
                infos={"weight": np.ones(length + 1)} if data_format == "hdf5" else None,
            )
            for length in (3, 1, 4)
        )
    return data_folder


def minari_hdf5(folder: Path) -> list[Path]:
    return [minari(folder) / "main_data.hdf5"]


def minari_arrow(folder: Path) -> list[Path]:
    return sorted(path for path in minari(folder, "arrow").glob("0/*") if path.suffix == ".arrow")


def minari_metadata(folder: Path) -> list[Path]:
    return [minari(folder) / "metadata.json"]


def use_folder(path: Path) -> Messages:
    folder = next(parent for parent in path.parents if parent.name == "data")
    use(folder)
    return use_weights(folder) if path.suffix != ".arrow" else []


def as_metadata(raw: bytes, dice: random.Random) -> bytes:
    """Changed metadata of Minari, or a changed description of its spaces."""
    metadata = json.loads(raw)
    if dice.random() < 0.6:
        name = dice.choice(("observation_space", "action_space"))
        metadata[name] = as_json(metadata[name].encode(), dice).decode()
        return json.dumps(metadata).encode()
    return as_json(raw, dice)


def weight_files(folder: Path) -> list[Path]:
    import pyarrow as pa
    from pyarrow import parquet

    weight = np.linspace(0.5, 1.5, 8)
    np.save(folder / "weight.npy", weight)
    parquet.write_table(pa.table({"weight": weight}), folder / "weight.parquet")
    return [folder / "weight.npy", folder / "weight.parquet"]


def use_weights(path: Path) -> Messages:
    from winnow.weighters.fixed import read_weights

    weight = read_weights(str(path))
    assert weight.ndim == 1
    assert np.isfinite(weight).all()
    return []


# ----------------------------------------------------------------------------------------------------- what was trained


def runs(folder: Path) -> list[Path]:
    """Finished runs as training writes them, untrained, and the other files of their folder."""
    import jax
    from helpers.problems import quick_compiles, tiny

    from winnow.algorithms import BC
    from winnow.data import store
    from winnow.data.sources import open_dataset
    from winnow.methods import method
    from winnow.packs.run import Run
    from winnow.policy import Policy
    from winnow.training import FORMAT
    from winnow.training.trained import Trained, run_record
    from winnow.weighters import Density

    store.save(dataset(name="toy", environment="Pendulum-v1"), folder / "toy.dataset")
    data = open_dataset(folder / "toy.dataset")
    algorithm = tiny(BC)
    files = []
    records = []
    for name, weighter in (("uniform", method("uniform")[1]), ("dw", tiny(Density))):
        run = Run(data, algorithm, method("uniform")[0], weighter, 0, f"toy.bc.{name}.seed0")
        with quick_compiles():
            state, weights = (part.init(jax.random.key(0), run.spec) for part in (algorithm, weighter))
        policy = Policy(algorithm, state, np.zeros(3), np.ones(3), np.zeros(2), np.ones(2))
        files.append(folder / f"{run.name}.safetensors")
        Trained(run, 10, None, policy, weights).save(files[-1])
        records.append(run_record(run))
    lines = [
        {"run": run["name"], "step": step, "round": step // 5, "environment": "Pendulum-v1", "returns": [-1.5, 2.0]}
        | {"lengths": [3, 4], "score": None}
        for run in records
        for step in (5, 10)
    ]
    (folder / "returns.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "config.json").write_text(json.dumps({"format": FORMAT, "steps": 10, "runs": records}))
    return files


def use_run(path: Path) -> Messages:
    """As `evaluate`, `weights`, `export` and `ope` do."""
    from winnow.evaluation import candidates
    from winnow.ope import estimate
    from winnow.policy import Policy

    candidate_list = candidates.candidates(path)
    assert len(candidate_list) == 1
    policy = Policy.load(path)
    assert policy(np.zeros((2, 3))).shape == (2, 2)
    for trained in estimate.load([path])[0]:
        trained.weights()
    return []


def configs(folder: Path) -> list[Path]:
    runs(folder)
    return [folder / "config.json"]


def use_config(path: Path) -> Messages:
    from winnow.evaluation import candidates
    from winnow.system.files import claim

    claim(path, {}, True, "runs")
    for candidate in candidates.candidates(path.parent):
        assert candidate
    return []


def returns(folder: Path) -> list[Path]:
    runs(folder)
    return [folder / "returns.jsonl"]


def use_returns(path: Path) -> Messages:
    from winnow.evaluation.records import read_rounds, score_of
    from winnow.system.metrics import keep_lines

    keep_lines(path, lambda line: line["step"] <= 10 and bool(line["run"]))
    score_of(read_rounds(path))
    return []


def metrics(folder: Path) -> list[Path]:
    lines = [{"run": "a", "step": step, "loss/q": 0.5, "weight/ess": 1.0} for step in (5, 10)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [folder / "metrics.jsonl"]


def use_metrics(path: Path) -> Messages:
    """As a resumed training and a finished run of a grid do."""
    from winnow.bench.results import thinned
    from winnow.system.metrics import keep_lines, read_metrics

    keep_lines(path, lambda line: line["step"] <= {"a": 10}.get(line["run"], -1))
    lines = read_metrics(path)
    thinned([line for line in lines if line["run"] == "a"])
    return []


def checkpoints(folder: Path) -> list[Path]:
    from winnow.system import checkpoint

    checkpoint.save(folder / "pack-0.safetensors", _tree(), {"step": 10, "since": 5, "failures": {"a": "b"}})
    return [folder / "pack-0.safetensors"]


def _tree() -> dict[str, Any]:
    return {"a": np.ones((2, 3), np.float32), "b": [np.arange(4, dtype=np.int32), np.zeros((), np.uint32)]}


def use_checkpoint(path: Path) -> Messages:
    from winnow.system import checkpoint

    record = checkpoint.read_record(path)
    assert isinstance(record, dict)
    tree = checkpoint.load(path, _tree())
    assert tree["a"].dtype.kind == "f"
    assert tree["b"][0].shape == (4,)
    return []


def snapshots(folder: Path) -> list[Path]:
    import jax
    from helpers.problems import tiny

    from winnow.algorithms import BC
    from winnow.evaluation.candidates import Snapshot
    from winnow.plugins import record
    from winnow.policy import stacked
    from winnow.types import Spec

    algorithm = tiny(BC)
    spec = Spec(3, 2, 8)
    state = stacked.pruned(algorithm, spec, algorithm.init(jax.random.key(0), spec))
    actors = stacked.Actors(algorithm, state, np.zeros(3), np.ones(3), np.zeros(2), np.ones(2))
    both = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf, np.float32)] * 2), actors)
    described = {"seed": 0, "environment": "Pendulum-v1", "algorithm": record(algorithm), "plays": True}
    path = folder / "policies" / "pack-0-000000010.safetensors"
    Snapshot(10, 1, 0, spec, [{"name": name} | described for name in "ab"], both).save(path)
    return [path]


def use_snapshot(path: Path) -> Messages:
    from winnow.evaluation import candidates

    loaded = list(candidates.Snapshot.load(path).candidates())
    assert all(candidate.actors.shift.shape == (1, 3) for candidate in loaded)
    return []


# ---------------------------------------------------------------------------------------------- recipes, results, locks


def recipes(folder: Path) -> list[Path]:
    from winnow.data import store
    from winnow.data.recipes import mixed
    from winnow.data.sources import open_dataset

    store.save(source(0.1), folder / "low.safetensors")
    store.save(source(1.0, seed=1), folder / "high.safetensors")
    made = mixed(open_dataset(folder / "low.safetensors"), open_dataset(folder / "high.safetensors"), 0.1, 500)
    (folder / "mixed.recipe.json").write_text(json.dumps(made.meta.recipe))
    return [folder / "mixed.recipe.json"]


def use_recipe(path: Path) -> Messages:
    """As `data mix --recipe` does."""
    from winnow.commands import data

    data.mix(out=path.with_name("out.safetensors"), recipe=path)
    return []


def result_files(folder: Path) -> list[Path]:
    from helpers.made_results import planned, result

    made = [
        result(run).save(folder) for run in planned(["hopper-random-expert-5%"], methods=("uniform", "dw-aw"), seeds=2)
    ]
    return made[:2]


def packed_files(folder: Path) -> list[Path]:
    from winnow.bench.packed import pack
    from winnow.bench.results import packed_of

    result_files(folder / "grid")
    pack(folder / "grid")
    return [packed_of(folder / "grid")]


def use_result(path: Path) -> Messages:
    return use_grid(path.parent.parent)


def use_grid(folder: Path) -> Messages:
    """As `report` does, with every table it writes; the figures of a page take too long for thousands of files."""
    from winnow.report import provenance, published, statistics, studies, tables
    from winnow.report.runs import read

    messages: Messages = []
    grid = read(folder, messages.append)
    study_reports = [studies.study_report(study, grid, 20) for study in studies.complete_studies(grid)]
    lines = statistics.lines(grid, 20)
    rows = statistics.rows(grid, 20)
    texts = [
        tables.scores(grid, published.score),
        tables.markdown(grid, lines, rows, study_reports),
        tables.latex(grid, lines, rows, study_reports),
    ]
    provenance.commands(grid, folder, [study.study for study in study_reports])
    for of in (provenance.versions, provenance.settings, provenance.odd_data, provenance.typed):
        texts.append(str(of(grid)))
    "".join(texts).encode()
    return messages


def as_result(raw: bytes, dice: random.Random) -> bytes:
    """A result with changed content, and an id and a checksum that match this content."""
    from winnow.bench.plan import canonical, digest

    record = json.loads(raw)
    record.pop("sha256")
    record = warped(record, dice)
    try:
        record["id"] = digest(record["config"])
        text = canonical(record)
    except (TypeError, KeyError, ValueError):
        return written(record, dice)
    return canonical(record | {"sha256": hashlib.sha256(text.encode()).hexdigest()}).encode()


def as_packed(raw: bytes, dice: random.Random) -> bytes:
    first, *others = gzip.decompress(raw).splitlines()
    return gzip.compress(b"\n".join([as_result(first, dice), *others]))


def renamed(path: Path) -> Path:
    """A result's file is named after its id."""
    try:
        name = json.loads(path.read_bytes())["id"]
        return path.rename(path.with_name(f"{name}.json")) if isinstance(name, str) and name.isalnum() else path
    except (ValueError, KeyError, TypeError, RecursionError):
        return path


def locks(folder: Path) -> list[Path]:
    (folder / "lock").write_text(json.dumps({"pid": 1, "host": "elsewhere", "since": 1.5}))
    return [folder / "lock"]


def use_lock(path: Path) -> Messages:
    """As a process that takes the lock, and as one that describes its owner."""
    from winnow.system import locks

    with path.open("rb") as file:
        owner = locks._owner(file)
        locks._is_other_process(owner)
        assert locks._describe(owner)
    with locks.locked(path):
        pass
    return []


def begun(folder: Path) -> list[Path]:
    from helpers.made_results import planned

    from winnow.bench.remaining import _stamp

    runs = {run.id: run.name for run in planned(["hopper-random-expert-5%"])}
    path = folder / "work" / "ab" / "pack.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(_stamp() | {"runs": list(runs.items())}))
    return [path]


def use_begun(path: Path) -> Messages:
    from helpers.made_results import planned

    from winnow.bench.remaining import tidy, todo

    folder = path.parent.parent.parent
    todo([planned(["hopper-random-expert-5%"])], folder, set())
    tidy(folder, set())
    return []


KINDS: dict[str, Kind] = {
    "HDF5, D4RL's layout": Kind(hdf5, use),
    "HDF5, D4RL by name": Kind(replay, use_replay),
    "HDF5, Minari": Kind(minari_hdf5, use_folder),
    "Minari metadata": Kind(minari_metadata, use_folder, as_metadata),
    "Arrow, Minari": Kind(minari_arrow, use_folder),
    "npz": Kind(npz, use),
    "Parquet": Kind(parquet, use),
    "Parquet, in shards": Kind(parquet, use_shards),
    "CSV": Kind(csv, use),
    "winnow dataset": Kind(stored, use, as_header),
    "split dataset": Kind(split, use_split, as_header),
    "weights (npy, Parquet)": Kind(weight_files, use_weights),
    "recipe": Kind(recipes, use_recipe, as_json),
    "lock": Kind(locks, use_lock, as_json),
    "metrics.jsonl": Kind(metrics, use_metrics, as_lines),
    "finished run": Kind(runs, use_run, as_header, True),
    "config.json": Kind(configs, use_config, as_json, True),
    "returns.jsonl": Kind(returns, use_returns, as_lines, True),
    "checkpoint": Kind(checkpoints, use_checkpoint, as_header, True),
    "policies of a round": Kind(snapshots, use_snapshot, as_header, True),
    "result": Kind(result_files, use_result, as_result, True),
    "packed results": Kind(packed_files, use_grid, as_packed, True),
    "pack of a grid": Kind(begun, use_begun, as_json, True),
}
