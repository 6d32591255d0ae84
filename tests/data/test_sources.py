"""Every format in, by what the file is; every way in which a file can be wrong."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from helpers.datasets import columns, dataset, episode, record, write_hdf5
from pyarrow import parquet

from winnow.data import store
from winnow.data.sources import open_dataset
from winnow.errors import BadInput


def refused(source: str | Path, *words: str, **options: Any) -> None:
    with pytest.raises(BadInput) as caught:
        open_dataset(source, **options)
    assert str(source) in str(caught.value)
    for word in words:
        assert word in str(caught.value)


# --------------------------------------------------------------------------------------------------------- any


def test_what_is_not_there_and_what_is_not_known_is_refused(tmp_path):
    refused(tmp_path / "nothing.hdf5", "no such file")
    odd = tmp_path / "odd.npz"
    odd.write_bytes(b"these are words and not arrays")
    refused(odd, "is not a kind of file", "D4RL HDF5", "Parquet", "Minari", "npz")
    refused(tmp_path, "is not a kind of file")


def test_the_content_decides_and_not_the_name(tmp_path):
    path = write_hdf5(tmp_path / "really.npz", columns())
    assert open_dataset(path).fingerprint == dataset().fingerprint


def test_winnows_own_file_is_mapped_and_can_be_renamed_but_not_reinterpreted(tmp_path):
    path = tmp_path / "own.bin"
    store.save(dataset(), path)
    data = open_dataset(path, name="other", environment="Hopper-v4")
    assert isinstance(data.arenas[0].obs, np.memmap)
    assert (data.meta.name, data.meta.environment) == ("other", "Hopper-v4")
    refused(path, "is a winnow dataset already", kind="bag")
    refused(path, "is a winnow dataset already", max_steps=10)


def test_options_reach_any_file_and_are_needed_to_open_it_again(tmp_path):
    path = write_hdf5(tmp_path / "x.hdf5", columns())
    data = open_dataset(path, name="x2", environment="E", action_bounds=(-2, 2))
    assert (data.meta.name, data.meta.environment, data.meta.action_low) == ("x2", "E", (-2.0, -2.0))
    assert data.path is None
    assert open_dataset(path).path == str(path)


# ------------------------------------------------------------------------------------------------------ D4RL


def test_a_new_d4rl_file_with_its_groups(tmp_path):
    more = {"infos/qpos": np.zeros((8, 2)), "metadata/algorithm": "sac", "infos/action_log_probs": np.zeros(8)}
    data = open_dataset(write_hdf5(tmp_path / "hopper-medium-v2.hdf5", columns() | more))
    assert data.fingerprint == dataset().fingerprint
    assert data.meta.name == "hopper-medium-v2"


def test_an_old_d4rl_file_has_no_timeouts(tmp_path):
    made = columns((4, 1, 3), (True, False, False))
    del made["timeouts"]
    path = write_hdf5(tmp_path / "old.hdf5", made)
    assert open_dataset(path).fingerprint == dataset().fingerprint

    del made["next_observations"]
    path = write_hdf5(tmp_path / "older.hdf5", made)
    refused(path, "--max-steps")
    assert open_dataset(path, max_steps=2).episodes.length.tolist() == [1, 2, 1, 1]


def test_a_missing_column_is_named_with_those_that_were_found(tmp_path):
    made = columns()
    del made["actions"]
    refused(
        write_hdf5(tmp_path / "x.hdf5", made), "no column for actions", "action, act", "next_observations, observations"
    )


def test_hdf5_leads_to_no_other_file(tmp_path):
    other = write_hdf5(tmp_path / "other.hdf5", columns())
    for number, link in enumerate([h5py.ExternalLink(other.name, "/rewards"), h5py.SoftLink("/elsewhere")]):
        path = write_hdf5(tmp_path / f"link{number}.hdf5", {k: v for k, v in columns().items() if k != "rewards"})
        with h5py.File(path, "a") as file:
            file["rewards"] = link
        refused(path, "rewards is a link")

    raw, path = tmp_path / "raw.bin", tmp_path / "external.hdf5"
    raw.write_bytes(b"\0" * 32)
    write_hdf5(path, {k: v for k, v in columns().items() if k != "rewards"})
    with h5py.File(path, "a") as file:
        file.create_dataset("rewards", (8,), "f4", external=[(str(raw), 0, 32)])
    refused(path, "rewards is kept in another file")

    path = tmp_path / "virtual.hdf5"
    write_hdf5(path, {k: v for k, v in columns().items() if k != "rewards"})
    layout = h5py.VirtualLayout((8,), "f4")
    layout[:] = h5py.VirtualSource(str(other), "rewards", (8,))
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset("rewards", layout)
    refused(path, "rewards is kept in another file")


def test_hdf5_holds_numbers_only(tmp_path):
    made = {k: v for k, v in columns().items() if k != "observations"}
    path = write_hdf5(tmp_path / "ragged.hdf5", made)
    with h5py.File(path, "a") as file:
        ragged = file.create_dataset("observations", (8,), h5py.vlen_dtype(np.float32))
        ragged[0] = np.zeros(2, np.float32)
    refused(path, "observations holds object", "the same count in each row")
    path = write_hdf5(tmp_path / "words.hdf5", made | {"observations": ["word"] * 8})
    refused(path, "observations holds object")
    path = write_hdf5(tmp_path / "group.hdf5", made | {"observations/a": np.zeros(8)})
    refused(path, "observations is a group")


# -------------------------------------------------------------------------------------------- npz, Parquet, CSV

ORDER = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
NAMES = [
    ("obs", "act", "rew", "next_obs", "done", "truncated"),
    ("observation", "action", "reward", "next_observation", "terminated", "timeout"),
    ("observations", "actions", "rewards", "next_observations", "terminations", "truncations"),
]


@pytest.mark.parametrize("names", NAMES)
def test_npz_under_the_usual_names(tmp_path, names):
    path = tmp_path / "x.npz"
    made = columns()
    np.savez(path, infos=np.zeros(3), **{theirs: made[mine] for mine, theirs in zip(ORDER, names, strict=True)})
    data = open_dataset(path)
    assert data.fingerprint == dataset().fingerprint
    assert not any("`done`" in note for note in data.meta.notes)


def test_what_done_was_taken_for_is_noted(tmp_path):
    made = columns()
    path = tmp_path / "x.npz"
    rest = {name: made[name] for name in ("observations", "actions", "rewards", "next_observations")}
    np.savez(path, **rest, done=made["terminals"])
    assert any("`done` was taken as terminal" in note for note in open_dataset(path).meta.notes)
    np.savez(path, **rest, done=made["terminals"] | made["timeouts"], truncated=made["timeouts"])
    data = open_dataset(path)
    assert any("2 row(s) are both `done` and timed out" in note for note in data.meta.notes)
    assert data.episodes.terminated.all()


def test_a_column_under_two_names_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, **columns(), done=np.zeros(8))
    refused(path, "`terminals` and `done` both give terminals")
    np.savez(path, **columns(), obs_0=np.zeros(8))
    refused(path, "`observations` and `obs_…` both give observations")


def test_pickles_are_refused_and_not_opened(tmp_path):
    path = tmp_path / "x.npz"
    opened: list[int] = []

    class Bomb:
        def __reduce__(self):
            return (opened.append, (1,))

    made = columns()
    made["observations"] = np.array([Bomb()] * 8, object)
    np.savez(path, **made)
    refused(path, "observations holds Python objects")
    assert not opened


def test_an_episode_column_marks_ends(tmp_path):
    path = tmp_path / "x.npz"
    made = columns((4, 1, 3), (True, False, False))
    del made["timeouts"]
    np.savez(path, **made, episode=[7, 7, 7, 7, 3, 9, 9, 9])
    assert open_dataset(path).fingerprint == dataset().fingerprint
    np.savez(path, **made, episode=[7, 7, 7, 7, 3, 7, 7, 7])
    refused(path, "episode, row 5: id 7 comes back", "sort the rows", "--kind bag")
    assert open_dataset(path, kind="bag").episodes.length.tolist() == [1] * 8
    np.savez(path, **made, episode=[7, 7])
    refused(path, "episode has 2 rows, rewards has 8")


def test_parquet_with_lists_fixed_lists_and_scalar_columns(tmp_path):
    path, made = tmp_path / "x.parquet", columns()
    lists = {name: pa.array(list(made[name])) for name in made}
    fixed = lists | {
        name: pa.FixedSizeListArray.from_arrays(pa.array(made[name].reshape(-1)), made[name].shape[1])
        for name in ("observations", "actions", "next_observations")
    }
    flags = {name: lists[name] for name in ("rewards", "terminals", "timeouts")}
    wide = [(name, i) for name in ("observations", "actions", "next_observations") for i in range(made[name].shape[1])]
    underscore = {f"{name}_{i}": made[name][:, i] for name, i in wide}
    dots = {f"{name.removesuffix('s')}.{i}": made[name][:, i] for name, i in wide}
    for table in (lists, fixed, flags | underscore, flags | dots):
        parquet.write_table(pa.table(table), path, row_group_size=3)
        assert open_dataset(path).fingerprint == dataset().fingerprint, list(table)


def test_parquet_rows_that_do_not_fit(tmp_path):
    path, made = tmp_path / "x.parquet", {name: list(column) for name, column in columns().items()}

    def write(**changes: Any) -> None:
        parquet.write_table(pa.table(made | changes), path)

    write(observations=[[1.0, 2.0]] * 5 + [[1.0]] + [[1.0, 2.0]] * 2)
    refused(path, "observations, row 5: has 1 numbers, row 0 has 2")
    write(rewards=[1.0, 2.0, None, 4.0, 5.0, 6.0, 7.0, 8.0])
    refused(path, "rewards, row 2: nan is not a finite number")
    write(actions=[[1.0, None]] * 8)
    refused(path, "actions must be a plain list of numbers")
    write(actions=[[[1.0]]] * 8)
    refused(path, "actions must be a plain list of numbers")
    write(rewards=["a"] * 8)
    refused(path, "rewards holds object")


def test_csv_with_a_source_and_an_episode_column(tmp_path):
    path = tmp_path / "log.csv"
    lines = [f"{i},{i / 2},{0.5},{i},{i == 1},{'ab'[i > 1]},{'night' if i > 1 else 'day'}" for i in range(5)]
    path.write_text("\n".join(["obs_0,obs_1,action_0,reward,terminal,episode,source", *lines]))
    data = open_dataset(path)
    assert data.episodes.length.tolist() == [2, 2]  # the second episode timed out: its last row has no successor
    assert data.meta.sources == ("day", "night")
    assert data.episodes.source.tolist() == [0, 1]
    assert data.rows().obs[3].tolist() == [3, 1.5]
    path.write_text("obs_0,obs_2,action,reward,terminal\n1,2,3,4,1\n")
    refused(path, "obs: number 1 is missing between obs_0, obs_2")


# ------------------------------------------------------------------------------------------------------ damage


@pytest.mark.parametrize("kind", ["hdf5", "npz", "parquet", "safetensors", "csv"])
def test_a_file_that_was_cut_short_or_scrambled_is_bad_input_and_nothing_else(tmp_path, kind):
    whole = tmp_path / f"x.{kind}"
    if kind == "safetensors":
        store.save(dataset(), whole)
    elif kind == "hdf5":
        write_hdf5(whole, columns())
    elif kind == "npz":
        np.savez(whole, **columns())
    elif kind == "parquet":
        parquet.write_table(pa.table({name: list(column) for name, column in columns().items()}), whole)
    else:
        whole.write_text("obs,action,reward,done,next_obs\n" + "1,0.5,2,0,1\n" * 20 + "1,0.5,2,1,1\n")
    assert len(open_dataset(whole)) > 0
    good, rng, bad = whole.read_bytes(), np.random.default_rng(0), 0
    for attempt in range(60):
        spoiled = bytearray(good)
        if attempt % 2:
            spoiled = spoiled[: rng.integers(len(good))]
        else:
            for place in rng.integers(min(len(good), 2000), size=5):
                spoiled[place] = rng.integers(256)
        whole.write_bytes(spoiled)
        try:
            open_dataset(whole)
        except BadInput as error:
            bad += str(whole) in str(error)
    assert bad > 20


def test_a_zip_that_holds_no_arrays(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("readme.txt", "words")
    refused(path, "no column for observations", "found: readme.txt")


# ------------------------------------------------------------------------------------------------------ Minari


def minari_file(home: Path, identity: str) -> Path:
    return home / identity / "data" / "main_data.hdf5"


@pytest.mark.parametrize("data_format", ["hdf5", "arrow", "parquet"])
def test_three_minari_episodes_of_different_lengths_stay_aligned_row_by_row(minari_home, data_format):
    ends = [(3, "terminal"), (1, "timeout"), (5, "neither")]
    episodes = [episode(length, how, number, number or None) for number, (length, how) in enumerate(ends)]
    record("toy/three-v0", episodes, data_format=data_format)
    data = open_dataset("minari:toy/three-v0")
    rows = data.rows()
    number, step = np.repeat([0, 1, 2], [3, 1, 5]), np.array([0, 1, 2, 0, 0, 1, 2, 3, 4])
    np.testing.assert_array_equal(data.episode, number)
    np.testing.assert_array_equal(data.step, step)
    np.testing.assert_array_equal(rows.obs, np.stack([number, step, 100 * number + step], axis=1))
    np.testing.assert_array_equal(rows.next_obs, np.stack([number, step + 1, 100 * number + step + 1], axis=1))
    np.testing.assert_allclose(rows.action, np.stack([number / 20, step / 10], axis=1), rtol=1e-6)
    np.testing.assert_array_equal(rows.reward, 100 * number + step)
    assert np.flatnonzero(rows.terminal).tolist() == [2]
    assert data.episodes.terminated.tolist() == [True, False, False]
    assert data.episodes.seed.tolist() == [-1, 1, 2]
    assert (data.meta.action_low, data.meta.action_high) == ((-1.0, -1.0), (1.0, 1.0))
    assert data.meta.name == "toy/three-v0"
    folder = minari_home / "toy" / "three-v0"
    assert open_dataset(folder).fingerprint == open_dataset(folder / "data").fingerprint == data.fingerprint


def test_minari_episodes_come_in_the_order_of_their_numbers(minari_home):
    record("many-v0", [episode(1, number=number) for number in range(12)])
    assert open_dataset("minari:many-v0").rows().obs[:, 0].tolist() == list(range(12))
    assert open_dataset(minari_file(minari_home, "many-v0")).rows().obs[:, 0].tolist() == list(range(12))


def test_minaris_environment_is_known_without_building_it(minari_home):
    import gymnasium

    record("pendulum-v0", [episode(2)])
    path = minari_home / "pendulum-v0" / "data" / "metadata.json"
    metadata = json.loads(path.read_text()) | {"env_spec": gymnasium.spec("Pendulum-v1").to_json()}
    metadata["env_spec"] = metadata["env_spec"].replace("gymnasium.envs.classic_control", "no_such_module")
    path.write_text(json.dumps(metadata))
    assert open_dataset("minari:pendulum-v0").meta.environment == "Pendulum-v1"


def test_nested_spaces_are_flattened_in_gymnasiums_order(minari_home):
    from gymnasium import spaces

    space = spaces.Dict(
        {
            "z": spaces.Box(-1, 1, (2,), np.float64),
            "a": spaces.Dict({"y": spaces.Box(-1, 1, (2, 2), np.float64), "b": spaces.Discrete(3, start=1)}),
            "m": spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2))),
        }
    )
    space.seed(0)
    seen = [space.sample() for _ in range(5)]
    nested = {
        "z": np.stack([one["z"] for one in seen]),
        "a": {"y": np.stack([one["a"]["y"] for one in seen]), "b": np.stack([one["a"]["b"] for one in seen])},
        "m": tuple(np.stack([one["m"][i] for one in seen]) for i in range(2)),
    }
    record("nested-v0", [episode(4) | {"observations": nested}], observation=space)
    expected = np.stack([np.asarray(spaces.flatten(space, one)) for one in seen]).astype(np.float32)
    rows = open_dataset("minari:nested-v0").rows()
    np.testing.assert_array_equal(rows.obs, expected[:-1])
    np.testing.assert_array_equal(rows.next_obs, expected[1:])


def test_without_spaces_the_stored_arrays_decide(minari_home):
    from gymnasium import spaces

    space = spaces.Dict({"b": spaces.Box(-9, 9, (1,)), "a": spaces.Box(-9, 9, (2,))})
    nested = {"b": np.full((3, 1), 7, np.float32), "a": np.full((3, 2), 5, np.float32)}
    record("bare-v0", [episode(2) | {"observations": nested}], observation=space)
    path = minari_home / "bare-v0" / "data" / "metadata.json"
    metadata = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in metadata.items() if not k.endswith("_space")}))
    data = open_dataset("minari:bare-v0")
    assert data.rows().obs.tolist() == [[5, 5, 7]] * 2
    assert any("action bounds not given" in note for note in data.meta.notes)


def test_minari_data_that_winnow_can_not_use(minari_home):
    from gymnasium import spaces

    refused("minari:none-v0", "no such dataset", "minari download none-v0")
    choices = episode(2) | {"actions": np.array([[0, 1], [1, 0]])}
    record("several-v0", [choices], action=spaces.MultiDiscrete([2, 2]))
    refused("minari:several-v0", "continuous actions", "one choice")
    record("words-v0", [episode(2) | {"observations": ["a", "b", "c"]}], observation=spaces.Text(3))
    refused("minari:words-v0", "observations have the space")
    record("short-v0", [episode(2), episode(3) | {"observations": np.zeros((3, 3))}])
    refused("minari:short-v0", "observations, episode 1: has 3 entries for 3 steps; it must have 4")
    record("wide-v0", [episode(2)], observation=spaces.Box(-1, 1, (5,)))
    refused("minari:wide-v0", "observations have 3 numbers a step, their space has 5")


def test_minari_leads_to_no_other_file(minari_home):
    record("linked-v0", [episode(2), episode(2, number=1)])
    path = minari_file(minari_home, "linked-v0")
    with h5py.File(path, "a") as file:
        del file["episode_1/rewards"]
    refused("minari:linked-v0", "rewards, episode 1: is missing")
    with h5py.File(path, "a") as file:
        file["episode_1/rewards"] = h5py.ExternalLink("elsewhere.hdf5", "/rewards")
    refused("minari:linked-v0", "rewards, episode 1: is a link")
    raw = minari_home / "raw.bin"
    raw.write_bytes(b"\0" * 8)
    with h5py.File(path, "a") as file:
        del file["episode_1/rewards"]
        file.create_dataset("episode_1/rewards", (2,), "f4", external=[(str(raw), 0, 8)])
    refused("minari:linked-v0", "rewards, episode 1: is kept in another file")
    with h5py.File(path, "a") as file:
        del file["episode_1/rewards"]
        file.create_dataset("episode_1/rewards", (2,), h5py.vlen_dtype(np.float32))
    refused("minari:linked-v0", "rewards, episode 1: holds object")
    (path.parent / "metadata.json").unlink()
    refused(path, "inside of a Minari dataset")


def test_progress_is_told(minari_home):
    record("told-v0", [episode(1)] * 3)
    told: list[tuple[int, int]] = []
    open_dataset("minari:told-v0", progress=lambda done, total: told.append((done, total)))
    assert told[0] == (0, 3)
    assert told[-1] == (3, 3)


def test_what_a_file_holds_is_checked_and_the_file_is_named(tmp_path):
    made = columns()
    made["rewards"][2] = np.nan
    path = write_hdf5(tmp_path / "x.hdf5", made)
    refused(path, "x.hdf5: rewards, row 2: nan is not a finite number")


# ------------------------------------------------------------------------------------ Minari's dictionaries and images


def goals(spaces: Any) -> tuple[Any, dict[str, Any]]:
    """A space with two vectors and a grid, and three observations of an episode of two steps."""
    box = spaces.Box(-9, 9, (2,), np.float64)
    space = spaces.Dict({"observation": box, "desired_goal": box, "grid": spaces.Box(-9, 9, (2, 2), np.float64)})
    nested = {
        "observation": np.full((3, 2), 1.0),
        "desired_goal": np.full((3, 2), 2.0),
        "grid": np.full((3, 2, 2), 3.0),
    }
    return space, nested


def test_a_dictionary_is_flattened_with_a_note_and_by_the_keys_that_were_chosen(minari_home):
    from gymnasium import spaces

    space, nested = goals(spaces)
    record("goal-v0", [episode(2) | {"observations": nested}], observation=space)
    data = open_dataset("minari:goal-v0")
    assert data.rows().obs[0].tolist() == [2, 2, 3, 3, 3, 3, 1, 1]
    assert data.meta.obs_names[:3] == ("desired_goal_0", "desired_goal_1", "grid_0")
    order = "observations were flattened, in this order: desired_goal (2), grid (4 from 2 × 2), observation (2)"
    assert order in data.meta.notes
    data = open_dataset("minari:goal-v0", columns={"observations": "observation,desired*"})
    assert data.rows().obs[0].tolist() == [1, 1, 2, 2]
    assert open_dataset("minari:goal-v0", columns={"drop": "grid,desired_goal"}).meta.obs_names == (
        "observation_0",
        "observation_1",
    )
    refused("minari:goal-v0", "--observations must match a column, got 'goal'", columns={"observations": "goal"})
    refused("minari:goal-v0", "no key of the observation is left", columns={"drop": "*"})
    refused("minari:goal-v0", "name only the keys of the observation", columns={"reward": "rewards"})
    record("plain-v0", [episode(2)])
    assert not any("flattened" in note for note in open_dataset("minari:plain-v0").meta.notes)


@pytest.mark.parametrize("has_spaces", [True, False])
def test_images_and_text_of_minari_are_refused_with_the_keys_to_use(minari_home, has_spaces):
    from gymnasium import spaces

    image = spaces.Box(0, 255, (4, 4, 3), np.uint8)
    pictures = np.zeros((3, 4, 4, 3), np.uint8)
    space = spaces.Dict({"image": image, "direction": spaces.Box(0, 3, (1,), np.float32), "mission": spaces.Text(9)})
    nested = {"image": pictures, "direction": np.ones((3, 1), np.float32), "mission": ["go"] * 3}
    record("grid-v0", [episode(2) | {"observations": nested}], observation=space)
    record("image-v0", [episode(2) | {"observations": pictures}], observation=image)
    if not has_spaces:  # without spaces, what is stored decides
        for name in ("grid-v0", "image-v0"):
            path = minari_home / name / "data" / "metadata.json"
            metadata = json.loads(path.read_text())
            path.write_text(json.dumps({k: v for k, v in metadata.items() if k != "observation_space"}))
    refused("minari:grid-v0", "observations/image holds images (shape [4, 4, 3])", "--observations direction")
    refused("minari:grid-v0", "observations/image holds images", columns={"observations": "image"})
    assert open_dataset("minari:grid-v0", columns={"observations": "direction"}).meta.obs_names == ("direction",)
    refused("minari:image-v0", "observations holds images", "record them as vectors")
    if has_spaces:
        refused("minari:grid-v0", "observations/mission have the space Text", columns={"drop": "image"})
