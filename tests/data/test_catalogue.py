"""Datasets by name: regenerated ones from pools, D4RL's from files, never one for the other."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.datasets import source, write_hdf5

import winnow
from winnow.data import store
from winnow.data.catalogue import on_disk, open_named
from winnow.data.export import export
from winnow.data.names import all_names, parse
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.training.trained import Trained


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "data"


def tiny(name: str) -> str:
    return f"{name}@400"


@pytest.mark.parametrize("name", [name for name in all_names() if parse(name).kind != "d4rl"])
def test_each_of_the_72_is_made_at_a_tiny_size(name, tmp_path_factory, monkeypatch):
    """All tests of this kind share one folder, so that each pool is played once."""
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path_factory.getbasetemp() / "pools-of-all"))
    dataset = open_named(tiny(name), make=True)
    wanted = parse(name)
    assert wanted.recipe is not None
    assert len(dataset) >= 400
    assert (dataset.meta.environment, dataset.meta.name) == (wanted.environment, tiny(name))
    assert dataset.meta.sources == tuple(part.rpartition("-")[2] for part in wanted.sources)
    good = dataset.source == 1
    longest = dataset.episodes.length[dataset.episodes.source == 1].max()
    assert 0 < good.sum() < 400 * wanted.recipe.share + 1000
    assert longest <= (49 if wanted.suite == "diverse" else 1000)


def test_the_same_name_gives_the_same_bits(own_folder, tmp_path, monkeypatch):
    name = tiny("hopper-random-medium-diverse-10%")
    first = open_named(name, make=True, processes=1)
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path / "elsewhere"))
    second = open_named(name, make=True, processes=2)
    store.save(first, tmp_path / "a.safetensors")
    store.save(second, tmp_path / "b.safetensors")
    assert first.fingerprint == second.fingerprint
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_a_name_opens_wherever_a_dataset_is_asked_for(tmp_path):
    name = tiny("hopper-random-expert-50%")
    with pytest.raises(BadInput, match=r"hopper-random@400 and hopper-expert@400, which are not made.*-50%@400'"):
        open_dataset(name)
    made = open_named(name, make=True)
    assert open_dataset(name).fingerprint == made.fingerprint
    (trained,) = winnow.train(name, "bc", "uniform", steps=3, progress=False, evaluate=None)
    trained.save(tmp_path / "run.safetensors")
    assert Trained.load(tmp_path / "run.safetensors").run.dataset.fingerprint == made.fingerprint


def test_d4rl_names_open_d4rl_files_and_never_regenerated_ones(own_folder):
    open_named(tiny("hopper-random"), make=True)
    with pytest.raises(BadInput, match=r"hopper_random-v2\.hdf5"):
        open_named("hopper-random-v2")
    rows = source(0.1)
    own_folder.mkdir(exist_ok=True)
    export(rows, str(own_folder / "hopper-random-v2.hdf5"), lambda done, total: None)
    opened = open_named("hopper-random-v2")
    assert len(opened) == len(rows)
    assert opened.meta.environment == "hopper"
    assert on_disk(parse("hopper-random-v2")) == "ready"
    assert on_disk(parse("hopper-random-expert-5%-v2")) == "in part"


def test_a_mixture_of_d4rl_files_given_by_hand(tmp_path):
    files = {}
    for seed, level in enumerate(("random", "expert")):
        files[f"hopper-{level}-v2"] = str(tmp_path / f"{level}.hdf5")
        export(source(float(seed), seed=seed), files[f"hopper-{level}-v2"], lambda done, total: None)
    mixture = open_named("hopper-random-expert-50%-v2@600", sources=files)
    assert mixture.meta.sources == ("random", "expert")
    share = np.mean(mixture.source == 1)
    assert 0.45 < share < 0.6
    with pytest.raises(BadInput, match="no source 'hopper-medium-v2'"):
        open_named("hopper-random-expert-50%-v2@600", sources={"hopper-medium-v2": "x.hdf5"})
    with pytest.raises(BadInput, match="not made of files"):
        open_named("hopper-random-expert-50%@600", sources=files)


def test_a_damaged_d4rl_file_is_named(own_folder):
    own_folder.mkdir()
    write_hdf5(own_folder / "hopper-random-v2.hdf5", {"observations": np.zeros((3, 11))})
    with pytest.raises(BadInput, match="hopper-random-v2"):
        open_named("hopper-random-v2")
