"""Continued returns: by hand where nothing is fitted, and on a fork whose values are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.problems import quick_compiles, toy_dataset

from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.errors import BadInput
from winnow.samplers import RW, Continued
from winnow.samplers.fits import cache
from winnow.samplers.fits.continued import continued_returns
from winnow.samplers.fits.values import to_the_end

QUICK = Continued(discount=0.9, rounds=40, steps=100, hidden=(32,))
START, WAY, HILL, FALL = range(4)
ENTRY, TOP, BAD = ((START, WAY), (WAY, HILL)), ((HILL, HILL),) * 2, ((START, FALL), (FALL, FALL))


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with quick_compiles():
        yield


def fork(copies: int = 40) -> tuple[Dataset, np.ndarray]:
    """Pieces of two moves and which kind each is. From the start a way leads up a hill, where every move pays 1, or
    into a fall, which ends. Neither pays on the way: entry and fall have the same return, and few have the entry."""
    kinds = np.repeat([0, 1, 2], [4, copies // 2, copies])
    moves = np.array([(ENTRY, TOP, BAD)[kind] for kind in kinds]).reshape(-1, 2)
    obs, following = np.eye(4)[moves[:, 0]], np.eye(4)[moves[:, 1]]
    end = np.arange(len(moves)) % 2 == 1
    terminal = end & (moves[:, 1] == FALL)
    reward = (moves[:, 0] == HILL).astype(float)
    action = np.zeros((len(moves), 1))
    return from_arrays(obs, action, reward, terminal, end & ~terminal, following), kinds


def test_rewards_add_up_to_the_end_of_their_episode() -> None:
    found = to_the_end(np.array([1.0, 2, 4, 3, 1]), np.array([3, 1, 1]), 0.5)
    np.testing.assert_allclose(found, [1 + 1 + 1, 2 + 2, 4, 3, 1])


def test_a_terminal_row_is_worth_its_reward() -> None:
    """Episodes of one terminal row: rewards 0, 1, 4 scaled by the largest are 0, ¼ and 1, whatever V is."""
    obs = np.arange(3.0)[:, None]
    data = from_arrays(obs, obs * 0, np.array([0.0, 1, 4]), np.ones(3, bool), np.zeros(3, bool))
    np.testing.assert_allclose(continued_returns(data, QUICK), [0, 0.025, 0.1])
    above = (np.array([0, 0.25, 1]) - 0.5) / 0.2
    weight = 1 / (1 + np.exp(-above))
    found = dataclasses.replace(QUICK, temperature=0.2).probabilities(data)
    np.testing.assert_allclose(found, weight / weight.sum())


def test_a_piece_is_worth_what_it_leads_to() -> None:
    """Values in units of a reward for ever: 1 on the hill, 0.9 before it, 0 in the fall. The second half of a piece of
    two moves is where it ends: entry 0.9² · 1, top 0.1 + 0.9 · 0.1 + 0.9² · 1."""
    data, kinds = fork()
    found = continued_returns(data, QUICK)
    for kind, worth in enumerate((0.81, 1.0, 0.0)):
        np.testing.assert_allclose(found[kinds == kind], worth, atol=0.06)


def test_the_way_to_what_pays_is_drawn_like_what_pays_and_returns_do_not_see_it() -> None:
    data, kinds = fork()
    entry, top, bad = (QUICK.probabilities(data)[::2][kinds == kind].mean() for kind in range(3))
    assert entry == pytest.approx(top, rel=0.02)
    assert bad < 1e-4 * entry
    entry, top, bad = (RW().probabilities(data)[::2][kinds == kind].mean() for kind in range(3))
    assert entry == pytest.approx(bad)
    assert entry < 1e-4 * top


def test_the_size_of_rewards_does_not_matter() -> None:
    data, _ = fork()
    rows = data.rows()
    end = data.episodes.start + data.episodes.length - 1
    timeout = np.isin(np.arange(len(data)), end) & ~rows.terminal
    large = from_arrays(rows.obs, rows.action, 1e10 * rows.reward, rows.terminal, timeout, rows.next_obs)
    np.testing.assert_allclose(QUICK.probabilities(large), QUICK.probabilities(data), rtol=1e-3)


def test_a_level_of_1_draws_by_exponentials() -> None:
    """Twice as soft at the top, where the logistic function bends: the ratio of the best to all others is half."""
    data, kinds = fork()
    found = dataclasses.replace(QUICK, level=1.0, temperature=0.1).probabilities(data)[::2]
    gap = continued_returns(data, QUICK)
    low, high = gap.min(), gap.max()
    entry, top = (kinds == 0).argmax(), (kinds == 1).argmax()
    steep = np.exp((gap[entry] - gap[top]) / (high - low) / 0.1)
    assert found[entry] / found[top] == pytest.approx(2 / (1 / steep + 1), rel=0.1)


def test_one_fit_serves_every_level_and_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path))
    monkeypatch.setattr(cache, "KEPT_ROWS", 10)
    data, _ = fork()
    first = QUICK.probabilities(data)
    dataclasses.replace(QUICK, level=0.8, temperature=0.1).probabilities(data)
    (file,) = (tmp_path / "priorities").iterdir()
    stored = np.load(file)
    np.save(file, np.zeros_like(stored))
    np.testing.assert_allclose(QUICK.probabilities(data), 1 / len(data))
    file.write_bytes(b"no array")
    np.testing.assert_array_equal(QUICK.probabilities(data), first)
    dataclasses.replace(QUICK, seed=1).probabilities(data)
    assert len(list((tmp_path / "priorities").iterdir())) == 2


@pytest.mark.parametrize(("name", "value"), [("rounds", 0), ("steps", 0), ("discount", 1.0), ("temperature", 0.0)])
def test_settings_that_mean_nothing_are_refused(name: str, value: float) -> None:
    with pytest.raises(BadInput, match=rf"sampler\.{name} is {value}"):
        dataclasses.replace(QUICK, **{name: value}).probabilities(toy_dataset())
