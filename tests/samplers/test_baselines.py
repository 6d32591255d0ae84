"""Rebalancing by return and by fitted advantages, by hand and where the answer is known; and what methods mean."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import SPEC, assert_same, bandit, differ, quick_compiles, take, tiny, toy_batch, toy_dataset

from winnow.algorithms import ALGORITHMS, BC
from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset, combine
from winnow.errors import BadInput
from winnow.methods import METHODS, method
from winnow.packs.pack import Pack
from winnow.packs.run import Run
from winnow.packs.tables import draw, lay_out
from winnow.plugins import from_record, record
from winnow.samplers import AW, ODPRA, PF, SAMPLERS, ReD, Source, Uniform
from winnow.samplers.fits import cache, odpr
from winnow.types import Weights, expect
from winnow.weighters import Decoupled, Dual, NoWeights

KEY = jax.random.key(0)
QUICK = ODPRA(iterations=2, steps=400, hidden=(16,))


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with quick_compiles():
        yield


def episodes(*rewards: list[float]) -> Dataset:
    """Terminal episodes with these rewards."""
    length = np.array([len(part) for part in rewards], int)
    terminal = np.isin(np.arange(length.sum()), np.cumsum(length) - 1)
    obs = np.zeros((int(length.sum()), 1))
    return from_arrays(obs, np.zeros_like(obs), np.concatenate(rewards), terminal, np.zeros_like(terminal))


# ----------------------------------------------------------------------------------------------------- red


@pytest.mark.parametrize(("base", "weight"), [(0.0, [1, 1, 1, 0, 0.5, 0.5]), (0.2, [1.2, 1.2, 1.2, 0.2, 0.7, 0.7])])
def test_red_on_numbers_worked_out_by_hand(base: float, weight: list[float]) -> None:
    """Returns 3, 1, 2 become 1, 0, ½."""
    data = episodes([1, 1, 1], [1], [0, 2])
    np.testing.assert_allclose(ReD(base).probabilities(data), np.array(weight) / np.sum(weight), rtol=1e-12)


def test_red_draws_evenly_where_all_returns_are_alike() -> None:
    np.testing.assert_allclose(ReD().probabilities(episodes([1, 1], [2], [0, 2, 0])), 1 / 6)


@pytest.mark.parametrize("base", [-0.1, float("nan"), float("inf")])
def test_red_refuses_a_base_below_0(base: float) -> None:
    with pytest.raises(BadInput, match=r"sampler\.base"):
        ReD(base).probabilities(toy_dataset())


# -------------------------------------------------------------------------------------------------- odpr-a


def test_advantages_become_factors_with_mean_1() -> None:
    np.testing.assert_allclose(odpr.multiplier(np.array([-1.0, 0.0, 3.0])), np.array([0, 1, 4]) * 3 / 5)
    np.testing.assert_array_equal(odpr.multiplier(np.full(4, 0.3)), np.ones(4))


def test_priorities_are_stretched_to_a_deviation_and_kept_above_the_least() -> None:
    """3, 1, 1, 1, 1, 1 less 1 with mean 1: 6, 0, 0, 0, 0, 0, deviation √5. With deviation d: 1 + d √5 and 1 − d/√5."""
    weight = np.array([3.0, 1, 1, 1, 1, 1])
    high, low = 1 + np.sqrt(5), 1 - 1 / np.sqrt(5)
    np.testing.assert_allclose(odpr.spread(weight, 1.0, 0.1), np.array([high, low, low, low, low, low]) / 6)
    high, low = 1 + 3 * np.sqrt(5), 0.1
    raised = np.array([high, low, low, low, low, low])
    np.testing.assert_allclose(odpr.spread(weight, 3.0, 0.1), raised / raised.sum())
    np.testing.assert_allclose(odpr.spread(np.full(5, 2.0), 2.0, 0.1), 0.2)


def corridor(rows: int = 19_000) -> tuple[Dataset, np.ndarray, np.ndarray]:
    """A bag of moves in a corridor of three places, up (pays what the place is worth) or staying (pays nothing); the
    last place ends. V of the even choice is known, and so is every row's advantage."""
    rng = np.random.default_rng(0)
    place, move = rng.integers(0, 3, rows), rng.integers(0, 2, rows)
    reward, following = move * np.array([0.2, -0.1, 1.0])[place], np.minimum(place + move, 2)
    terminal = (place == 2) & (move == 1)
    data = from_arrays(
        np.eye(3)[place], move[:, None] * 1.0, reward, terminal, next_observations=np.eye(3)[following], kind="bag"
    )
    leads = np.zeros((3, 3))
    np.add.at(leads, (place, following), ~terminal)
    visits = np.bincount(place)
    value = np.linalg.solve(np.eye(3) - 0.9 * leads / visits[:, None], np.bincount(place, reward) / visits)
    return data, value, reward + 0.9 * ~terminal * value[following] - value[place]


