"""Fitted samplers on the log of a plant, where an earlier fit took most samples from the worst episodes; and the checks
that notice it."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.problems import quick_compiles

from winnow import toy
from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.samplers import AW, Continued, Followed, checks
from winnow.samplers.fits import continued
from winnow.samplers.fits.values import WIDEST, Folds, network_inputs

QUICK = {"rounds": 4, "steps": 200, "hidden": (64,)}


@pytest.fixture(scope="module")
def plant() -> Dataset:
    return toy.plant()


def test_the_log_is_wide_and_its_worst_episodes_drift_away(plant):
    assert (len(plant), plant.obs_dim) == (29_850, 51)
    mean, std = plant.obs_moments
    assert 18 < np.abs((plant.rows().obs - mean) / std).max() < 24


@pytest.mark.parametrize("kind", [Continued, Followed])
def test_no_episode_gets_most_samples(plant, kind, tmp_path, monkeypatch, capsys):
    """The fit before this one gave one of the 12 worst of 150 episodes half of the samples, and the good ones none."""
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path))
    with quick_compiles():
        probability = kind(**QUICK).probabilities(plant)
    assert "is used instead" not in capsys.readouterr().err
    got = checks.concentration(plant, probability)
    assert got.largest_share < 0.1
    assert got.mean_return > got.uniform_return + 30
    assert probability[plant.source == 1].sum() > 4 * np.mean(plant.source == 1)


def test_inputs_are_clipped_to_the_range_of_the_data(plant):
    obs, following = network_inputs(plant)
    assert np.abs(obs).max() == pytest.approx(WIDEST)
    assert (following >= obs.min(axis=0)).all()
    assert (following <= obs.max(axis=0)).all()


def test_a_network_is_not_trained_on_the_episodes_it_predicts(plant):
    folds = Folds.of(plant, seed=0)
    for number, rows in enumerate(folds.train):
        assert number not in folds.fold[rows]
    for episode in range(len(plant.episodes)):
        assert len(set(folds.fold[plant.episode == episode])) == 1
    assert np.bincount(folds.fold).min() > 0.3 * len(plant)


# --------------------------------------------------------------------------------- the checks after a fit


def with_returns(*returns: float, length: int = 10) -> Dataset:
    """Episodes of some rows each, with these returns, that all start alike."""
    rows = len(returns) * length
    end = np.arange(rows) % length == length - 1
    obs = np.zeros((rows, 2))
    return from_arrays(obs, np.zeros((rows, 1)), np.repeat(returns, length) / length, end, ~end & False, name="log")


MANY = with_returns(*range(100))


def samples(data: Dataset, shares: dict[int, float]) -> np.ndarray:
    """[rows] with these shares for some episodes, and the rest for all others alike."""
    rest = (1 - sum(shares.values())) / (len(data.episodes) - len(shares))
    share = np.array([shares.get(number, rest) for number in range(len(data.episodes))])
    return (share / data.episodes.length)[data.episode]


@pytest.mark.parametrize(
    ("shares", "reason"),
    [
        ({99: 0.25}, ""),
        ({99: 0.31}, "one episode, with 1.0% of the rows, has 31.0% of its samples"),
        ({0: 0.1}, "the mean return of its samples is 45, below the 49.5 of uniform samples"),
        ({99: 0.999}, "one episode, with 1.0% of the rows, has 99.9% of its samples"),
    ],
)
def test_what_samples_are_refused_for(shares, reason):
    assert checks.disagreement(MANY, samples(MANY, shares)) == reason


def test_few_effective_rows_are_refused_unless_data_is_rare():
    one_row = np.zeros(len(MANY))
    one_row[[-1, -11, -21, -31]] = 0.25  # one row of each of four episodes: 4 of 1,000
    assert checks.disagreement(MANY, one_row) == "only 0.40% of the rows are effective in its samples"
    assert checks.disagreement(MANY, one_row, rare=True) == ""


def test_a_small_share_of_a_large_set_is_enough():
    large = with_returns(*range(2_000), length=100)
    best = np.where(large.episode >= 1_980, 1.0, 0.0)  # 2,000 of 200,000 rows
    assert checks.disagreement(large, best / best.sum()) == ""
    fewer = np.where(np.arange(len(large)) % 100 < 40, best, 0.0)
    assert checks.disagreement(large, fewer / fewer.sum()) == "only 0.40% of the rows are effective in its samples"


def test_an_episode_with_much_of_the_rows_may_have_most_samples():
    few = with_returns(0, 0, 0, 1)
    assert checks.disagreement(few, samples(few, {3: 0.9})) == ""


def test_aw_takes_the_place_of_samples_that_are_refused_and_it_is_said_once(monkeypatch, capsys):
    data = with_returns(*np.linspace(0, 1, 100) ** 2)
    sampler = Continued(**QUICK)
    worst_first = -np.arange(100.0)
    monkeypatch.setattr(continued, "continued_returns", lambda dataset, settings: worst_first)
    for _ in range(2):
        np.testing.assert_allclose(sampler.probabilities(data), AW().probabilities(data))
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert line.startswith("log: continued is not used, because the mean return of its samples is ")
    assert line.endswith("aw is used instead\n")
    assert checks.fallback(data, sampler) == line.strip()
    assert checks.fallback(data, Continued()) == ""


def test_a_single_episode_does_not_set_the_scale(monkeypatch):
    data = with_returns(*[0.0] * 90, *[1.0] * 9, 1e6)
    monkeypatch.setattr(continued, "continued_returns", lambda dataset, settings: dataset.returns)
    share = Continued(**QUICK).probabilities(data)[data.episodes.start] * 10
    np.testing.assert_allclose(share[90:], 0.1, rtol=1e-5)


def test_uniform_takes_the_place_where_aw_has_one_episode_too(monkeypatch, capsys):
    data = with_returns(*[0.0] * 97, 1.0, 1.0, 1.0)
    monkeypatch.setattr(continued, "continued_returns", lambda dataset, settings: dataset.returns)
    np.testing.assert_allclose(Continued(**QUICK).probabilities(data), 1 / len(data))
    assert "one episode, with 1.0% of the rows, has 33.3% of its samples; uniform is used" in capsys.readouterr().err
