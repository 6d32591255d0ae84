"""robomimic and LeRobot datasets, laid out as the projects write them, and data that is recognised and not read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from helpers.datasets import columns
from pyarrow import parquet

from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.training import weight_table
from winnow.training.row_weights import RowWeights

LENGTHS = (4, 1, 3)


def refused(source: str | Path, *fragments: str, **options: Any) -> None:
    with pytest.raises(BadInput) as caught:
        open_dataset(source, **options)
    assert str(source) in str(caught.value)
    for fragment in fragments:
        assert fragment in str(caught.value)


# ------------------------------------------------------------------------------------------------------- LeRobot


def lerobot(folder: Path, version: str = "v3.0", image: bool = False, leave: tuple[str, ...] = (), **more: Any) -> Path:
    """Three episodes of a robot with two joints, as LeRobot lays them out: a file an episode (v2.1) or one for all."""
    episode = np.repeat(np.arange(3), LENGTHS)
    frame = np.concatenate([np.arange(length) for length in LENGTHS])
    last = np.append(np.diff(episode) != 0, True)
    state = np.stack([episode, frame], axis=1).astype(np.float32)
    every = {
        "observation.state": list(state),
        "observation.environment_state": list(state[:, :1] * 10),
        "action": list(state / 10),
        "timestamp": (frame / 30).astype(np.float32),
        "frame_index": frame,
        "episode_index": episode,
        "index": np.arange(8),
        "task_index": np.zeros(8, int),
        "next.reward": frame.astype(np.float32),
        "next.done": last,
        "next.success": last & (episode == 0),
        **more,
    }
    every = {name: values for name, values in every.items() if name not in leave}
    features: dict[str, Any] = {
        name: {"dtype": str(np.asarray(values[0]).dtype), "shape": [np.size(values[0])], "names": None}
        for name, values in every.items()
    }
    if "observation.state" in features:
        features["observation.state"]["names"] = {"motors": ["shoulder", "gripper"]}
    features["action"]["names"] = ["shoulder", "gripper"]
    if image:
        features["observation.images.top"] = {"dtype": "video", "shape": [64, 64, 3], "names": ["height", "width", "c"]}
    info = {"codebase_version": version, "fps": 30, "total_episodes": 3, "total_frames": 8, "features": features}
    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    data = folder / "data" / "chunk-000"
    data.mkdir(parents=True)
    frames = pa.table({name: pa.array(values) for name, values in every.items()})
    if version == "v2.1":
        for number in range(3):
            mask = pa.array(episode == number)
            parquet.write_table(frames.filter(mask), data / f"episode_{number:06d}.parquet")
    else:
        parquet.write_table(frames, data / "file-000.parquet")
    return folder


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_a_lerobot_dataset_with_its_usual_keys(tmp_path, version):
    data = open_dataset(lerobot(tmp_path / "pusher", version))
    assert data.meta.name == "pusher"
    assert data.meta.obs_names == (
        "observation.state.shoulder",
        "observation.state.gripper",
        "observation.environment_state",
    )
    assert data.meta.action_names == ("action.shoulder", "action.gripper")
    assert data.episodes.length.tolist() == list(LENGTHS)
    assert data.episodes.id.tolist() == [0, 1, 2]
    assert data.source_row.tolist() == list(range(8))
    rows = data.rows()
    np.testing.assert_array_equal(rows.obs[:, 1], [0, 1, 2, 3, 0, 0, 1, 2])
    np.testing.assert_array_equal(rows.reward, [0, 1, 2, 3, 0, 0, 1, 2])
    assert rows.terminal.sum() == 3
    assert any("`next.done` was taken as the end of the task" in note for note in data.meta.notes)
    assert any("guessed from their names: observations observation.state" in note for note in data.meta.notes)
    assert any(note.endswith("ignored: next.success") for note in data.meta.notes)


def test_keys_rewards_and_ends_of_lerobot_are_chosen(tmp_path):
    folder = lerobot(tmp_path / "a", leave=("next.reward",), progress=np.array([0, 1, 5, 9, 0, 0, 2, 3], np.float32))
    choice = {"observations": "observation.state", "timeout": "next.done"}
    refused(folder, "has no next.reward", "--reward success (from next.success)", "--reward-from KEY", "progress")
    data = open_dataset(folder, columns=choice | {"reward": "success"})
    # Nothing is terminal, so the last frame of each episode has no successor.
    assert data.source_row.tolist() == [0, 1, 2, 5, 6]
    assert data.rows().reward.tolist() == [0, 0, 0, 0, 0]
    assert data.obs_dim == 2
    data = open_dataset(folder, columns=choice | {"reward_from": "progress"})
    assert data.rows().reward.tolist() == [1, 4, 4, 2, 1]
    data = open_dataset(folder, columns={"observations": "observation.*", "reward": "success"})
    assert data.rows().reward.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert any("1 once in each episode that succeeds" in note for note in data.meta.notes)


def test_images_of_lerobot_are_refused_with_the_keys_to_use(tmp_path):
    folder = lerobot(tmp_path / "a", image=True)
    keys = "--observations observation.state,observation.environment_state"
    refused(folder, "observation.images.top holds images", keys)
    refused(folder, "observation.images.top holds images", columns={"observations": "observation.images.top"})
    data = open_dataset(folder, columns={"observations": "observation.state"})
    assert any("images are not read: observation.images.top" in note for note in data.meta.notes)
    bare = lerobot(tmp_path / "b", image=True, leave=("observation.state", "observation.environment_state"))
    refused(bare, "observation.images.top holds images", "no others that hold numbers")


def test_a_lerobot_dataset_that_is_not_whole(tmp_path):
    refused(lerobot(tmp_path / "old", "v1.6"), "codebase_version must be v2.x or v3.x, got v1.6")
    folder = lerobot(tmp_path / "gap", index=np.array([0, 1, 2, 4, 5, 6, 7, 8]))
    refused(folder, "index: 2 is followed by 4 in episode 0")
    (folder / "data" / "chunk-000" / "file-000.parquet").unlink()
    refused(folder, "must have Parquet files below data/")
    (folder / "meta" / "info.json").write_text("[]")
    refused(folder, "must say the dataset's features")


def test_weights_for_lerobot_name_each_frame_once(tmp_path):
    data = open_dataset(lerobot(tmp_path / "a"), columns={"timeout": "next.done"})
    twice = data.select(np.array([0, 1, 0]))  # the first episode is in it twice
    weights = RowWeights(np.full(len(twice), 1 / len(twice)), np.arange(1.0, len(twice) + 1))
    weight_table.write(tmp_path / "w.parquet", twice, weights, "lerobot")
    table = parquet.read_table(tmp_path / "w.parquet")
    assert table.schema.names == ["index", "weight"]
    assert table["index"].to_pylist() == [0, 1, 2, 5, 6]
    np.testing.assert_allclose(table["weight"].to_pylist(), [1 + 6, 2 + 7, 3 + 8, 4, 5])
    with pytest.raises(BadInput, match=r"must end in \.parquet"):
        weight_table.write(tmp_path / "w.csv", twice, weights, "lerobot")


# ----------------------------------------------------------------------------------------------------- robomimic


def robomimic(path: Path, image: bool = False, leave: tuple[str, ...] = ()) -> Path:
    """Demonstrations 0, 2 and 10, in an order that is not that of their names."""
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": {}})
        data.attrs["total"] = sum(LENGTHS)
        file["mask/train"] = np.array([b"demo_0", b"demo_10"])
        for number, length in zip((0, 2, 10), LENGTHS, strict=True):
            demo = data.create_group(f"demo_{number}")
            demo.attrs["num_samples"] = length
            steps = np.arange(length + 1.0)
            arrays = {
                "actions": np.full((length, 2), number / 20),
                "rewards": steps[:-1],
                "dones": (steps[1:] >= length - 1).astype(np.int64),  # success is marked in several rows
                "states": np.zeros((length, 5)),
            }
            for group, part in (("obs", steps[:-1]), ("next_obs", steps[1:])):
                arrays[f"{group}/object"] = np.stack([part, np.full(length, number)], axis=1)
                arrays[f"{group}/robot0_eef_pos"] = np.stack([part] * 3, axis=1)
                if image:
                    arrays[f"{group}/agentview_image"] = np.zeros((length, 4, 4, 3), np.uint8)
            for name, array in arrays.items():
                if name.split("/")[0] not in leave:
                    demo[name] = array
    return path


def test_a_robomimic_file(tmp_path):
    data = open_dataset(robomimic(tmp_path / "low_dim.hdf5"))
    assert data.meta.obs_names == ("object_0", "object_1", "robot0_eef_pos_0", "robot0_eef_pos_1", "robot0_eef_pos_2")
    assert data.episodes.id.tolist() == ["demo_0", "demo_2", "demo_10"]
    assert data.episodes.length.tolist() == list(LENGTHS)
    rows = data.rows()
    np.testing.assert_array_equal(rows.obs[:, 0], data.step)
    np.testing.assert_array_equal(rows.next_obs[:, 0], data.step + 1)
    np.testing.assert_array_equal(rows.obs[:, 1], np.repeat([0, 2, 10], LENGTHS))
    np.testing.assert_array_equal(rows.reward, data.step)
    assert np.flatnonzero(rows.terminal).tolist() == [3, 4, 7]
    assert any("2 rows are `dones` before the last row of a demonstration" in note for note in data.meta.notes)


def test_keys_of_robomimic_are_chosen(tmp_path):
    path = robomimic(tmp_path / "image.hdf5", image=True)
    refused(path, "agentview_image holds images", "--observations object,robot0_eef_pos")
    refused(path, "agentview_image holds images", columns={"observations": "agentview_image"})
    data = open_dataset(path, columns={"observations": "robot0_*", "timeout": "dones"})
    assert data.obs_dim == 3
    assert not data.episodes.terminated.any()
    assert len(data) == 8  # next observations are recorded
    assert open_dataset(path, columns={"observations": "states"}).obs_dim == 5
    path = robomimic(tmp_path / "raw.hdf5", leave=("obs", "next_obs", "rewards"))
    refused(path, "must have observations (obs)", "dataset_states_to_obs.py")
    refused(path, "must have rewards", columns={"observations": "states"})
    data = open_dataset(path, columns={"observations": "states", "reward": "dones"})
    assert data.rows().reward.tolist() == [0, 0, 1, 1, 1, 0, 1, 1]


def test_a_robomimic_file_that_is_not_whole(tmp_path):
    path = robomimic(tmp_path / "x.hdf5")
    with h5py.File(path, "a") as file:
        del file["data/demo_2/rewards"]
        file["data/demo_2/rewards"] = np.zeros(5)
    refused(path, "demo_2: rewards must have 1 rows, as actions has, got 5")
    with h5py.File(path, "a") as file:
        del file["data/demo_2/rewards"]
    refused(path, "has no rewards")
    with h5py.File(tmp_path / "y.hdf5", "w") as file:
        file["data/x"] = 1
    refused(tmp_path / "y.hdf5", "must hold demonstrations")


# ------------------------------------------------------------------------------------------- recognised, not read


def test_rlds_ogbench_and_rllib_are_recognised(tmp_path):
    rlds = tmp_path / "berkeley" / "1.0.0"
    rlds.mkdir(parents=True)
    (rlds / "features.json").write_text("{}")
    (rlds / "berkeley-train.tfrecord-00000-of-00001").write_bytes(b"\0" * 16)
    refused(rlds, "is an RLDS dataset", "write its steps to Parquet")
    refused(rlds.parent, "is an RLDS dataset")
    refused(rlds / "berkeley-train.tfrecord-00000-of-00001", "is an RLDS dataset")

    logs = tmp_path / "output-worker-0.json"
    logs.write_text('{"type": "SampleBatch", "obs": "BCJNGEAA", "actions": "BCJN"}\n')
    refused(logs, "is RLlib's JSON output")
    made = columns()
    batch = {"obs": made["observations"], "new_obs": made["next_observations"], "actions": made["actions"]}
    batch |= {"rewards": made["rewards"], "terminateds": made["terminals"], "truncateds": made["timeouts"]}
    batch["eps_id"] = np.repeat([11, 12, 13], LENGTHS)
    parquet.write_table(pa.table({name: list(values) for name, values in batch.items()}), tmp_path / "batch.parquet")
    refused(tmp_path / "batch.parquet", "RLlib's sample batches", "--next-observations new_obs", "--episode eps_id")
    options = {"observations": "obs", "next_observations": "new_obs", "episode": "eps_id"}
    options |= {"terminal": "terminateds", "timeout": "truncateds"}
    data = open_dataset(tmp_path / "batch.parquet", columns=options)
    assert data.episodes.id.tolist() == [11, 12, 13]
    np.testing.assert_array_equal(data.rows().next_obs, made["next_observations"])
    parquet.write_table(pa.table({"item": [b"packed"]}), tmp_path / "episodes.parquet")
    refused(tmp_path / "episodes.parquet", "packed episodes")

    raw: dict[str, Any] = {name: made[name] for name in ("observations", "actions", "terminals")} | {
        "qpos": np.zeros((8, 3))
    }
    np.savez(tmp_path / "antmaze-large-navigate-v0.npz", **raw)
    refused(tmp_path / "antmaze-large-navigate-v0.npz", "OGBench", "terminals = 1 - masks")
    np.savez(tmp_path / "task.npz", **made, masks=1 - made["terminals"])
    refused(tmp_path / "task.npz", "OGBench")
