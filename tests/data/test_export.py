"""Out and in again: every row, episode, terminal and timeout, and what others read."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import h5py
import jax
import numpy as np
import pyarrow.parquet
import pytest
from helpers.datasets import columns, dataset, files_in, same_episodes, source
from hypothesis import given, settings
from hypothesis import strategies as st

from winnow.algorithms.bc import BC
from winnow.cli import main
from winnow.data import store
from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset, Kind, combine
from winnow.data.export import export
from winnow.data.minari import minari_root, minari_weights
from winnow.data.recipes import diverse
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.packs.run import Run
from winnow.policy import Policy
from winnow.samplers import Uniform
from winnow.training.trained import Trained
from winnow.types import Spec
from winnow.weighters.fixed import Fixed, read_weights

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


# --------------------------------------------------------------------------------------------------- with weights


WEIGHT = np.array([1e-60, 0.25, 3.0, 0.0, 2.5, 0.1, 1 / 3, 1.0])
"""One for each row of `dataset()`; some are nothing in float32."""


def test_weights_come_back_from_minari_to_the_last_bit(minari_home):
    import minari

    data = dataset()
    export(data, "minari:toy/weighted-v0", weight=WEIGHT)
    np.testing.assert_array_equal(minari_weights("minari:toy/weighted-v0"), WEIGHT)
    np.testing.assert_array_equal(minari_weights(str(minari_home / "toy" / "weighted-v0")), WEIGHT)
    assert equal(data, open_dataset("minari:toy/weighted-v0"))
    theirs = minari.load_dataset("toy/weighted-v0")
    for number, episode in enumerate(theirs.iterate_episodes()):
        here = data.episode == number
        np.testing.assert_array_equal(episode.infos["weight"][: len(episode.rewards)], WEIGHT[here])
        assert len(episode.infos["weight"]) == len(episode.observations)
    filtered = theirs.filter_episodes(lambda episode: episode.infos["weight"].sum() > 1)
    assert filtered.total_episodes == 3


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_weights_are_read_from_minaris_other_formats(minari_home, form):
    """Its Arrow tables hold infos that are T + 1 long, and plain numbers are read back only if they came as lists."""
    import dataclasses

    import minari
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    data = dataset()
    export(data, "minari:a-v0", weight=WEIGHT)
    theirs = minari.load_dataset("a-v0")
    folder = minari_home / "b-v0" / "data"
    folder.mkdir(parents=True)
    other = MinariStorage.new(folder, theirs.observation_space, theirs.action_space, data_format=form)
    for episode in theirs.iterate_episodes():
        columns = {field.name: getattr(episode, field.name) for field in dataclasses.fields(episode)}
        columns |= {"id": int(episode.id), "infos": {"weight": episode.infos["weight"].tolist()}}
        other.update_episodes([EpisodeBuffer(**columns)])
    np.testing.assert_array_equal(minari_weights("minari:b-v0"), WEIGHT)
    np.testing.assert_array_equal(open_dataset("minari:b-v0").rows().obs, data.rows().obs)


def test_a_fixed_weighter_takes_a_minari_dataset(minari_home):
    data = dataset()
    export(data, "minari:toy/weighted-v0", weight=WEIGHT)
    np.testing.assert_array_equal(read_weights("minari:toy/weighted-v0"), WEIGHT)
    weighter, again = Fixed("minari:toy/weighted-v0"), open_dataset("minari:toy/weighted-v0")
    weighter.check(again)
    table = weighter.init(jax.random.key(0), Spec(again.obs_dim, again.action_dim, len(again)))
    np.testing.assert_allclose(np.asarray(table), np.log(np.maximum(WEIGHT, 1e-300)).astype(np.float32) - [
        0, 0, 0, np.inf, 0, 0, 0, 0], rtol=1e-6)  # fmt: skip
    assert weighter.stamp > 0
    with pytest.raises(BadInput, match="holds 8 weights, the dataset has 4 rows"):
        weighter.check(data.select(np.arange(1)))
    with pytest.raises(BadInput, match="there is no such dataset"):
        read_weights("minari:toy/nothing-v0")


def test_weights_in_files(tmp_path):
    data = dataset()
    for name in FILES:
        export(data, tmp_path / name, weight=WEIGHT)
        assert equal(data, open_dataset(tmp_path / name))
    np.testing.assert_array_equal(np.load(tmp_path / "x.npz")["weight"], WEIGHT)
    np.testing.assert_array_equal(pyarrow.parquet.read_table(tmp_path / "x.parquet")["weight"].to_numpy(), WEIGHT)
    with h5py.File(tmp_path / "x.hdf5") as file:
        np.testing.assert_array_equal(np.asarray(file["infos/weight"]), WEIGHT)


def test_weights_that_do_not_fit_are_refused(tmp_path, minari_home):
    with pytest.raises(BadInput, match=r"weights of shape \[7\] for 8 rows"):
        export(dataset(), "minari:x-v0", weight=WEIGHT[1:])
    assert not minari_root().exists()
    export(dataset(), "minari:plain-v0")
    with pytest.raises(BadInput, match="infos, episode 0: is missing"):
        minari_weights("minari:plain-v0")
    export(dataset(), "minari:odd-v0", weight=WEIGHT)
    with h5py.File(minari_home / "odd-v0" / "data" / "main_data.hdf5", "a") as file:
        del file["episode_1/infos/weight"]
        file["episode_1/infos/weight"] = np.ones((2, 2))
    with pytest.raises(BadInput, match=r"infos/weight, episode 1: has shape \[2, 2\] for 1 steps"):
        minari_weights("minari:odd-v0")


def test_the_weights_command_writes_a_minari_dataset(minari_home, tmp_path, capsys):
    data = diverse(source(0.1), source(1, seed=1), 0.2, 500, name="pieces")
    store.save(data, tmp_path / "pieces.st")
    weight = np.random.default_rng(0).exponential(size=len(data))
    np.save(tmp_path / "given.npy", weight)
    run = Run(store.load(tmp_path / "pieces.st"), BC(hidden=(4,)), Uniform(), Fixed(str(tmp_path / "given.npy")))
    learner, state = (part.init(jax.random.key(0), run.spec) for part in (run.algorithm, run.weighter))
    policy = Policy(run.algorithm, learner, np.zeros(3), np.ones(3), np.zeros(2), np.ones(2))
    Trained(run, 0, None, policy, state).save(tmp_path / "run.safetensors")

    words = ["weights", str(tmp_path / "run.safetensors"), "--out", str(tmp_path / "w.npy")]
    words += ["--figure", str(tmp_path / "w.png"), "--export"]
    assert main([*words, "minari:toy/pieces-v0"]) == 0
    assert "dataset minari:toy/pieces-v0" in capsys.readouterr().out
    np.testing.assert_allclose(minari_weights("minari:toy/pieces-v0"), weight / weight.mean(), rtol=1e-5)
    assert equal(data, open_dataset("minari:toy/pieces-v0"))
    before = files_in(tmp_path)
    assert main([*words, "minari:toy/pieces-v0"]) == 2
    assert main([*words, "x.xlsx"]) == 2
    assert "is no place to export to" in capsys.readouterr().err
    assert files_in(tmp_path) == before


# -------------------------------------------------------------------------------------------------- what others read


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
