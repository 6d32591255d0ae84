"""Columns named at import: patterns, what is guessed and ignored, missing values, text, rewards made of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from winnow.data import store
from winnow.data.assemble import reward_from_progress, reward_from_success
from winnow.data.columns import Columns, read_columns_file, select
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.plug import columns as plug_columns

HEAD = "batch,temp_1,temp_2,valve_1,set_1,yield,tripped,operator,progress"
PLANT = {"observations": "temp_*, valve_1", "actions": "set_*", "reward": "yield", "episode": "batch"}


def table(path: Path, changes: dict[tuple[int, str], str] | None = None, rows: int = 10) -> Path:
    """A log of two batches, α of six rows and β of four; some cells replaced."""
    names = HEAD.split(",")
    lines = []
    for row in range(rows):
        batch = "αβ"[row >= 6]
        cells = [batch, row, 10 * row, 100 * row, row / 10, row + 0.5, int(row == 5), "Ann", row**2]
        line = dict(zip(names, map(str, cells), strict=True))
        line |= {name: text for (at, name), text in (changes or {}).items() if at == row}
        lines.append(",".join(line.values()))
    path.write_text("\n".join([HEAD, *lines]))
    return path


def refused(source: Path, *fragments: str, **options: Any) -> str:
    with pytest.raises(BadInput) as caught:
        open_dataset(source, **options)
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert str(source) in str(caught.value)
    return str(caught.value)


def test_columns_are_named_by_patterns_and_the_rest_is_reported(tmp_path):
    path = table(tmp_path / "log.csv")
    data = open_dataset(path, columns=PLANT | {"terminal": "tripped", "drop": "operator"})
    assert data.meta.obs_names == ("temp_1", "temp_2", "valve_1")
    assert data.meta.action_names == ("set_1",)
    np.testing.assert_array_equal(data.rows().obs, [[i, 10 * i, 100 * i] for i in [0, 1, 2, 3, 4, 5, 6, 7, 8]])
    np.testing.assert_allclose(data.rows().reward, np.arange(9) + 0.5)
    assert data.episodes.id.tolist() == ["α", "β"]
    assert data.episodes.terminated.tolist() == [True, False]
    (note,) = [note for note in data.meta.notes if note.startswith("columns")]
    assert "named: observations temp_1, temp_2, valve_1; actions set_1" in note
    assert "ignored: progress" in note
    assert "dropped: operator" in note
    store.save(data, tmp_path / "log.st")
    assert store.load(tmp_path / "log.st").meta == data.meta
    assert (
        open_dataset(path, columns=Columns.of(PLANT | {"terminal": "tripped", "drop": ["operator"]})).meta == data.meta
    )


def test_what_is_not_named_is_guessed_and_said(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("speed,action,reward,episode,terminated\n" + "".join(f"{i},0.{i},1,7,{i // 3}\n" for i in range(4)))
    data = open_dataset(path, columns={"observations": "speed"})
    (note,) = [note for note in data.meta.notes if note.startswith("columns")]
    assert "guessed from their names: actions action; rewards reward; terminals terminated; episode episode" in note
    # A star takes everything that has no other meaning.
    assert open_dataset(path, columns={"observations": "*"}).meta.obs_names == ("speed",)
    refused(path, "no column for observations", "--observations", "found: speed")


def names_of(**choice: Any) -> dict[str, list[str]]:
    return select(HEAD.split(","), Columns.of(choice), "log").fields


def test_the_most_exact_name_wins_and_a_tie_is_refused():
    fields = names_of(observations="temp_*,*", actions="temp_2", reward="yield", episode="batch", drop="operator")
    assert fields["actions"] == ["temp_2"]
    assert "temp_2" not in fields["observations"]
    assert names_of(observations="yield,temp_1", reward="yield")["rewards"] == ["yield"]  # spelled out twice: both
    with pytest.raises(BadInput, match="column temp_1 matches both observations and actions; spell it out"):
        names_of(observations="temp_*", actions="t*_*")
    with pytest.raises(BadInput, match="--observations must match a column, got 'tmp_1'; did you mean temp_1"):
        names_of(observations="tmp_1")
    with pytest.raises(BadInput, match="rewards must be one column, got temp_1, temp_2"):
        names_of(reward="temp_*")
    with pytest.raises(BadInput, match="--drop must match a column, got 'zzz'"):
        names_of(drop="zzz")
    with pytest.raises(BadInput, match="reward and reward_from both give the reward"):
        names_of(reward="yield", reward_from="progress")


def test_next_observations_go_with_the_observations_of_their_names():
    names = ["b", "a", "next_a", "next_b", "action", "reward", "done"]
    fields = select(names, Columns.of({"observations": "a,b", "next_observations": "next_*"}), "x").fields
    assert fields["next_observations"] == ["next_a", "next_b"]
    fields = select(names, Columns.of({"observations": "b,a", "next_observations": "next_*"}), "x").fields
    assert fields["next_observations"] == ["next_b", "next_a"]
    with pytest.raises(BadInput, match="as many columns as observations, got 1 and 2"):
        select(names, Columns.of({"observations": "a,b", "next_observations": "next_a"}), "x")


def test_a_toml_file_says_the_same(tmp_path):
    file = tmp_path / "columns.toml"
    file.write_text('observations = ["temp_*", "valve_1"]\nreward = "yield"\nnan = "drop"\nnext-observations = "n_*"\n')
    assert Columns.of(read_columns_file(file)) == Columns(
        observations=("temp_*", "valve_1"), reward="yield", nan="drop", next_observations=("n_*",)
    )
    for text, message in (
        ("rewards = 3", "rewards must be a string"),
        ('rewards = "x"', "'rewards' must be one of observations"),
        ("x = [", "is not TOML"),
        ('nan = "zero"', "nan must be one of refuse, drop, forward-fill"),
    ):
        file.write_text(text)
        with pytest.raises(BadInput, match=message):
            read_columns_file(file)
    with pytest.raises(BadInput, match="can't be read"):
        read_columns_file(tmp_path / "none.toml")


# ------------------------------------------------------------------------------------------------- missing values

HOLES = {(1, "temp_2"): "", (2, "temp_2"): "nan", (8, "valve_1"): ""}


def test_missing_values_are_refused_by_column_count_and_row(tmp_path):
    path = table(tmp_path / "log.csv", HOLES)
    message = refused(path, "--nan drop or --nan forward-fill", columns=PLANT)
    assert "temp_2, row 1: nan is not a finite number; the column has 2 such values (rows 1, 2)" in message
    assert "other columns with such values: valve_1 (1)" in message
    assert len(open_dataset(path, columns=PLANT | {"observations": "temp_1"})) == 8  # the columns are not used


def test_drop_splits_an_episode_and_joins_no_rows(tmp_path):
    path = table(tmp_path / "log.csv", HOLES)
    data = open_dataset(path, columns=PLANT | {"terminal": "tripped", "nan": "drop"})
    # α loses rows 1 and 2, and row 0 with them, whose successor is gone; β loses row 8, and rows 7 and 9.
    assert data.source_row.tolist() == [3, 4, 5, 6]
    assert data.episodes.id.tolist() == ["α", "β"]
    assert data.episodes.terminated.tolist() == [True, False]
    assert data.step.tolist() == [3, 4, 5, 0]
    rows = data.rows()
    np.testing.assert_array_equal(rows.next_obs[~rows.terminal, 0], rows.obs[~rows.terminal, 0] + 1)
    assert any("--nan drop" in note and "temp_2 2 (rows 1, 2)" in note for note in data.meta.notes)
    assert any("3 rows were left out of 2 episodes" in note for note in data.meta.notes)


def test_forward_fill_stays_inside_an_episode(tmp_path):
    path = table(tmp_path / "log.csv", HOLES | {(6, "temp_1"): "", (0, "set_1"): ""})
    data = open_dataset(path, columns=PLANT | {"nan": "forward-fill"})
    rows = data.rows()
    # The first rows of α and β have nothing before them.
    assert data.source_row.tolist() == [1, 2, 3, 4, 7, 8]
    assert data.step.tolist() == [1, 2, 3, 4, 1, 2]
    assert rows.obs[:, 1].tolist() == [0, 0, 30, 40, 70, 80]
    assert rows.obs[:, 2].tolist() == [100, 200, 300, 400, 700, 700]
    assert any("2 rows that had no row before them were left out" in note for note in data.meta.notes)
    path = table(tmp_path / "log.csv", {(3, "yield"): ""})
    refused(path, "the reward is missing in 1 rows (row 3)", "--nan drop", columns=PLANT | {"nan": "forward-fill"})


def test_holes_in_recorded_next_observations_split_nothing_else(tmp_path):
    made = {
        "obs": np.arange(8.0)[:, None],
        "next_obs": np.arange(1, 9.0)[:, None],
        "action": np.zeros((8, 1)),
        "reward": np.ones(8),
        "done": np.array([0, 0, 0, 1, 0, 0, 0, 1]),
    }
    made["obs"][2] = np.nan
    made["next_obs"][1] = np.nan
    np.savez(tmp_path / "x.npz", **made)
    data = open_dataset(tmp_path / "x.npz", columns={"nan": "forward-fill"})
    assert data.episodes.length.tolist() == [4, 4]
    assert data.rows().obs[:, 0].tolist() == [0, 1, 1, 3, 4, 5, 6, 7]
    assert data.rows().next_obs[:, 0].tolist() == [1, 1, 3, 4, 5, 6, 7, 8]
    data = open_dataset(tmp_path / "x.npz", columns={"nan": "drop"})
    assert data.source_row.tolist() == [0, 3, 4, 5, 6, 7]
    bag = open_dataset(tmp_path / "x.npz", kind="bag", columns={"nan": "drop"})
    assert bag.source_row.tolist() == [0, 3, 4, 5, 6, 7]


def test_a_time_limit_counts_the_steps_before_rows_were_dropped(tmp_path):
    made = {"obs": np.arange(8.0)[:, None], "action": np.zeros((8, 1)), "reward": np.ones(8), "done": np.zeros(8)}
    made["obs"][1] = np.nan
    np.savez(tmp_path / "x.npz", **made)
    data = open_dataset(tmp_path / "x.npz", max_steps=4, columns={"nan": "drop"})
    assert data.source_row.tolist() == [2, 4, 5, 6]
    assert data.episodes.origin.tolist() == [0, 1]
    assert data.episodes.offset.tolist() == [2, 0]


def test_text_is_named_with_what_to_do(tmp_path):
    path = table(tmp_path / "log.csv")
    refused(
        path, "operator, row 0: must be a number, got 'Ann'", "--drop operator", columns=PLANT | {"observations": "*"}
    )
    data = open_dataset(path, columns=PLANT | {"observations": "*", "drop": "operator"})
    assert data.meta.obs_names == ("temp_1", "temp_2", "valve_1", "tripped", "progress")
    # A word far down makes the column text: that matters only if it is used.
    path = table(tmp_path / "long.csv", {(40_000, "valve_1"): "stuck"}, rows=50_000)
    refused(path, "valve_1, row 40000: must be a number, got 'stuck'", columns=PLANT)
    assert len(open_dataset(path, columns=PLANT | {"observations": "temp_*"})) == 49_998


# --------------------------------------------------------------------------------------------------------- rewards


def test_a_reward_of_progress_is_its_change(tmp_path):
    path = table(tmp_path / "log.csv")
    choice = {name: value for name, value in PLANT.items() if name != "reward"} | {"reward_from": "progress"}
    data = open_dataset(path, columns=choice)
    assert data.rows().reward.tolist() == [1, 3, 5, 7, 9, 13, 15, 17]
    assert any("change of progress" in note for note in data.meta.notes)
    last = np.array([0, 0, 1, 0, 1], bool)
    assert reward_from_progress(np.array([1.0, 2, 5, 0, 4]), last).tolist() == [1, 3, 0, 4, 0]


def test_a_reward_of_success_is_one_a_successful_episode():
    last = np.array([0, 0, 1, 0, 0, 1, 0, 1], bool)
    assert reward_from_success(np.array([0, 1, 1, 1, 1, 1, 0, 0]), last).tolist() == [0, 1, 0, 0, 0, 1, 0, 0]


def test_files_and_batches_share_one_table_of_names(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "plug.md").read_text("utf-8")
    for field, names in plug_columns.NAMES.items():
        assert names[0] == field
        assert f"| {' '.join(f'`{name}`' for name in names)} |" in page
    made = {"states": np.zeros((3, 2)), "actions": np.zeros((3, 1)), "rewards": np.ones(3), "dones": [0, 0, 1]}
    made["next_states"] = np.zeros((3, 2))
    np.savez(tmp_path / "x.npz", **made)
    assert open_dataset(tmp_path / "x.npz").fingerprint == plug_columns.as_dataset(made).fingerprint
