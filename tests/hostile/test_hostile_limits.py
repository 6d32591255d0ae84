"""Small files that claim to hold a great deal: refused before much is unpacked, in a child that has little memory."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from helpers.datasets import columns, dataset, source, write_hdf5
from helpers.hostile.corpus import minari
from pyarrow import parquet

from winnow.data import size_limits, store
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.system import checkpoint

GIGA = 10**9


def hdf5_of_nothing(folder: Path) -> Path:
    """A terabyte of rewards of which not one was written."""
    path = write_hdf5(folder / "x.hdf5", columns())
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file.create_dataset("rewards", (250 * GIGA,), "f4", chunks=(1 << 20,), fillvalue=1)
    return path


def hdf5_of_zeros(folder: Path) -> Path:
    """Half a gigabyte of zeros, packed a thousand to one."""
    path = write_hdf5(folder / "x.hdf5", columns())
    with h5py.File(path, "a") as file:
        del file["observations"]
        made = file.create_dataset("observations", (4 << 20, 32), "f4", chunks=(1 << 16, 32), compression="gzip")
        made[: 1 << 16] = 0
    return path


def hdf5_of_one_chunk(folder: Path) -> Path:
    """Eight rewards in a chunk of two gigabytes."""
    path = write_hdf5(folder / "x.hdf5", columns())
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file.create_dataset("rewards", (8,), "f4", chunks=(500 << 20,), maxshape=(None,), compression="gzip")
    return path


def hdf5_of_many_pieces(folder: Path) -> Path:
    """Thirty megabytes in eight million pieces, none of which is there."""
    path = write_hdf5(folder / "x.hdf5", columns())
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file.create_dataset("rewards", (8_000_000,), "f4", chunks=(1,))
    return path


def minari_of_nothing(folder: Path) -> Path:
    place = minari(folder)
    with h5py.File(place / "main_data.hdf5", "a") as file:
        del file["episode_1/rewards"]
        file.create_dataset("episode_1/rewards", (250 * GIGA,), "f4", chunks=(1 << 20,))
    return place


def minari_of_many_choices(folder: Path) -> Path:
    """A column for each of a billion choices."""
    place = minari(folder)
    said = json.loads((place / "metadata.json").read_text())
    choice = {"type": "Discrete", "dtype": "int64", "start": 0, "n": GIGA}
    (place / "metadata.json").write_text(json.dumps(said | {"observation_space": json.dumps(choice)}))
    with h5py.File(place / "main_data.hdf5", "a") as file:
        for name in list(file):
            rows = len(file[f"{name}/observations"])  # pyright: ignore[reportArgumentType]
            del file[f"{name}/observations"]
            file[f"{name}/observations"] = np.zeros(rows, np.int64)
    return place


def npz_of_zeros(folder: Path) -> Path:
    path = folder / "x.npz"
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (75 << 20,)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        with file.open("rewards.npy", "w", force_zip64=True) as out:
            out.write(head.getvalue())
            for _ in range(300):
                out.write(bytes(1 << 20))
        for name, column in columns().items():
            if name != "rewards":
                part = io.BytesIO()
                np.save(part, column)
                file.writestr(f"{name}.npy", part.getvalue())
    return path


def npz_that_lies(folder: Path) -> Path:
    """The header says a terabyte, and a few bytes follow."""
    path, head = folder / "x.npz", io.BytesIO()
    np.savez(path, **columns())
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (250 * GIGA,)})
    made = columns()
    del made["rewards"]
    np.savez(path, **made)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("rewards.npy", head.getvalue() + bytes(32))
    return path


def parquet_of_one_value(folder: Path) -> Path:
    """Forty million rewards that are one and the same."""
    path = folder / "x.parquet"
    rewards = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1_000_000, np.int32)), pa.array([1.0]))
    with parquet.ParquetWriter(path, pa.schema([("reward", rewards.type)])) as file:
        for _ in range(40):
            file.write_table(pa.table({"reward": rewards}))
    return path


def parquet_of_one_word(folder: Path) -> Path:
    """A source of a hundred thousand letters, meant a million times."""
    path, rows = folder / "x.parquet", 1_000_000
    word = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 100_000]))
    number = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([0.5]))
    names = ("obs", "action", "reward", "next_obs")
    table = dict.fromkeys(names, number) | {"terminal": pa.array(np.ones(rows, bool)), "source": word}
    parquet.write_table(pa.table(table), path)
    return path


def parquet_of_long_lists(folder: Path) -> Path:
    """Observations of a million numbers each, all the same."""
    path, width = folder / "x.parquet", 1_000_000
    offsets = pa.array(np.arange(71, dtype=np.int32) * width)
    lists = pa.ListArray.from_arrays(offsets, pa.array(np.zeros(70 * width, np.float32)))
    table = pa.table({"obs": lists, "reward": np.zeros(70), "action": np.zeros(70)})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False, row_group_size=1)
    return path


def csv_of_many_columns(folder: Path) -> Path:
    path = folder / "x.csv"
    path.write_text(",".join(f"obs_{number}" for number in range(200_000)) + "\n")
    return path


def csv_of_many_sources(folder: Path) -> Path:
    path = folder / "x.csv"
    lines = [f"{i},0.5,1,1,{i},s{i}" for i in range(200_000)]
    path.write_text("\n".join(["obs,action,reward,terminal,next_obs,source", *lines]) + "\n")
    return path


def headed(path: Path, header: dict[str, Any], rest: bytes = b"") -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + rest)
    return path


def store_with_a_long_header(folder: Path) -> Path:
    path = folder / "x.safetensors"
    path.write_bytes(struct.pack("<Q", 2**62) + b"{}")
    return path


def store_of_nothing(folder: Path) -> Path:
    """A shape whose size comes to nothing in 64 bits."""
    store.save(dataset(), folder / "x.safetensors")
    raw = (folder / "x.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    header["rows.obs"] |= {"shape": [2**32, 2**32], "data_offsets": [0, 0]}
    return headed(folder / "x.safetensors", header, raw[8 + size :])


def store_that_repeats_itself(folder: Path) -> Path:
    """20,000 episodes that all go on to the last of 40,000 slots."""
    path = folder / "x.safetensors"
    store.save(source(0.5, episodes=20_000, length=1), path)
    raw = path.read_bytes()
    lengths = np.ones(20_000, np.int64).tobytes()
    assert raw.count(lengths) == 1
    path.write_bytes(raw.replace(lengths, (39_999 - 2 * np.arange(20_000)).tobytes()))
    return path


def store_beyond_64_bits(folder: Path) -> Path:
    """Slot and length whose sum is negative in 64 bits."""
    path = folder / "x.safetensors"
    store.save(dataset(), path)
    raw, table = path.read_bytes(), dataset().episodes
    assert raw.count(table.length.tobytes()) == 1
    path.write_bytes(raw.replace(table.length.tobytes(), np.array([2**63 - 2, 1, 3]).tobytes()))
    return path


BOMBS = [
    hdf5_of_nothing, hdf5_of_zeros, hdf5_of_one_chunk, hdf5_of_many_pieces, minari_of_nothing,
    minari_of_many_choices, npz_of_zeros,
    npz_that_lies, parquet_of_one_value, parquet_of_one_word, parquet_of_long_lists, csv_of_many_columns,
    csv_of_many_sources, store_with_a_long_header, store_of_nothing, store_that_repeats_itself, store_beyond_64_bits,
]  # fmt: skip
READ = """
import json, resource, sys, time
resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))
import h5py, pyarrow.parquet, pyarrow.csv
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
for path in sys.argv[1:]:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    try:
        said = repr(open_dataset(path))
    except BadInput as error:
        said = f"refused: {error}"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([said, grown * 1024, time.monotonic() - began]))
