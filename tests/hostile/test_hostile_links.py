"""One file is one file: nothing in it leads to another, and nothing but a file is waited for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from helpers.datasets import columns, dataset, write_hdf5
from helpers.hostile.corpus import minari

from winnow.data import store
from winnow.data.export import export
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.system import checkpoint
from winnow.weighters.fixed import read_weights

ROWS = 8


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    return write_hdf5(tmp_path / "secret.hdf5", {"rewards": np.arange(ROWS, dtype=np.float32)})


def external_link(file: Any, name: str, secret: Path) -> None:
    file[name] = h5py.ExternalLink(str(secret), "/rewards")


def soft_link(file: Any, name: str, secret: Path) -> None:
    file["elsewhere"] = h5py.ExternalLink(str(secret), "/")
    file[name] = h5py.SoftLink("/elsewhere/rewards")


def soft_link_inside(file: Any, name: str, secret: Path) -> None:
    file["mine"] = np.zeros(ROWS, np.float32)
    file[name] = h5py.SoftLink("/mine")


def external_storage(file: Any, name: str, secret: Path) -> None:
    file.create_dataset(name, (ROWS,), "f4", external=[(str(secret), 0, 4 * ROWS)])


def virtual(file: Any, name: str, secret: Path) -> None:
    layout = h5py.VirtualLayout((ROWS,), "f4")
    layout[:] = h5py.VirtualSource(str(secret), "rewards", (ROWS,))
    file.create_virtual_dataset(name, layout)


def objects(file: Any, name: str, secret: Path) -> None:
    file.create_dataset(name, (ROWS,), h5py.vlen_dtype(np.float32))


def references(file: Any, name: str, secret: Path) -> None:
    file.create_dataset(name, (ROWS,), h5py.ref_dtype)


def words(file: Any, name: str, secret: Path) -> None:
    file[name] = ["word"] * ROWS


def compound(file: Any, name: str, secret: Path) -> None:
    file[name] = np.zeros(ROWS, [("a", "f4"), ("b", "i8")])


def dangling(file: Any, name: str, secret: Path) -> None:
    file[name] = h5py.ExternalLink("/dev/zero", "/rewards")


WAYS = (
    external_link, soft_link, soft_link_inside, dangling, external_storage, virtual, objects, references, words,
    compound,
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_column_that_is_not_in_the_file_is_refused(way: Callable[..., None], secret, tmp_path):
    path = write_hdf5(tmp_path / "x.hdf5", columns())
    with h5py.File(path, "a") as file:
        del file["rewards"]
        way(file, "rewards", secret)
    with pytest.raises(BadInput, match=r"x\.hdf5: rewards (is a link|is kept in another file|holds)"):
        open_dataset(path)


@pytest.mark.parametrize("way", WAYS)
def test_a_minari_column_that_is_not_in_the_file_is_refused(way: Callable[..., None], secret, tmp_path):
    folder = minari(tmp_path)
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        del file["episode_1/rewards"]
        way(file["episode_1"], "rewards", secret)
    with pytest.raises(BadInput, match=r"rewards, episode 1: (is a link|is kept in another file|holds)"):
        open_dataset(folder)


@pytest.mark.parametrize("name", ["infos", "infos/winnow", "infos/step"])
def test_what_winnow_adds_to_a_file_is_no_link_either(name, secret, tmp_path):
    path = tmp_path / "x.hdf5"
    export(dataset(), path)
    with h5py.File(path, "a") as file:
        del file[name]
        file[name] = h5py.ExternalLink(str(secret), "/rewards")
    with pytest.raises(BadInput, match="is a link"):
        open_dataset(path)


def test_groups_that_hold_each_other_are_not_walked_for_ever(tmp_path):
    """2⁸ ways through eight groups that each hold the next one twice; and a group that holds itself."""
    folder = minari(tmp_path)
    said = json.loads((folder / "metadata.json").read_text())
    (folder / "metadata.json").write_text(json.dumps({k: v for k, v in said.items() if not k.endswith("_space")}))
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        del file["episode_0/observations"]
        group = file.create_group("episode_0/observations")
        for _ in range(30):
            inner = group.create_group("a")
            group["b"] = inner
            group = inner
        group["c"] = np.zeros(4)
    with pytest.raises(BadInput, match="more than 8 nested groups"):
        open_dataset(folder)
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        del file["episode_0/observations"]
        group = file.create_group("episode_0/observations")
        group["itself"] = group
    with pytest.raises(BadInput, match="more than 8 nested groups"):
        open_dataset(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    """Each of these would wait for ever for somebody to write."""
    path = tmp_path / "pipe.safetensors"
    os.mkfifo(path)
    for read in (open_dataset, store.load, checkpoint.read_record, lambda one: read_weights(str(one))):
        with pytest.raises(BadInput, match=r"pipe\.safetensors"):
            read(path)
    with pytest.raises(BadInput, match=r"pipe\.safetensors"):
        checkpoint.load(path, {})
    bare = tmp_path / "pipe"
    os.mkfifo(bare)
    with pytest.raises(BadInput, match="pipe"):
        open_dataset(bare)


@pytest.mark.parametrize("place", ["s3://bucket/w.parquet", "http://127.0.0.1:9/w.parquet", "/dev/zero", "/dev/stdin"])
def test_weights_are_not_fetched(place):
    """A run's file names the weights it was trained with."""
    with pytest.raises(BadInput, match="there is no such file"):
        read_weights(place)
