"""Weights over a set in Parquet files: the same as over the set as a whole, in bounded memory, here and on Ray."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pytest
from helpers.datasets import columns
from pyarrow import parquet

from winnow.algorithms.bc import BC
from winnow.cli import main
from winnow.data import store
from winnow.data.dataset import Kind
from winnow.data.shards import Shard, blocks, shards
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.policy import Policy
from winnow.training.planning import plan
from winnow.training.trained import Trained
from winnow.training.weigh_files import Scorer, finished, score, score_all
from winnow.weighters import Density, Dual, Fixed, OptiDICE

HIDDEN = (16, 16)
LENGTHS = (30, 1, 17, 40, 25, 2, 35)
WEIGHTERS = {"density": Density(hidden=HIDDEN), "dual": Dual(hidden=HIDDEN), "optidice": OptiDICE(hidden=HIDDEN)}


def table(
    lengths: tuple[int, ...] = LENGTHS, terminal: bool = True, seed: int = 0, drop: tuple[str, ...] = ()
) -> pa.Table:
    """Episodes as a table, every other one with a terminal end."""
    made = columns(lengths, tuple(terminal and i % 2 == 0 for i in range(len(lengths))), seed)
    made["episode"] = np.repeat(np.arange(len(lengths)), lengths)
    return pa.table(
        {
            name: pa.FixedSizeListArray.from_arrays(pa.array(column.ravel()), column.shape[1])
            if column.ndim == 2
            else pa.array(column)
            for name, column in made.items()
            if name not in drop
        }
    )


def trained(folder: Path, whole: pa.Table, weighter: Any, kind: Kind | None = None) -> Trained:
    """A run on a whole set that was imported, as it is before its first update."""
    parquet.write_table(whole, folder / "whole.parquet")
    store.save(open_dataset(folder / "whole.parquet", kind=kind), folder / "whole.safetensors")
    run = plan(store.load(folder / "whole.safetensors"), BC(hidden=(8,)), "uniform", weighter=weighter)[0]
    learner, state = (part.init(jax.random.key(0), run.spec) for part in (run.algorithm, run.weighter))
    scaling = (np.ones(size) for size in (run.spec.obs_dim,) * 2 + (run.spec.action_dim,) * 2)
    one = Trained(run, 0, None, Policy(run.algorithm, learner, *scaling), state)
    one.save(file_of(folder))
    return one


def file_of(folder: Path) -> Path:
    return folder / "run.safetensors"


def cut(folder: Path, whole: pa.Table, ends: tuple[int, ...], group: int = 9) -> Path:
    """The set in files that end after these rows, in row groups that cut episodes."""
    folder.mkdir()
    for number, (low, high) in enumerate(zip((0, *ends), (*ends, len(whole)), strict=True)):
        parquet.write_table(whole.slice(low, high - low), folder / f"part-{number}.parquet", row_group_size=group)
    return folder


def log_weights(folder: Path) -> np.ndarray:
    files = sorted(folder.glob("*.parquet"))
    return np.concatenate([parquet.read_table(file)["log_weight"].to_numpy() for file in files])


@pytest.fixture(scope="module")
def learnt(tmp_path_factory) -> Path:
    """A run with DW on a set with next observations, and that set in three files, cut inside an episode too."""
    folder = tmp_path_factory.mktemp("learnt")
    trained(folder, table(), WEIGHTERS["density"])
    cut(folder / "shards", table(), (31, 60))
    return folder


# ------------------------------------------------------------------------------------------- the same weights


@pytest.mark.parametrize("weighter", WEIGHTERS)
@pytest.mark.parametrize("size", [7, 8_192])
def test_weights_of_files_are_those_of_the_set_as_a_whole(tmp_path, weighter, size):
    one = trained(tmp_path, table(), WEIGHTERS[weighter])
    scorer = Scorer.of(one, file_of(tmp_path))
    found, bad = shards(str(cut(tmp_path / "shards", table(), (31, 60))))
    assert not bad
    for shard in found:
        score(scorer, shard, tmp_path / "out" / shard.path.name, size=size)
    log_weight = log_weights(tmp_path / "out").astype(np.float64)
    weight = np.exp(log_weight) / np.exp(log_weight).mean()
    np.testing.assert_allclose(weight, one.weights().weight, rtol=2e-5)
    assert np.ptp(weight) > 1e-3


@pytest.mark.parametrize("named", [True, False])
def test_each_weight_comes_with_its_row_and_its_episode_in_the_file(tmp_path, learnt, named):
    whole = table()
    if named:
        ids = pa.array([f"shift {number}" for number in whole["episode"].to_pylist()])
        whole = whole.set_column(whole.schema.get_field_index("episode"), "episode_id", ids)
    folder = cut(tmp_path / "shards", whole, (31, 60))
    scorer = Scorer.of(Trained.load(file_of(learnt)), file_of(learnt))
    for shard in shards(str(folder))[0]:
        score(scorer, shard, tmp_path / "out" / shard.path.name, size=7)
        weights = parquet.read_table(tmp_path / "out" / shard.path.name)
        mine = parquet.read_table(shard.path)
        assert weights["row"].to_pylist() == list(range(len(mine)))
        assert weights["episode"].to_pylist() == mine["episode_id" if named else "episode"].to_pylist()


@pytest.mark.parametrize("drop", [("timeouts",), ("episode",)])
def test_a_next_observation_is_found_across_blocks(tmp_path, drop):
    """Without the column, the successor of a block's last row is in the next block; an episode's last row has none."""
    whole = table(terminal=False, drop=("next_observations", *drop))
    if drop == ("timeouts",):
        whole = whole.drop_columns("terminals")
    one = trained(tmp_path, whole, WEIGHTERS["dual"])
    last = np.cumsum(LENGTHS) - 1
    found, _ = shards(str(cut(tmp_path / "shards", whole, (int(last[2]) + 1,))))
    scorer = Scorer.of(one, file_of(tmp_path))
    for size in (2, 7, 8_192):
        for shard in found:
            score(scorer, shard, tmp_path / "out" / shard.path.name, size=size)
        log_weight = log_weights(tmp_path / "out").astype(np.float64)
        np.testing.assert_array_equal(np.flatnonzero(np.isnan(log_weight)), last)
        weight = np.exp(log_weight[~np.isnan(log_weight)])
        np.testing.assert_allclose(weight / weight.mean(), one.weights().weight, rtol=2e-5)


def test_unordered_rows_are_weighed_too(tmp_path):
    whole = table(drop=("episode", "timeouts"))
    whole = whole.take(np.random.default_rng(0).permutation(len(whole)))
    one = trained(tmp_path, whole, WEIGHTERS["density"], kind="bag")
    found, _ = shards(str(cut(tmp_path / "shards", whole, (50,))))
    for shard in found:
        score(Scorer.of(one, file_of(tmp_path)), shard, tmp_path / "out" / shard.path.name, size=7)
    log_weight = log_weights(tmp_path / "out").astype(np.float64)
    np.testing.assert_allclose(np.exp(log_weight) / np.exp(log_weight).mean(), one.weights().weight, rtol=2e-5)


def test_a_block_of_last_rows_alone_holds_nothing(tmp_path):
    whole = table((5, 1, 1, 1), terminal=False, drop=("next_observations",))
    parquet.write_table(whole, tmp_path / "rows.parquet")
    found = list(blocks(Shard(tmp_path / "rows.parquet", 8, 0), "episodes", 3))
    assert [block.first for block in found] == list(np.cumsum([0, *(block.length for block in found)])[:-1])
    assert sum(block.length for block in found) == 8
    kept = [int(row) + block.first for block in found for row in block.row]
    assert kept == [0, 1, 2, 3]


# ----------------------------------------------------------------------------------------------- the command


def test_the_command_weighs_every_file_and_does_only_what_is_missing(learnt, tmp_path, capsys):
    words = ["weights", str(file_of(learnt)), "--over", f"{learnt}/shards/*.parquet", "--out", str(tmp_path / "w")]
    assert main(words) == 0
    assert "150 rows in 3 files (0 of them were done before)" in capsys.readouterr().out
    record = json.loads((tmp_path / "w" / "weights.json").read_text())
    log_weight = log_weights(tmp_path / "w").astype(np.float64)
    assert np.exp(log_weight - record["log_mean"]).mean() == pytest.approx(1)
    whole = Trained.load(file_of(learnt)).weights().weight
    assert record["effective"] == pytest.approx(1 / np.mean(whole**2), rel=1e-4)

    first, second = (tmp_path / "w" / f"part-{number}.parquet" for number in (0, 1))
    before = first.stat().st_mtime_ns
    second.unlink()
    assert main(words) == 0
    assert "(2 of them were done before)" in capsys.readouterr().out
    assert first.stat().st_mtime_ns == before
    np.testing.assert_array_equal(log_weights(tmp_path / "w"), log_weight.astype(np.float32))


def test_a_file_that_changed_is_weighed_again(learnt, tmp_path):
    shutil.copytree(learnt / "shards", tmp_path / "shards")
    scorer = Scorer.of(Trained.load(file_of(learnt)), file_of(learnt))
    score_all(scorer, str(tmp_path / "shards"), tmp_path / "w")
    parquet.write_table(table((20,), seed=1), tmp_path / "shards" / "part-1.parquet")
    assert score_all(scorer, str(tmp_path / "shards"), tmp_path / "w").before == 2
    assert parquet.read_metadata(tmp_path / "w" / "part-1.parquet").num_rows == 20
    (tmp_path / "shards" / "part-1.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadInput, match=r"part-1\.parquet: can't be read"):
        score_all(scorer, str(tmp_path / "shards"), tmp_path / "w")
    assert not (tmp_path / "w" / "weights.json").exists()


def test_another_run_does_not_take_these_weights_for_its_own(learnt, tmp_path):
    one = trained(tmp_path, table(), WEIGHTERS["dual"])
    found, _ = shards(str(learnt / "shards"))
    mine, other = Scorer.of(Trained.load(file_of(learnt)), file_of(learnt)), Scorer.of(one, file_of(tmp_path))
    score(mine, found[0], tmp_path / "part.parquet")
    assert finished(mine, found[0], tmp_path / "part.parquet")
    assert finished(other, found[0], tmp_path / "part.parquet") is None


def test_files_of_one_name_in_several_folders_stay_apart(learnt, tmp_path):
    for day in ("monday", "tuesday"):
        (tmp_path / "set" / day).mkdir(parents=True)
        shutil.copy(learnt / "shards" / "part-0.parquet", tmp_path / "set" / day / "log.parquet")
    scorer = Scorer.of(Trained.load(file_of(learnt)), file_of(learnt))
    assert score_all(scorer, str(tmp_path / "set" / "**" / "*.parquet"), tmp_path / "w").sums.rows == 62
    assert sorted(path.parent.name for path in (tmp_path / "w").rglob("log.parquet")) == ["monday", "tuesday"]


# ---------------------------------------------------------------------------------------------------- bad input


def test_bad_files_are_named_and_the_others_are_done(learnt, tmp_path, capsys):
    folder = tmp_path / "shards"
    shutil.copytree(learnt / "shards", folder)
    reward = table()["rewards"].to_numpy().copy()[:31]
    reward[20] = np.nan
    broken = table().slice(0, 31).set_column(2, "rewards", pa.array(reward))
    parquet.write_table(broken, folder / "part-0.parquet", row_group_size=9)
    (folder / "part-1.parquet").write_bytes((folder / "part-1.parquet").read_bytes()[:500])
    words = ["weights", str(file_of(learnt)), "--over", str(folder), "--out", str(tmp_path / "w")]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "part-0.parquet: rewards, row 20: nan is not a finite number" in said
    assert "part-1.parquet: can't be read as a Parquet file" in said
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["part-2.parquet"]
    for number in (0, 1):
        shutil.copy(learnt / "shards" / f"part-{number}.parquet", folder)
    assert main(words) == 0
    assert "(1 of them were done before)" in capsys.readouterr().out


def test_a_bad_row_is_named_by_its_number_in_the_file(learnt, tmp_path):
    reward = table()["rewards"].to_numpy().copy()
    reward[100] = np.inf
    parquet.write_table(table().set_column(2, "rewards", pa.array(reward)), tmp_path / "rows.parquet")
    with pytest.raises(BadInput, match=r"rows\.parquet: rewards, row 100: inf"):
        list(blocks(Shard(tmp_path / "rows.parquet", 150, 0), "episodes", 8))


@pytest.mark.parametrize("weighter", ["fixed", "trajectory"])
def test_a_weighter_with_a_number_for_each_row_is_refused(tmp_path, capsys, weighter):
    np.save(tmp_path / "made.npy", np.ones(150))
    made = Fixed(path=str(tmp_path / "made.npy")) if weighter == "fixed" else Dual(hidden=HIDDEN, average="trajectory")
    trained(tmp_path, table(), made)
    folder = cut(tmp_path / "shards", table(), ())
    assert main(["weights", str(file_of(tmp_path)), "--over", str(folder), "--out", str(tmp_path / "w")]) == 2
    assert "keeps a weight for each row it was trained on" in capsys.readouterr().err


def test_what_does_not_fit_is_refused(learnt, tmp_path, capsys):
    def said(over: object, *words: str) -> str:
        assert main(["weights", str(file_of(learnt)), "--over", str(over), *words]) == 2
        return capsys.readouterr().err

    out = ("--out", str(tmp_path / "w"))
    (tmp_path / "other").mkdir()
    parquet.write_table(table(), tmp_path / "other" / "part-1.parquet")
    assert "part-1.parquet: already exists and holds no weights" in said(
        learnt / "shards", "--out", str(tmp_path / "other")
    )
    assert "names no file" in said(tmp_path / "nothing*", *out)
    assert "is the folder of the set itself" in said(learnt / "shards", "--out", str(learnt / "shards"))
    assert "leave out --figure" in said(learnt / "shards", *out, "--figure", "a.svg")
    for name in ("narrow", "cut"):
        (tmp_path / name).mkdir()
    whole = table((6, 6))
    short = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(12, np.float32)), 1)
    parquet.write_table(whole.set_column(1, "actions", short), tmp_path / "narrow" / "a.parquet")
    assert "actions has 1 columns, the run was trained with 2" in said(tmp_path / "narrow", *out)
    parquet.write_table(
        whole.drop_columns(["timeouts", "next_observations", "episode"]), tmp_path / "cut" / "a.parquet"
    )
    assert "add one of the columns timeouts, next_observations or episode" in said(tmp_path / "cut", *out)
    assert main(["weights", str(file_of(learnt)), "--on", "ray"]) == 2


# ------------------------------------------------------------------------------------------------ bounded memory

CHILD = """
import sys
from pathlib import Path
from winnow.training.weigh_files import Scorer, score_all
from winnow.training.trained import Trained