def test_the_fitted_advantages_are_those_of_the_data() -> None:
    """Without episodes. One iteration draws evenly, so its priorities are A − min A of the data's own policy."""
    data, _, exact = corridor()
    found = odpr.priorities(data, ODPRA(iterations=1, steps=6_000, hidden=(32,), discount=0.9))
    np.testing.assert_allclose(found, odpr.multiplier(exact), atol=0.1)


def test_iterations_and_fits_sharpen_and_average() -> None:
    """Two iterations on one state, where V never matters: the square of A − min A, up to noise in V."""
    data = bandit(256)
    square = odpr.multiplier(data.reward.astype(float)) ** 2
    found = odpr.priorities(data, dataclasses.replace(QUICK, fits=2))
    assert np.corrcoef(found, square)[0, 1] > 0.999
    np.testing.assert_allclose(found.mean(), 1)


def test_odpr_a_draws_better_rows_more_often_and_every_row_sometimes() -> None:
    data = bandit(256)
    share = 256 * QUICK.probabilities(data)
    assert np.corrcoef(share, data.reward)[0, 1] > 0.8
    assert 0.02 < share.min() <= 0.1 < 2 < share.max()
    np.testing.assert_array_equal(share, 256 * QUICK.probabilities(data))


@pytest.mark.parametrize("kind", ["continuing", "bag"])
def test_odpr_a_needs_no_episodes(kind: str) -> None:
    assert QUICK.probabilities(toy_dataset(kind=kind)).sum() == pytest.approx(1)


def test_priorities_are_kept_and_a_damaged_file_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path))
    monkeypatch.setattr(cache, "KEPT_ROWS", 10)
    first = QUICK.probabilities(toy_dataset())
    (file,) = (tmp_path / "priorities").iterdir()
    stored = np.load(file)
    np.save(file, stored[::-1])
    np.testing.assert_array_equal(odpr.priorities(toy_dataset(), QUICK), stored[::-1])
    file.write_bytes(b"no array")
    np.testing.assert_array_equal(QUICK.probabilities(toy_dataset()), first)
    QUICK.probabilities(toy_dataset(seed=1))
    dataclasses.replace(QUICK, seed=1).probabilities(toy_dataset())
    assert len(list((tmp_path / "priorities").iterdir())) == 3


@pytest.mark.parametrize(
    "wrong", [{"iterations": 0}, {"steps": 0}, {"fits": 0}, {"least": 1.0}, {"deviation": -1.0}, {"discount": 1.0}]
)
def test_odpr_a_refuses_settings_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=rf"sampler\.{next(iter(wrong))}"):
        dataclasses.replace(QUICK, **wrong).probabilities(toy_dataset())


# ------------------------------------------------------------------------------------------------- methods


def test_methods_have_their_published_settings() -> None:
    assert {name: method("odpr-a", name)[0] for name in ("iql", "bc", "td3bc", "cql")} == {
        "iql": ODPRA(iterations=4),
        "bc": ODPRA(iterations=4),
        "td3bc": ODPRA(iterations=5),
        "cql": ODPRA(iterations=5),
    }
    assert method("red") == method("odpr-r") == (ReD(base=0.0), NoWeights())
    assert method("pf", "bc") == (PF(share=0.1), NoWeights())


def test_the_best_source_is_the_one_whose_rows_are_in_episodes_that_return_most() -> None:
    parts = {"low": episodes([0, 0], [1]), "high": episodes([3], [2, 1, 0]), "long": episodes([1, 0, 1])}
    data = combine(parts)
    np.testing.assert_allclose(Source().probabilities(data), [0] * 3 + [0.25] * 4 + [0] * 3)
    np.testing.assert_allclose(Source("long").probabilities(data), [0] * 7 + [1 / 3] * 3)
    with pytest.raises(BadInput, match=r"sampler.label is 'best', which is no source; it has low, high, long"):
        Source("best").probabilities(data)


def test_the_dual_weighs_whole_episodes_at_a_fixed_temperature_where_a_method_says_so() -> None:
    whole = Dual(average="trajectory", control="temperature", temperature=0.1)
    assert method("dual-paths-aw") == (AW(), whole)
    assert method("dual-paths-uniform") == (Uniform(), whole)
    assert method("dual-aw") == (AW(), Dual())


