"""Mixtures: seeded, rebuilt bit for bit, with the right shares, and no row copied or written into."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from helpers.datasets import columns, same_episodes, source

from winnow.data.arrays import from_arrays
from winnow.data.recipes import SEGMENT, Recipe, build, diverse, mixed, rebuild, small
from winnow.errors import BadInput

LOW = source(0.1, episodes=200, name="random")
HIGH = source(1.0, episodes=100, seed=1, name="expert")
EPISODE = 60


@pytest.mark.parametrize("make", [mixed, diverse])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_the_share_is_that_of_the_rows(make, share):
    data = make(LOW, HIGH, share, 5000)
    good = int((data.source == 1).sum())
    most = EPISODE if make is mixed else SEGMENT[1]
    assert round(share * 5000) <= good < round(share * 5000) + most
    assert 5000 <= len(data) < 5000 + 2 * most


@pytest.mark.parametrize("share", [0, 1])
def test_a_share_of_nothing_or_all_leaves_one_source(share):
    assert set(mixed(LOW, HIGH, share, 500).source.tolist()) == {share}


def test_small_has_fifty_thousand_rows_of_which_a_tenth_is_good():
    data = small(LOW, HIGH)
    assert 50_000 <= len(data) < 50_000 + 2 * EPISODE
    assert 5_000 <= (data.source == 1).sum() < 5_000 + EPISODE


def test_episodes_stay_whole_and_are_drawn_without_replacement_while_the_pool_lasts():
    data = mixed(LOW, HIGH, 0.5, 100 * EPISODE)
    assert (data.episodes.length == EPISODE).all()
    for number in (0, 1):
        origin = data.episodes.origin[data.episodes.source == number]
        assert len(set(origin.tolist())) == len(origin) == 50
    again = mixed(LOW, HIGH, 0.5, 500 * EPISODE)  # 250 of the good source's 100 episodes: each at least twice
    used = np.bincount(again.episodes.origin[again.episodes.source == 1], minlength=100)
    assert set(used.tolist()) == {2, 3}


def test_a_seed_draws_the_same_and_another_draws_others():
    for make in (mixed, diverse):
        one, same, other = (make(LOW, HIGH, 0.2, 1000, seed) for seed in (3, 3, 4))
        assert same_episodes(one, same)
        assert one.fingerprint == same.fingerprint
        for number in (0, 1):  # other episodes, not only another order of the same ones
            drawn = [set(data.episodes.origin[data.episodes.source == number].tolist()) for data in (one, other)]
            assert drawn[0] != drawn[1]


def test_no_row_is_copied_and_no_flag_is_written_into_the_sources():
    before = [data.fingerprint for data in (LOW, HIGH)], [data.arenas[0].terminal.copy() for data in (LOW, HIGH)]
    data = diverse(LOW, HIGH, 0.3, 3000)
    assert data.arenas[0] is LOW.arenas[0]
    assert data.arenas[1] is HIGH.arenas[0]
    assert [dataclasses.replace(data).fingerprint for data in (LOW, HIGH)] == before[0]
    for arena, flags in zip(data.arenas, before[1], strict=True):
        np.testing.assert_array_equal(arena.terminal, flags)


def test_segments_are_ten_to_fortynine_long_and_lie_inside_their_episode():
    data = diverse(LOW, HIGH, 0.3, 20_000)
    length, offset = data.episodes.length, data.episodes.offset
    assert (length.min(), length.max()) == SEGMENT == (10, 49)
    assert (offset >= 0).all()
    assert (offset + length <= EPISODE).all()
    assert offset.min() == 0
    assert (offset + length).max() == EPISODE
    rows, whole = data.rows(), [LOW.rows(), HIGH.rows()]
    first = data.episodes.origin[data.episode] * EPISODE + data.step
    for number in (0, 1):
        here = data.source == number
        for mine, theirs in zip(rows, whole[number], strict=True):
            np.testing.assert_array_equal(mine[here], theirs[first[here]])


def test_a_true_terminal_stays_terminal_and_an_artificial_end_is_a_timeout():
    data = diverse(LOW, HIGH, 0.3, 20_000)
    table = data.episodes
    at_the_end = table.offset + table.length == EPISODE
    was_terminal = table.origin % 2 == 0  # as `source` makes them
    np.testing.assert_array_equal(table.terminated, at_the_end & was_terminal)
    last = table.start + table.length - 1
    np.testing.assert_array_equal(data.rows().terminal[last], table.terminated)
    assert data.rows().terminal.sum() == table.terminated.sum() > 0


def test_a_segment_of_a_short_episode_is_the_episode():
    short = from_arrays(**columns((3, 4), (True, False)), name="short")
    data = diverse(short, short, 0.5, 100, low_label="a", high_label="b")
    assert set(data.episodes.length.tolist()) == {3, 4}


@pytest.mark.parametrize("make", [mixed, diverse, small])
def test_a_recipe_rebuilds_the_dataset_bit_for_bit(make):
    data = make(LOW, HIGH, 0.1, 2000, 5, low_label="random", high_label="expert", name="my set")
    record = json.loads(json.dumps(data.meta.recipe))
    again = rebuild(record, {"random": LOW, "expert": HIGH})
    assert again.fingerprint == data.fingerprint
    assert same_episodes(again, data)
    assert again.meta == data.meta
    np.testing.assert_array_equal(again.slot, data.slot)


def test_a_recipe_refuses_other_sources():
    record = mixed(LOW, HIGH, 0.1, 500).meta.recipe
    assert record is not None
    with pytest.raises(BadInput, match="source 'high' is missing; add --source high=FILE"):
        rebuild(record, {"low": LOW})
    with pytest.raises(BadInput, match="source 'high' holds other rows"):
        rebuild(record, {"low": LOW, "high": LOW})
    with pytest.raises(BadInput, match="'seed' is missing"):
        rebuild({key: value for key, value in record.items() if key != "seed"}, {"low": LOW, "high": HIGH})


def test_the_range_of_returns_is_that_of_whole_episodes():
    data = diverse(LOW, HIGH, 0.3, 1000)
    assert data.return_range == (LOW.returns.min(), HIGH.returns.max())
    assert data.returns.max() < data.return_range[1]


@pytest.mark.parametrize(
    ("recipe", "labels", "words"),
    [
        (Recipe(1.5), {}, "got 1.5"),
        (Recipe(-0.1), {}, "got -0.1"),
        (Recipe(0.1, rows=0), {}, "got 0"),
        (Recipe(0.1), {"low_label": "x", "high_label": "x"}, "got 'x' twice"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(recipe, labels, words):
    with pytest.raises(BadInput, match=words):
        build(recipe, LOW, HIGH, **labels)


def test_data_without_episodes_is_not_mixed():
    bag = from_arrays(**columns(), kind="bag")
    with pytest.raises(BadInput, match="got bag data; mix other sources"):
        mixed(bag, bag, 0.5, 10)
