"""`winnow weights` is joined back to the CSV, Parquet, HDF5 and Minari data that the rows came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.datasets import record
from pyarrow import csv, parquet

from winnow import toy
from winnow.cli import main
from winnow.data.sources import open_dataset
from winnow.samplers import RW
from winnow.training import weight_table
from winnow.training.row_weights import RowWeights

NAMES = np.array([f"shift {chr(97 + i)}{'' if i % 3 else ' (night)'}" for i in range(26)])


def user_rows() -> dict[str, np.ndarray]:
    """What a user logged, episodes in an order of his own, with the reward of each row."""
    parts = [toy.make(toy.random, 240, 0), toy.make(toy.expert, 120, 1)]
    rows = [part.rows() for part in parts]
    episode = np.concatenate([parts[0].episode, parts[1].episode + len(parts[0].episodes)])
    return {
        "obs": np.concatenate([part.obs for part in rows]),
        "next_obs": np.concatenate([part.next_obs for part in rows]),
        "action": np.concatenate([part.action for part in rows]),
        "reward": np.concatenate([part.reward for part in rows]),
        "terminal": np.concatenate([part.terminal for part in rows]).astype(np.uint8),
        "episode": NAMES[episode],
        "number": episode,
    }


def write(kind: str, folder: Path, rows: dict[str, np.ndarray]) -> str:
    """The user's data in a format of his own; what to give to `winnow`."""
    path = folder / f"log.{kind}"
    last = np.append(np.diff(rows["number"]) != 0, True)
    if kind == "csv":
        wide = {f"{name}_{i}": rows[name][:, i] for name in ("obs", "action") for i in range(rows[name].shape[1])}
        table = wide | {name: rows[name] for name in ("reward", "terminal", "episode")}
        csv.write_csv(pa.table(table), path)
    elif kind == "parquet":
        lists = {name: pa.array(list(rows[name])) for name in ("obs", "action", "next_obs")}
        plain = {name: rows[name] for name in ("reward", "terminal", "episode")}
        parquet.write_table(pa.table(lists | plain), path, row_group_size=50)
    elif kind == "hdf5":
        with h5py.File(path, "w") as file:
            for name in ("obs", "action", "reward", "terminal"):
                file[f"{name}s" if name != "obs" else "observations"] = rows[name]
            file["timeouts"] = last & (rows["terminal"] == 0)
    else:
        episodes: list[dict[str, Any]] = []
        for number in np.unique(rows["number"]):
            part = {name: column[rows["number"] == number] for name, column in rows.items()}
            ended = part["terminal"].astype(bool)
            episodes.append(
                {
                    "observations": np.concatenate([part["obs"], part["next_obs"][-1:]]).astype(np.float64),
                    "actions": part["action"],
                    "rewards": part["reward"],
                    "terminations": ended,
                    "truncations": np.append(np.zeros(len(ended) - 1, bool), not ended[-1]),
                }
            )
        from gymnasium.spaces import Box

        record("toy/plant/log-v0", episodes, observation=Box(-np.inf, np.inf, (4,), np.float64))
        return "minari:toy/plant/log-v0"
    return str(path)


@pytest.mark.parametrize("kind", ["csv", "parquet", "hdf5", "minari"])
def test_weights_are_joined_to_the_rows_they_came_from(tmp_path, minari_home, kind):
    rows = user_rows()
    source = write(kind, tmp_path, rows)
    out = tmp_path / "weights.csv"
    if kind in ("csv", "minari"):
        _by_commands(source, tmp_path, out)
    else:  # the same without training, which takes seconds
        data = open_dataset(source)
        probability = RW(temperature=0.2).probabilities(data)
        weight_table.write(out, data, RowWeights(probability, np.ones(len(data))))

    table = {name: column.to_numpy(zero_copy_only=False) for name, column in zip(*_columns(out), strict=True)}
    row = table["source_row"]
    ids = rows["episode"] if kind in ("csv", "parquet") else rows["number"]
    np.testing.assert_array_equal(table["source_episode"], ids[row])
    assert len(np.unique(row)) == len(row)
    # RW's weight rises with the return of the episode, which is counted here from the user's own rows.
    rewards, weights = {}, {}
    for episode, number, weight in zip(table["source_episode"], row, table["weight"], strict=True):
        rewards.setdefault(episode, []).append(rows["reward"][number])
        weights.setdefault(episode, []).append(weight)
    order = sorted(rewards, key=lambda episode: sum(rewards[episode]))
    mean = np.array([np.mean(weights[episode]) for episode in order])
    assert len(order) > 4
    assert mean[-1] > 1.5 * mean[0]
    assert (np.diff(mean) >= -1e-6 * mean[1:]).all()


def _by_commands(source: str, folder: Path, out: Path) -> None:
    data = source
    if not source.startswith("minari:"):  # a Minari id has slashes, and runs are named after the dataset
        assert main(["data", "import", source, "--out", str(folder / "data.st"), "--action-bounds", "-1", "1"]) == 0
        assert main(["data", "split", str(folder / "data.st"), "--share", "0.3"]) == 0
        data = str(folder / "data.train.safetensors")
    options = ["--algorithm", "bc", "--algorithm.hidden", "4", "--steps", "2", "--batch-size", "8", "--no-evaluate"]
    options += ["--sampler", "rw", "--sampler.temperature", "0.2", "--seeds", "1", "--out", str(folder / "runs")]
    assert main(["train", data, "--method", "uniform", *options]) == 0
    (run,) = [path for path in (folder / "runs").glob("*.safetensors") if ".seed0." in path.name]
    assert main(["weights", str(run), "--out", str(out)]) == 0


def _columns(path: Path) -> tuple[list[str], list[Any]]:
    table = csv.read_csv(path)
    return table.column_names, [column.combine_chunks() for column in table.columns]
