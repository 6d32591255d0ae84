"""Out and in again: every row, episode, terminal and timeout, and what others read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making import columns, dataset, files_in, same_episodes, source

from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset, Kind, combine
from winnow.data.export import export
from winnow.data.recipes import diverse
from winnow.data.sources import open_dataset
from winnow.errors import BadInput

FILES = ["x.hdf5", "x.npz", "x.parquet"]


def equal(before: Dataset, after: Dataset) -> bool:
    return before.fingerprint == after.fingerprint and same_episodes(before, after) and before.meta == after.meta


@st.composite
def datasets(draw: st.DrawFn, kinds: tuple[Kind, ...] = ("episodes", "continuing", "bag")) -> Dataset:
    kind = draw(st.sampled_from(kinds))
    lengths = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=6)))
    terminated = tuple(draw(st.booleans()) and kind != "continuing" for _ in lengths)
    made = columns(lengths, terminated, draw(st.integers(0, 99)))
    made["rewards"][0] = draw(st.floats(-(2.0**99), 2.0**99, width=32))
    order = np.random.default_rng(0).permutation(len(made["rewards"])) if kind == "bag" else slice(None)
    made = {name: column[order] for name, column in made.items()}
    seeds = np.arange(len(made["rewards"])) if draw(st.booleans()) else np.full(len(made["rewards"]), -1)
    scale = draw(st.sampled_from([1, 3]))
    made["actions"] = made["actions"] * np.float32(scale)
    environment = draw(st.sampled_from([None, "Pendulum-v1", "plant"]))
    data = from_arrays(**made, kind=kind, name="drawn", environment=environment, per_row={"seed": seeds})
    return combine({"a": data, "ü": data}) if draw(st.booleans()) else data


@settings(max_examples=40, deadline=None)
@given(datasets(), st.sampled_from(FILES))
def test_a_file_makes_the_same_dataset_again(data, name):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        export(data, path)
        again = open_dataset(path)
        assert equal(data, again)
        export(again, path)
        assert equal(data, open_dataset(path))


@settings(max_examples=15, deadline=None)
@given(datasets(kinds=("episodes", "continuing")))
def test_minari_makes_the_same_dataset_again(data):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINARI_DATASETS_PATH", folder)
        export(data, "minari:some/where/x-v3")
        assert equal(data, open_dataset("minari:some/where/x-v3"))


@pytest.mark.parametrize("to", [*FILES, "minari:x-v0"])
def test_segments_of_a_mixture_keep_their_origin_source_and_recipe(tmp_path, minari_home, to):
    data = diverse(source(0.1), source(1, seed=1), 0.2, 500)
    to = to if to.startswith("minari:") else str(tmp_path / to)
    export(data, to)
    again = open_dataset(to)
    assert equal(data, again)
    assert again.meta.recipe == data.meta.recipe


def test_minari_reads_what_was_exported(minari_home):
    import minari

    data = dataset((4, 1, 3), (True, False, False), environment="Pendulum-v1", per_row={"seed": np.arange(8)})
    told: list[int] = []
    export(data, "minari:toy/b-v0", lambda done, total: told.append(done))
    assert told == [0, 1, 2, 3]
    theirs = minari.load_dataset("toy/b-v0")
    assert (theirs.total_episodes, theirs.total_steps) == (3, 8)
    assert theirs.env_spec is not None
    assert theirs.env_spec.id == "Pendulum-v1"
    rows = data.rows()
    for number, episode in enumerate(theirs.iterate_episodes()):
        here = data.episode == number
        np.testing.assert_array_equal(episode.observations[:-1], rows.obs[here])
        np.testing.assert_array_equal(episode.observations[1:], rows.next_obs[here])
        np.testing.assert_array_equal(episode.actions, rows.action[here])
        np.testing.assert_array_equal(episode.rewards, rows.reward[here])
        np.testing.assert_array_equal(episode.terminations, rows.terminal[here])
        assert episode.truncations.tolist() == [False] * (here.sum() - 1) + [not rows.terminal[here][-1]]
    facts = list(theirs.storage.get_episode_metadata(range(3)))
    assert [fact["seed"] for fact in facts] == [0, 4, 5]
    assert [fact["source"] for fact in facts] == ["data"] * 3
    assert list(minari.list_local_datasets()) == ["toy/b-v0"]


def test_others_read_the_d4rl_layout(tmp_path):
    made = columns()
    export(dataset(), tmp_path / "x.hdf5")
    with h5py.File(tmp_path / "x.hdf5") as file:
        assert set(file) == {*made, "infos"}
        for name, column in made.items():
            np.testing.assert_array_equal(np.asarray(file[name]), column)


def test_others_read_npz_without_pickles_and_parquet_with_lists(tmp_path):
    made, data = columns(), dataset()
    export(data, tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}  # loading every one is the test: none is pickled
    np.testing.assert_array_equal(arrays["observations"], made["observations"])
    export(data, tmp_path / "x.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "x.parquet").to_pydict()
    np.testing.assert_array_equal(np.array(table["observation"], np.float32), made["observations"])
    assert table["episode"] == [0, 0, 0, 0, 1, 2, 2, 2]
    assert table["step"] == [0, 1, 2, 3, 0, 0, 1, 2]
    assert table["source"] == ["data"] * 8
    assert table["timeout"] == made["timeouts"].tolist()


def test_a_place_that_can_not_take_it_is_refused_and_nothing_is_written(tmp_path, minari_home):
    data = dataset()
    export(data, "minari:there-v0")
    before = files_in(tmp_path)
    bag = from_arrays(**columns(), kind="bag")
    for what, to, words in [
        (data, tmp_path / "x.pkl", "is no place to export to"),
        (data, "minari:no version", "is not a Minari id"),
        (data, "minari:../../up-v0", "is not a Minari id"),
        (data, "minari:there-v0", "already; delete it"),
        (bag, "minari:bag-v0", "unordered rows have none"),
    ]:
        with pytest.raises(BadInput, match=words):
            export(what, to)
    assert files_in(tmp_path) == before


def test_an_export_that_fails_leaves_the_old_file_and_no_other(tmp_path, minari_home, monkeypatch):
    path = tmp_path / "x.npz"
    path.write_text("old")
    before = files_in(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(BadInput, match="No space left"):
        export(dataset(), path)
    monkeypatch.setattr("minari.dataset._storages.hdf5_storage.HDF5Storage.update_episodes", full)
    with pytest.raises(BadInput, match="nothing was changed"):
        export(dataset(), "minari:x-v0")
    assert files_in(tmp_path) == before
    assert path.read_text() == "old"


def test_a_damaged_description_is_bad_input(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, **columns(), winnow=np.array('{"name": 3, "colour": "red"}'))
    with pytest.raises(BadInput, match="its description by winnow is damaged"):
        open_dataset(path)
