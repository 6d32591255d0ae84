"""Each row keeps its number and its episode's id in the user's own file, whatever is done to the dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.datasets import columns, dataset, same_episodes

from winnow.data import holdout, store
from winnow.data.arrays import from_arrays
from winnow.data.dataset import UNKNOWN_ROW, Dataset
from winnow.data.export import export
from winnow.data.recipes import diverse, mixed
from winnow.data.shards import blocks, shards
from winnow.data.sources import open_dataset

LENGTHS = (12, 1, 30, 25)
IDS = np.array(["shift α", "b", "night-7", "x" * 40])


def log(named: bool = True, seed: int = 0) -> Dataset:
    """Rows whose first observation is the number of the row, in episodes that a user named."""
    made = columns(LENGTHS, (True, False, False, True), seed)
    made["observations"][:, 0] = np.arange(sum(LENGTHS))
    del made["next_observations"]  # so the last rows of episodes that time out are left out
    ids = np.repeat(IDS if named else [40, 7, -3, 2**60], LENGTHS)
    return from_arrays(**made, per_row={"id": ids})


def check(data: Dataset, named: bool = True) -> None:
    """Every row's number is where the row says that it was, and so is its episode."""
    row = data.source_row
    np.testing.assert_array_equal(row, data.rows().obs[:, 0])
    ids = np.repeat(IDS if named else [40, 7, -3, 2**60], LENGTHS)
    np.testing.assert_array_equal(data.source_episode, ids[row])
    np.testing.assert_array_equal(data.step, (row - np.repeat(np.cumsum([0, *LENGTHS[:-1]]), LENGTHS)[row]))


@pytest.mark.parametrize("named", [True, False])
def test_rows_and_ids_go_through_files_splits_mixtures_and_segments(tmp_path, named):
    data = log(named)
    assert len(data) == sum(LENGTHS) - 2
    store.save(data, tmp_path / "log.st")
    opened = store.load(tmp_path / "log.st")
    assert same_episodes(opened, data)
    assert isinstance(opened.arenas[0].obs, np.memmap)
    for part in (opened, *holdout.split(opened, 0.4), diverse(opened, opened, 0.3, 200, high_label="b")):
        check(part, named)
    store.save(mixed(opened, opened, 0.3, 200, high_label="b"), tmp_path / "mix.st")
    check(store.load(tmp_path / "mix.st"), named)


@pytest.mark.parametrize("to", ["x.hdf5", "x.npz", "x.parquet", "minari:x-v0"])
@pytest.mark.parametrize("named", [True, False])
def test_an_exported_file_keeps_the_rows_of_the_first_source(tmp_path, minari_home, to, named):
    data = diverse(log(named), log(named), 0.5, 150, high_label="b")
    to = to if to.startswith("minari:") else str(tmp_path / to)
    export(data, to)
    check(open_dataset(to), named)


def test_a_mixture_of_numbered_and_named_episodes_keeps_both(tmp_path):
    data = mixed(log(True), log(False), 0.5, 100, name="both")
    store.save(data, tmp_path / "both.st")
    again = store.load(tmp_path / "both.st")
    assert set(again.source_episode[again.source == 0]) <= set(IDS)
    assert set(again.source_episode[again.source == 1]) <= {"40", "7", "-3", str(2**60)}


def test_a_file_from_before_rows_were_kept_opens(tmp_path):
    data = dataset()
    assert data.source_row.tolist() == list(range(8))
    bare = data.select(np.arange(3))
    bare.episodes.row[:] = UNKNOWN_ROW  # such a file has neither rows nor ids: what says nothing is not written
    store.save(bare, tmp_path / "old.st")
    assert b"episodes.row" not in (tmp_path / "old.st").read_bytes()
    assert b"episodes.id" not in (tmp_path / "old.st").read_bytes()
    old = store.load(tmp_path / "old.st")
    assert old.source_row.tolist() == [UNKNOWN_ROW] * 8
    assert old.source_episode.tolist() == data.episode.tolist()
    assert old.fingerprint == data.fingerprint


def test_unordered_rows_keep_their_numbers():
    made = columns()
    data = from_arrays(**made, kind="bag", per_row={"id": np.repeat(["b", "a"], [5, 3])})
    assert data.source_row.tolist() == list(range(8))
    assert data.source_episode.tolist() == ["b"] * 5 + ["a"] * 3


def test_rows_of_a_block_of_a_shard_are_found_in_the_file(tmp_path):
    export(dataset((20, 30), (True, False)), tmp_path / "shard.parquet")
    (shard,), _ = shards(str(tmp_path / "shard.parquet"))
    whole = open_dataset(shard.path)
    for block in blocks(shard, "episodes", 8):
        assert block.dataset is not None
        rows = whole.rows(block.first + block.row)
        np.testing.assert_array_equal(block.dataset.rows().obs, rows.obs)


def test_what_a_row_takes(tmp_path):
    """Rows and ids are kept for episodes and not for rows: 8 bytes each, whatever an episode's length."""
    long, short = tmp_path / "long.st", tmp_path / "short.st"
    made = columns((500,) * 4, (True,) * 4)
    named = {"id": np.repeat(np.array([9, 8, 7, 6]), 500)}
    store.save(from_arrays(**made, per_row=named), long)
    data = from_arrays(**made)
    data.episodes.row[:] = UNKNOWN_ROW
    store.save(data, short)
    header = 400  # two names more in the file's header, and its padding
    assert Path(long).stat().st_size - Path(short).stat().st_size <= 4 * 16 + header