"""
MOST = 1_000_000_000
"""Bytes of memory that one of them may take: what 256 MiB of columns come to while they are checked and laid out."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str, int, float]]:
    """For each bomb: its file, what was said of it, the memory it took and the time."""
    paths = {bomb.__name__: str(bomb(tmp_path_factory.mktemp(bomb.__name__))) for bomb in BOMBS}
    assert all(Path(path).is_dir() or Path(path).stat().st_size < 20_000_000 for path in paths.values())
    done = subprocess.run(
        [sys.executable, "-c", READ, *paths.values()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: (path, *line) for (name, path), line in zip(paths.items(), lines, strict=True)}


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.__name__)
def test_a_small_file_does_not_become_a_large_one(bomb: Callable[[Path], Path], told):
    path, said, memory, seconds = told[bomb.__name__]
    assert said.startswith(f"refused: {path}")
    assert memory < MOST
    assert seconds < 20


def test_what_is_packed_well_is_still_read(tmp_path):
    """A recording of which most is zeros."""
    path = tmp_path / "x.hdf5"
    with h5py.File(path, "w") as file:
        for name, column in columns((10_000,) * 4, (True,) * 4).items():
            column[: len(column) // 2] = 0 if name != "terminals" else column[: len(column) // 2]
            file.create_dataset(name, data=column, compression="gzip", chunks=True)
    assert len(open_dataset(path)) == 40_000


def test_a_budget_is_what_a_file_may_become(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes(1000))
    budget = size_limits.Budget("x", path)
    budget.take(size_limits.FREE, "a")
    budget.array((250, 100), 4, "b")
    with pytest.raises(BadInput, match="x: c claims more than a file of 1,000 bytes can mean"):
        budget.take(1, "c")


@pytest.mark.parametrize(
    "record",
    [
        {"spec": [10**12, 2, 3]},
        {"spec": [3, 2, 10**12]},
        {"hidden": [16] * 10**6},
        {"runs": [{"plays": True, "name": "a", "seed": 2**64, "environment": None, "algorithm": {}}]},
    ],
)
def test_a_record_does_not_ask_for_giant_networks(record, tmp_path):
    path = tmp_path / "x.safetensors"
    checkpoint.save(path, {}, record)
    with pytest.raises(BadInput, match=r"x\.safetensors: is damaged"):
        checkpoint.read_record(path)
