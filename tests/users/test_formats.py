"""Someone with data in other projects' formats: a Minari set, a robomimic HDF5 file and a LeRobot folder.

Each is imported and trained on, and the weights find the way back to its own rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from helpers.datasets import record
from pyarrow import parquet

from winnow.cli import main

EPISODES = 12
LENGTH = 20
ROWS = EPISODES * LENGTH
TINY = ["--algorithm", "bc", "--method", "aw", "--seeds", "1", "--steps", "20", "--chunk", "20", "--batch-size", "16"]
TINY += ["--algorithm.hidden", "8", "--no-evaluate"]


def episode(number: int) -> dict[str, np.ndarray]:
    """An episode whose actions tell where they belong. Later episodes earn more, whatever state they begin in."""
    steps = np.arange(LENGTH + 1)
    state = np.stack([np.cos(7 * number + steps), steps, np.sin(steps)], axis=1).astype(np.float32)
    action = np.stack([np.cos(steps[:-1]), np.full(LENGTH, number / EPISODES)], axis=1).astype(np.float32)
    return {"state": state, "action": action, "reward": np.full(LENGTH, number, np.float32)}


def minari_set() -> str:
    parts = [episode(number) for number in range(EPISODES)]
    last = np.arange(LENGTH) == LENGTH - 1
    record(
        "lab/arm-v0",
        [
            {
                "observations": part["state"].astype(np.float64),
                "actions": part["action"],
                "rewards": part["reward"],
                "terminations": last,
                "truncations": np.zeros(LENGTH, bool),
            }
            for part in parts
        ],
    )
    return "minari:lab/arm-v0"


def robomimic_file(path: Path) -> str:
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": {}})
        data.attrs["total"] = ROWS
        for number in range(EPISODES):
            part = episode(number)
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = LENGTH
            demo["actions"] = part["action"]
            demo["rewards"] = part["reward"]
            demo["dones"] = (np.arange(LENGTH) == LENGTH - 1).astype(np.int64)
            demo["obs/robot0_eef_pos"] = part["state"][:-1]
            demo["next_obs/robot0_eef_pos"] = part["state"][1:]
    return str(path)


def lerobot_folder(folder: Path) -> str:
    parts = [episode(number) for number in range(EPISODES)]
    frame = np.tile(np.arange(LENGTH), EPISODES)
    columns: dict[str, Any] = {
        "observation.state": list(np.concatenate([part["state"][:-1] for part in parts])),
        "action": list(np.concatenate([part["action"] for part in parts])),
        "timestamp": (frame / 30).astype(np.float32),
        "frame_index": frame,
        "episode_index": np.repeat(np.arange(EPISODES), LENGTH),
        "index": np.arange(ROWS),
        "task_index": np.zeros(ROWS, int),
        "next.reward": np.concatenate([part["reward"] for part in parts]),
        "next.done": frame == LENGTH - 1,
    }
    features = {
        name: {"dtype": str(np.asarray(values[0]).dtype), "shape": [np.size(values[0])], "names": None}
        for name, values in columns.items()
    }
    info = {"codebase_version": "v3.0", "fps": 30, "total_episodes": EPISODES, "total_frames": ROWS}
    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "info.json").write_text(json.dumps(info | {"features": features}))
    data = folder / "data" / "chunk-000"
    data.mkdir(parents=True)
    parquet.write_table(
        pa.table({name: pa.array(values) for name, values in columns.items()}), data / "file-000.parquet"
    )
    return str(folder)


@pytest.mark.parametrize("kind", ["minari", "robomimic", "lerobot"])
def test_imported_trained_and_joined_back(kind, tmp_path, minari_home, capsys):
    if kind == "minari":
        source = minari_set()
    elif kind == "robomimic":
        source = robomimic_file(tmp_path / "demo.hdf5")
    else:
        source = lerobot_folder(tmp_path / "pusher")
    data = tmp_path / "data.safetensors"
    assert main(["data", "import", source, "--out", str(data), "--json"]) == 0
    imported = json.loads(capsys.readouterr().out)
    assert (imported["rows"], imported["episodes"]) == (ROWS, EPISODES)
    assert main(["train", str(data), "--out", str(tmp_path / "runs"), *TINY, "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["failure"] is None

    table = tmp_path / "weights.parquet"
    words = ["weights", run["file"], "--out", str(table), "--figure", str(tmp_path / "weights.svg"), "--quiet"]
    assert main([*words, "--format", "lerobot"] if kind == "lerobot" else words) == 0
    weights = parquet.read_table(table).to_pydict()
    if kind == "lerobot":
        frames = np.asarray(weights["index"])
    else:
        assert weights["source_row"] == list(range(ROWS))
        frames = np.asarray(weights["source_row"])
        ends = [text.rpartition("_")[2] for text in map(str, weights["source_episode"])]
        assert list(map(int, ends)) == [row // LENGTH for row in range(ROWS)]
    weight = np.zeros(ROWS)
    weight[frames] = weights["weight"]
    by_episode = weight.reshape(EPISODES, LENGTH).mean(axis=1)
    assert by_episode[-1] == by_episode.max() > by_episode.mean()  # the episode that earned most counts most
