"""Rows, episodes, and every check on the way in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.datasets import Columns, columns, dataset

from winnow.data.arrays import from_arrays
from winnow.data.dataset import Meta, combine
from winnow.errors import BadInput


def test_rows_keep_their_order_their_successor_and_their_episode():
    made = columns((4, 1, 3), (True, False, False))
    data = from_arrays(**made)
    rows = data.rows()
    for mine, theirs in zip(
        rows, ("observations", "actions", "rewards", "next_observations", "terminals"), strict=True
    ):
        np.testing.assert_array_equal(mine, made[theirs])
    assert data.episode.tolist() == [0, 0, 0, 0, 1, 2, 2, 2]
    assert data.step.tolist() == [0, 1, 2, 3, 0, 0, 1, 2]
    assert data.episodes.terminated.tolist() == [True, False, False]
    assert data.arenas[0].slots == 8 + 3  # one more slot an episode
    np.testing.assert_allclose(
        data.returns, [made["rewards"][a:b].sum() for a, b in ((0, 4), (4, 5), (5, 8))], rtol=1e-6
    )
    np.testing.assert_array_equal(data.start_obs, made["observations"][[0, 4, 5]])


def test_some_rows_are_the_same_as_those_of_all():
    data = dataset()
    some = np.array([6, 0, 3])
    for part, whole in zip(data.rows(some), data.rows(), strict=True):
        np.testing.assert_array_equal(part, whole[some])


def test_moments_are_those_of_the_rows_and_not_of_final_observations():
    data = dataset((40, 2), (True, False))
    obs = data.rows().obs
    mean, std = data.obs_moments
    np.testing.assert_allclose(mean, obs.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(std, obs.std(axis=0), rtol=1e-5)


def test_without_next_observations_a_timeout_costs_its_last_row():
    made = columns((4, 2), (True, False))
    del made["next_observations"]
    data = from_arrays(**made)
    assert data.episodes.length.tolist() == [4, 1]
    np.testing.assert_array_equal(data.rows().next_obs[4], made["observations"][5])
    assert any("1 row(s) at a timeout" in note for note in data.meta.notes)


def test_an_old_file_without_timeouts_finds_them_where_the_next_observation_is_not_the_next_row():
    made = columns((4, 1, 3), (True, False, False))
    del made["timeouts"]
    assert from_arrays(**made).episodes.length.tolist() == [4, 1, 3]


def test_max_steps_cuts_what_has_no_other_mark():
    made = columns((2, 7), (True, False))
    for name in ("timeouts", "next_observations"):
        del made[name]
    data = from_arrays(**made, max_steps=3)  # rows 2-4, 5-7 and 8; each cut costs its last row
    assert data.episodes.length.tolist() == [2, 2, 2]
    assert data.episodes.terminated.tolist() == [True, False, False]


def test_a_bag_holds_every_row_by_itself():
    made = columns((3, 2), (True, False))
    order = np.array([4, 0, 2, 1, 3])
    bag = from_arrays(**{name: column[order] for name, column in made.items()}, kind="bag")
    assert not bag.has_episodes
    np.testing.assert_array_equal(bag.rows().next_obs, made["next_observations"][order])
    np.testing.assert_array_equal(bag.rows().terminal, made["terminals"][order])
    assert len(bag.start_slot) == 5


def test_a_continuing_recording_is_one_piece_unless_it_was_interrupted():
    made = columns((9,), (False,))
    del made["timeouts"], made["terminals"]
    assert from_arrays(**made, kind="continuing").episodes.length.tolist() == [9]
    made["next_observations"][3] += 1
    broken = from_arrays(**made, kind="continuing")
    assert broken.episodes.length.tolist() == [4, 5]
    np.testing.assert_array_equal(broken.rows().next_obs, made["next_observations"])


def test_an_interruption_that_timeouts_do_not_mark_keeps_its_next_observation_too():
    made = columns((9,), (False,))
    made["next_observations"][3] += 1
    data = from_arrays(**made, kind="continuing")
    np.testing.assert_array_equal(data.rows().next_obs, made["next_observations"])


def test_values_by_row_become_those_of_the_episode_they_begin():
    made = columns((4, 1, 3), (True, False, False))
    data = from_arrays(**made, per_row={"seed": np.arange(10, 18), "offset": np.arange(8)})
    assert data.episodes.seed.tolist() == [10, 14, 15]
    assert data.episodes.offset.tolist() == [0, 4, 5]


def test_ends_are_timeouts_unless_they_are_terminal():
    made = columns((4, 1, 3), (True, False, False))
    made["ends"] = made["terminals"] | made.pop("timeouts")
    data = from_arrays(**made)
    assert data.episodes.length.tolist() == [4, 1, 3]
    assert data.episodes.terminated.tolist() == [True, False, False]


def test_rewards_of_one_column_are_rewards():
    made = columns()
    made["rewards"] = made["rewards"][:, None]
    np.testing.assert_array_equal(from_arrays(**made).reward, made["rewards"][:, 0])


def spoil(name: str, row: Any, value: float) -> Columns:
    made = {key: column.astype(np.float64) for key, column in columns().items()}
    made[name][row] = value
    return made


@pytest.mark.parametrize(
    ("made", "more", "words"),
    [
        (spoil("observations", (5, 1), np.nan), {}, ("observations, row 5, column 1", "nan", "remove or repair")),
        (spoil("next_observations", (2, 0), np.inf), {}, ("next_observations, row 2, column 0", "inf")),
        (spoil("rewards", 3, -np.inf), {}, ("rewards, row 3", "-inf")),
        (spoil("rewards", 3, 1e39), {}, ("rewards, row 3", "1e+39")),  # finite, but not in float32
        (spoil("terminals", 1, 2), {}, ("terminals, row 1", "neither 0 nor 1")),
        (spoil("timeouts", 6, 0.5), {}, ("timeouts, row 6", "neither 0 nor 1")),
        (spoil("actions", (4, 1), 1.5), {"action_bounds": (-1, 1)}, ("actions, row 4, column 1", "[-1.0, 1.0]")),
        (columns(), {"action_bounds": ([-1, -1, -1], [1, 1, 1])}, ("action bounds have 3", "2 columns")),
        (columns(), {"action_bounds": (1, -1)}, ("action bounds", "rising")),
        (columns(), {"action_bounds": (-np.inf, 1)}, ("action bounds", "finite")),
        (columns(), {"max_steps": 0}, ("max_steps must be at least 1, got 0",)),
        (columns(), {"kind": "sack"}, ("got 'sack'", "bag")),
        (columns(), {"kind": "continuing"}, ("terminals, row 3", "no terminal")),
        (spoil("next_observations", (1, 0), 9), {}, ("next_observations, row 1", "row 2", "--kind bag")),
        (columns() | {"observations": np.zeros((7, 3))}, {}, ("observations has 7 rows, rewards has 8",)),
        (columns() | {"terminals": np.zeros(9)}, {}, ("terminals has 9 rows, rewards has 8",)),
        (columns() | {"rewards": np.zeros((8, 2))}, {}, ("got shape [8, 2]", "one number a row")),
        (columns() | {"rewards": np.float32(1)}, {}, ("got shape []",)),
        (columns() | {"observations": 5}, {}, ("observations has shape []",)),
        (columns() | {"observations": np.zeros((8, 2, 2))}, {}, ("observations has shape [8, 2, 2]", "flatten")),
        (columns() | {"next_observations": np.zeros((8, 4))}, {}, ("next_observations has 4 columns", "has 3")),
        (columns() | {"actions": np.full((8, 2), "left")}, {}, ("actions holds", "must hold numbers")),
        (columns() | {"timeouts": np.full(8, "no")}, {}, ("timeouts holds", "0 or 1")),
        ({key: column[:0] for key, column in columns().items()}, {}, ("no rows",)),
        (columns(), {"per_row": {"seed": np.zeros(3)}}, ("seed has 3 rows, rewards has 8",)),
    ],
)  # fmt: skip
def test_bad_input_names_the_field_the_row_and_what_to_do(made, more, words):
    with pytest.raises(BadInput) as caught:
        from_arrays(**made, **more, where="some.file")
    assert str(caught.value).startswith("some.file: ")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("left_out", "more", "words"),
    [
        (("terminals", "timeouts"), {}, ("no column says where episodes end", "--kind continuing")),
        (("timeouts", "next_observations"), {}, ("--max-steps",)),
        (("next_observations",), {"kind": "bag"}, ("unordered rows need next_observations",)),
    ],
)
def test_a_missing_column_is_asked_for(left_out, more, words):
    made = {name: column for name, column in columns().items() if name not in left_out}
    with pytest.raises(BadInput) as caught:
        from_arrays(**made, **more)
    for word in words:
        assert word in str(caught.value)


def test_rows_without_any_successor_are_refused():
    made = columns((1, 1), (False, False))
    del made["next_observations"]
    with pytest.raises(BadInput, match="no row has a successor"):
        from_arrays(**made)


def test_a_view_copies_no_row_and_compacting_keeps_them_all():
    a, b = dataset(seed=1), dataset((5, 2), (False, True), seed=2)
    both = combine({"a": a, "b": b}).select(np.array([4, 0, 3]))
    assert both.arenas[0] is a.arenas[0]
    assert both.arenas[1] is b.arenas[0]
    assert both.source.tolist() == [1, 1] + [0] * 4 + [1] * 5
    flat = both.compact()
    assert flat.arenas[0].slots == len(both) + 3
    for before, after in zip(both.rows(), flat.rows(), strict=True):
        np.testing.assert_array_equal(before, after)
    assert flat.fingerprint == both.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made["rewards"].__setitem__(0, 7),
        lambda made: made["terminals"].__setitem__(7, True) or made["timeouts"].__setitem__(7, False),
        lambda made: made["next_observations"].__setitem__((3, 0), 7),
    ],
)
def test_the_fingerprint_changes_with_any_row(change):
    made = columns()
    before = from_arrays(**made).fingerprint
    change(made)
    assert from_arrays(**made).fingerprint != before


def test_the_fingerprint_changes_with_the_bounds_that_actions_are_scaled_by():
    assert dataset(action_bounds=(-1, 1)).fingerprint != dataset(action_bounds=(-2, 2)).fingerprint


def test_what_is_unlike_is_not_combined():
    narrow = from_arrays(np.zeros((2, 1)), np.zeros((2, 2)), np.zeros(2), [0, 1], [0, 0])
    with pytest.raises(BadInput, match="'b': obs_dim is 1, the first source has 3"):
        combine({"a": dataset(), "b": narrow})
    with pytest.raises(BadInput, match="environment is B"):
        combine({"a": dataset(environment="A"), "b": dataset(environment="B")})


def test_the_description_survives_json():
    meta = Meta("x", "bag", "Hopper-v4", "3.3", ("a", "b"), (-1.0,), (1.0,), (0.0, 2.5), {"share": 0.1}, ("note",))
    assert Meta.from_json(meta.to_json()) == meta
