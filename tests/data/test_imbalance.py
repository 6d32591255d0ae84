"""Imbalance in numbers that were worked out by hand, and in words."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from helpers.datasets import columns, source

from winnow.data.advice import degree, verdict
from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.data.imbalance import imbalance
from winnow.data.recipes import mixed
from winnow.errors import BadInput


def with_returns(*episodes: list[float], **more) -> Dataset:
    """Episodes with these rewards."""
    made = columns(tuple(map(len, episodes)), (True,) * len(episodes))
    made["rewards"] = np.concatenate([np.array(rewards, np.float32) for rewards in episodes])
    return from_arrays(**made, **more)


def test_rpsv_by_hand():
    # returns 0, 2, 4, 10: mean 4, above the mean only 10 by 6: 36 / 4 = 9; scaled to [0, 1]: 0.6² / 4 = 0.09
    measured = imbalance(with_returns([0], [1, 1], [4], [3, 7]))
    assert measured.mean == pytest.approx(4)
    assert measured.rpsv == pytest.approx(9)
    assert measured.rpsv_scaled == pytest.approx(0.09)


def test_discounted_returns_by_hand():
    # with a discount of 1/2: 1 + 1/2·2 + 1/4·4 = 3, and 1: mean 2, RPSV 1/2
    measured = imbalance(with_returns([1, 2, 4], [1]), discount=0.5)
    assert measured.quantiles["1"] == pytest.approx(3)
    assert measured.rpsv == pytest.approx(0.5)
    assert imbalance(with_returns([1, 2, 4], [1])).quantiles["1"] == pytest.approx(7)


def test_gini_and_top_share_by_hand():
    # shifted by the minimum −1: 1, 0, 6, 3, mean 2.5. All 16 pairs differ by 2·(1+5+2+6+3+3)/16 = 2.5 on average, and
    # the Gini coefficient is half of that over the mean
    measured = imbalance(with_returns([0], [-1], [5], [2]))
    assert measured.gini == pytest.approx(0.5)
    assert measured.top_share["0.25"] == pytest.approx(0.6)
    assert measured.top_share["0.5"] == pytest.approx(0.9)
    assert measured.top_share["0.01"] == pytest.approx(0.6)  # at least one episode


def test_effective_sizes_by_hand():
    # returns 0, 0, 3, 5, mean 2: d = 0, 0, 1, 3: 4² / 10 = 1.6 episodes
    measured = imbalance(with_returns([0, 0, 0, 0], [0], [3], [5, 0]))
    assert measured.effective_count == pytest.approx(1.6)
    # in rows d = 0 five times, 1 once, 3 twice: 7² / 19 of 8 rows
    assert measured.effective_share == pytest.approx(49 / 19 / 8)


def test_equal_returns_are_perfectly_balanced():
    measured = imbalance(with_returns([2], [1, 1], [2]))
    assert (measured.rpsv, measured.rpsv_scaled, measured.gini) == (0, 0, 0)
    assert measured.effective_count == 3
    assert measured.effective_share == 1
    assert sum(measured.histogram) == 3
    assert degree(measured) == "balanced"


def test_the_spread_of_initial_states():
    obs = np.array([[0.0], [2], [0], [2]])
    same_start = from_arrays(obs, obs * 0, np.arange(4), [0, 1, 0, 1], [0] * 4)
    assert imbalance(same_start).start_spread == 0
    each_starts = from_arrays(obs, obs * 0, np.arange(4), [1, 1, 1, 1], [0] * 4)
    assert imbalance(each_starts).start_spread == pytest.approx(1)


def test_sensors_whose_level_differs_do_not_hide_that_episodes_start_alike():
    """One column in ten starts alike; the others are noise about a level of the episode's own."""
    rng = np.random.default_rng(0)
    obs = np.repeat(rng.normal(size=(20, 1, 10)), 30, axis=1) + 0.1 * rng.normal(size=(20, 30, 10))
    obs[:, :, :2] = np.arange(30)[:, None]
    end = np.arange(600) % 30 == 29
    data = from_arrays(obs.reshape(600, 10), np.zeros((600, 1)), rng.normal(size=600), np.zeros(600), end)
    measured = imbalance(data)
    assert measured.start_spread == pytest.approx(0, abs=1e-6)
    assert not measured.fragments
    assert measured.columns == 10


def test_statistics_by_source():
    data = mixed(source(0.1), source(1, seed=1), 0.25, 1200)
    low, high = imbalance(data).sources
    assert (low.label, low.episodes, low.rows, low.share) == ("low", 15, 900, 0.75)
    assert (high.label, high.episodes, high.rows, high.share) == ("high", 5, 300, 0.25)
    assert low.mean == pytest.approx(6, abs=0.5)
    assert high.mean == pytest.approx(60, abs=0.5)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.01, "strongly imbalanced"), (0.05, "strongly imbalanced"), (0.1, "imbalanced"), (0.5, "balanced")],
)
def test_the_paper_mixtures_are_called_what_they_are(share, expected):
    low, high = source(0.1, 200, 20), source(1, 100, 60, seed=1)
    measured = imbalance(mixed(low, high, share, 12_000))
    assert measured.effective_share == pytest.approx(share, rel=0.25)
    assert degree(measured) == expected
    assert verdict(measured).lower().startswith(expected)
    assert "of the rows are worth learning from" in verdict(measured)


def test_one_policy_is_balanced_and_so_is_an_expert_that_sometimes_fails():
    rng = np.random.default_rng(0)
    one = imbalance(with_returns(*[[value] for value in rng.normal(size=500)]))
    assert one.effective_share == pytest.approx(0.32, abs=0.05)  # (E d)² / E d² of a half-normal is 1/π
    assert degree(imbalance(with_returns(*[[1.0]] * 95, *[[0.0]] * 5))) == "balanced"


def test_returns_that_hardly_differ_are_balanced_however_they_are_spread():
    assert degree(imbalance(with_returns(*[[1000.0]] * 99, [1001.0]))) == "balanced"
    assert degree(imbalance(with_returns(*[[1000.0]] * 99, [2000.0]))) == "strongly imbalanced"


@pytest.mark.parametrize("kind", ["bag", "continuing"])
def test_without_episodes_rewards_are_measured_and_it_is_said(kind):
    made = columns((8,), (False,))
    made["rewards"] = np.array([0, 0, 0, 0, 0, 0, 0, 8], np.float32)
    measured = imbalance(from_arrays(**made, kind=kind), discount=0.9)
    assert (measured.of, measured.count, measured.start_spread, measured.discount) == ("reward", 8, None, 1.0)
    assert measured.rpsv == pytest.approx(49 / 8)
    assert "no episodes" in verdict(measured)


def test_it_can_be_written_as_json():
    measured = imbalance(with_returns([0], [1, 1], [4], [3, 7]))
    record = json.loads(json.dumps(dataclasses.asdict(measured), allow_nan=False))
    assert record["rpsv"] == measured.rpsv
    assert sum(record["histogram"]) == 4


def test_a_discount_that_makes_no_sense_is_refused():
    for discount in (0, 1.1, -1):
        with pytest.raises(BadInput, match="discount is"):
            imbalance(with_returns([0], [1]), discount)


def test_returns_that_differ_by_less_than_a_bin_can_hold_are_in_one_bin():
    """Found by fuzzing: NumPy refuses to cut such a range."""
    found = imbalance(with_returns([2.0**40], [2.0**40, 0.001]))
    assert found.histogram == (2, *[0] * 19)