def peak():  # not ru_maxrss, which begins with the parent's
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return 1024 * int(status["VmHWM"].split()[0])

run, few, many, out = map(Path, sys.argv[1:])
scorer = Scorer.of(Trained.load(run), run)
score_all(scorer, str(few), out / "few")
before = peak()
rows = score_all(scorer, str(many), out / "many").sums.rows
print(rows, peak() - before)
"""
GIVES_BACK = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
"""One allocator for all, which gives arrays back when they are let go. As they are, Arrow's and the C library's keep
some tens of MB for each thread that once used them."""


def test_memory_does_not_grow_with_the_set(learnt, tmp_path):
    """A set of 53 MB, in one row group a file, after a third of it, which is many blocks already. It grows by 2 to 4
    MB; files that are held whole make that 33 to 50, and 14 or more where there is one core."""
    length, episodes = 400, 3_000
    big = table((length,) * episodes)
    size = len(big) // 2
    for name, rows in (("few", 200_000), ("many", size)):
        (tmp_path / name).mkdir()
        for number in range(2):
            part = big.slice(number * size, rows)
            parquet.write_table(part, tmp_path / name / f"{number}.parquet", row_group_size=size)
    words = [file_of(learnt), tmp_path / "few", tmp_path / "many", tmp_path / "out"]
    said = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, words)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | GIVES_BACK,
    )
    rows, grown = map(int, said.stdout.split())
    assert rows == len(big)
    assert big.nbytes > 50e6
    assert grown < 0.2 * big.nbytes, f"grew by {grown / 1e6:.0f} MB over a set of {big.nbytes / 1e6:.0f} MB"


# ------------------------------------------------------------------------------------------------------- on Ray


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_ray_cluster_writes_the_same_weights(learnt, tmp_path, monkeypatch, capsys):
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    folder = tmp_path / "shards"
    shutil.copytree(learnt / "shards", folder)
    (folder / "part-3.parquet").write_bytes((folder / "part-2.parquet").read_bytes()[:-200])
    whole = table((6, 6))
    short = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(12, np.float32)), 1)
    parquet.write_table(whole.set_column(1, "actions", short), folder / "part-4.parquet")
    words = ["weights", str(file_of(learnt)), "--over", str(folder), "--on", "ray", "--out"]
    ray.init("local", num_cpus=1, include_dashboard=False, object_store_memory=80_000_000, log_to_driver=False)
    try:
        assert main([*words, str(tmp_path / "w")]) == 2
        said = capsys.readouterr().err
        assert "part-3.parquet: can't be read as a Parquet file" in said
        assert "part-4.parquet: actions has 1 columns" in said
        for number in (3, 4):
            (folder / f"part-{number}.parquet").unlink()
        assert main([*words, str(tmp_path / "w")]) == 0
        assert "(3 of them were done before)" in capsys.readouterr().out
    finally:
        ray.shutdown()
    score_all(Scorer.of(Trained.load(file_of(learnt)), file_of(learnt)), str(folder), tmp_path / "here")
    np.testing.assert_allclose(log_weights(tmp_path / "w"), log_weights(tmp_path / "here"), rtol=1e-5, atol=1e-6)
    assert (tmp_path / "w" / "weights.json").exists()