@pytest.mark.parametrize("name", METHODS)
def test_the_parts_of_a_method_survive_their_record(name: str) -> None:
    sampler, _ = method(name)
    saved = json.loads(json.dumps(record(sampler)))
    assert from_record(saved, SAMPLERS) == sampler


@pytest.mark.parametrize("sampler", [ReD(), PF(0.1), QUICK], ids=["red", "pf", "odpr-a"])
def test_cloning_what_is_drawn_does_better_than_cloning_all(sampler: Any) -> None:
    """One state, even actions, the best one at 0.5: BC of all rows stays at 0, as the algorithms' contract shows."""
    algorithm = tiny(BC, learning_rate=3e-3, hidden=(16,))
    pack = Pack([Run(bandit(256), algorithm, sampler, NoWeights())], steps=600, batch_size=64)
    pack.advance(600)
    assert float(algorithm.act(pack.lane(0)[1].algorithm, np.zeros(1))[0]) > 0.25


# ----------------------------------------------------------------------------------------------- decoupling


@pytest.mark.parametrize("name", ["iql", "td3bc", "cql"])
def test_decoupled_values_are_fitted_to_the_dataset_and_the_policy_to_what_is_drawn(name: str) -> None:
    """A batch in which row 0 was drawn three times as often as the rest: its values learn as from the rows once each,
    its policy as from the batch as it is."""
    algorithm, once = tiny(ALGORITHMS[name]), toy_batch()
    often = take(once, [0, 0, 0, *range(1, 8)])._replace(frequency=jnp.asarray([3.0] * 3 + [1.0] * 7))
    _, weights, metrics = Decoupled().update((), often, KEY)
    even, drawn = np.array([1 / 3] * 3 + [1] * 7) / 8, np.full(10, 0.1)
    assert weights.fit is not None
    np.testing.assert_allclose(weights.fit, even, rtol=1e-6)
    np.testing.assert_allclose(weights.sa, drawn, rtol=1e-6)
    assert float(metrics["weighter/fit_ess"]) == pytest.approx(1 / (10 * (even**2).sum()))
    state = algorithm.init(KEY, SPEC)

    def learnt(weights: Weights) -> Any:
        return algorithm.update(state, often, weights, KEY)[0].params

    decoupled = learnt(weights)
    values = {"iql": ("value", "critic"), "td3bc": ("critic",), "cql": ()}[name]
    for group in values:
        assert_same(decoupled[group], learnt(Weights(weights.fit, weights.fit))[group])
        assert differ(decoupled[group], learnt(Weights(weights.sa, weights.sa))[group])
    if name == "td3bc":  # its policy reads the critic of this update
        fitted = state._replace(params=state.params | {"critic": decoupled["critic"]})
        expected = algorithm._update_actor(fitted, often, Weights(weights.sa, weights.sa))
        got = algorithm.update(state, often, weights, KEY)[0]
        assert_same(got.optimiser["actor"], expected.optimiser["actor"], rtol=1e-4, atol=1e-9)
    else:
        assert_same(decoupled["actor"], learnt(Weights(weights.sa, weights.sa))["actor"])
    if name == "cql":  # its penalty, which is for the policy, shares a network with its values
        assert differ(decoupled["critic"], learnt(Weights(weights.sa, weights.sa))["critic"])
        assert differ(decoupled["critic"], learnt(Weights(weights.fit, weights.fit))["critic"])


def test_a_batch_knows_how_often_its_rows_are_drawn() -> None:
    """Under a sampler and undone by 1/frequency: the mean over draws is then the mean over the dataset."""
    data = toy_dataset(60, longest=5)
    runs = [Run(toy_dataset(50, seed=1), BC(), ReD(), Decoupled()), Run(data, BC(), ReD(0.2), Decoupled())]
    tables, lanes = lay_out(runs, with_episodes=False)
    lane = jax.tree.map(lambda leaf: leaf[1], lanes)
    batch = draw(tables, lane, KEY, 100_000, jnp.zeros((), int), jnp.zeros(()))
    assert batch.frequency is not None
    np.testing.assert_allclose(batch.frequency, 60 * ReD(0.2).probabilities(data)[np.asarray(batch.row)], rtol=1e-5)
    _, weights, _ = Decoupled().update((), batch, KEY)
    assert float(expect(weights.values.sa, batch.reward)) == pytest.approx(data.reward.mean(), abs=0.02)
    assert abs(float(batch.reward.mean()) - data.reward.mean()) > 0.1
