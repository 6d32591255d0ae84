"""What every registered weighter keeps to."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import (
    ACTION,
    LEARNED_CASES,
    OBS,
    SPEC,
    WEIGHTER_NAMES,
    assert_same,
    differ,
    put,
    quick_compiles,
    take,
    tiny,
    toy_batch,
    weighter_case,
)
from scipy.optimize import brentq

from winnow.types import Batch
from winnow.weighters import WEIGHTERS, Dual, Fixed
from winnow.weighters.diagnostics import diagnose

KEY = jax.random.key(3)
UPDATE = jax.jit(lambda weighter, state, batch: weighter.update(state, batch, KEY))
LOG_WEIGHT = jax.jit(lambda weighter, state, batch: weighter.log_weight(state, batch))

every_weighter = pytest.mark.parametrize("name", WEIGHTER_NAMES)
learned = pytest.mark.parametrize("weighter", LEARNED_CASES.values(), ids=LEARNED_CASES)


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with quick_compiles():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weights")


@functools.cache
def init(weighter: Any) -> Any:
    return weighter.init(KEY, SPEC)


def start(weighter: Any) -> Any:
    """A first state; one with a weight for each episode gets random ones, as after a refresh."""
    state = init(weighter)
    if getattr(weighter, "refreshes", False):
        state = state._replace(table=jax.random.normal(KEY, state.table.shape))
    return state


def stream(count: int, size: int) -> Batch:
    """Many batches [count, size] of fresh rows: states and successors alike, a reward spread evenly over [0, 1]."""
    rng = np.random.default_rng(0)
    obs, following, first = rng.normal(size=(3, count, size, OBS)).astype(np.float32)
    action = rng.uniform(-1, 1, (count, size, ACTION)).astype(np.float32)
    unit, none = (action[..., 0] + 1) / 2, np.zeros((count, size), np.float32)
    rows, steps = np.zeros((count, size), int), np.arange(count)
    columns = (obs, action, unit, following, none, unit, first, rows, steps, steps / count)
    return Batch(*map(jnp.asarray, columns))


@jax.jit
def _train(weighter: Any, state: Any, batches: Batch) -> Any:
    def step(state: Any, batch: Batch) -> tuple[Any, Any]:
        state, weights, metrics = weighter.update(state, batch, KEY)
        return state, (weights, metrics)

    state, (weights, metrics) = jax.lax.scan(step, state, batches)
    return state, weights, metrics


def train(weighter: Any, batches: Batch) -> Any:
    """The state after an update for each batch, and the weights and metrics of all of them."""
    return _train(weighter, init(weighter), batches)


def test_every_registered_weighter_has_a_case() -> None:
    assert set(WEIGHTERS) <= set(WEIGHTER_NAMES)


# ------------------------------------------------------------------------------------------------- weights


@every_weighter
def test_weights_are_a_distribution_over_the_batch(name: str, folder: Path) -> None:
    weighter = weighter_case(name, folder)
    state, *_ = UPDATE(weighter, start(weighter), toy_batch())
    _, weights, _ = UPDATE(weighter, state, toy_batch(seed=1))
    for side in jax.tree.leaves(weights):
        assert side.shape == (8,)
        assert (side >= 0).all()
        assert float(side.sum()) == pytest.approx(1, abs=1e-6)


@every_weighter
def test_no_gradient_flows_through_weights(name: str, folder: Path) -> None:
    weighter, batch = weighter_case(name, folder), toy_batch()

    def reading(state: Any, obs: Any) -> Any:
        _, weights, _ = weighter.update(state, batch._replace(obs=obs), KEY)
        return jnp.sum(weights.sa * jnp.arange(8.0)) + jnp.sum(weights.s * jnp.arange(8.0))

    slope = jax.jit(jax.grad(reading, argnums=(0, 1), allow_int=True))(start(weighter), batch.obs)
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(slope) if jnp.issubdtype(leaf.dtype, jnp.floating))


@every_weighter
def test_weights_are_those_from_before_the_update(name: str, folder: Path) -> None:
    weighter, batch = weighter_case(name, folder), toy_batch()
    state, *_ = UPDATE(weighter, start(weighter), toy_batch(seed=1))
    _, weights, _ = UPDATE(weighter, state, batch)
    expected = jax.nn.softmax(LOG_WEIGHT(weighter, state, batch))
    np.testing.assert_allclose(weights.sa, expected, rtol=1e-5)


@every_weighter
def test_both_weights_agree_unless_the_marginal_is_asked_for(name: str, folder: Path) -> None:
    weighter = weighter_case(name, folder)
    _, weights, _ = UPDATE(weighter, start(weighter), toy_batch())
    assert differ(weights.sa, weights.s) == (getattr(weighter, "state_weight", "joint") == "marginal")


@every_weighter
def test_copies_of_a_row_share_its_weight(name: str, folder: Path) -> None:
    weighter = weighter_case(name, folder)
    _, weights, _ = UPDATE(weighter, start(weighter), take(toy_batch(), [0, 1, 2, 3, 4, 5, 1, 0]))
    for side in jax.tree.leaves(weights):
        np.testing.assert_allclose(side[jnp.array([0, 1])], side[jnp.array([7, 6])], rtol=1e-6)
        assert side[0] != side[1] or name in ("none", "decoupled")


@every_weighter
def test_an_update_is_deterministic(name: str, folder: Path) -> None:
    weighter = weighter_case(name, folder)
    assert_same(UPDATE(weighter, start(weighter), toy_batch()), UPDATE(weighter, start(weighter), toy_batch()))


# ------------------------------------------------------------------------------------------------ learning


@pytest.mark.parametrize("name", ["density", "density-marginal", "dual", "dual-marginal"])
def test_weights_start_uniform_where_all_rewards_are_alike(name: str) -> None:
    """With networks of the published size. Where rewards differ, Dual begins near ν = 0, at w ∝ exp(r̃/λ)."""
    weighter, batch = dataclasses.replace(LEARNED_CASES[name], hidden=(256, 256)), toy_batch(size=256)
    flat = batch._replace(unit_reward=jnp.full(256, 0.3), row=batch.row[:1].repeat(256))
    _, weights, _ = UPDATE(weighter, init(weighter), flat)
    for side in jax.tree.leaves(weights):
        np.testing.assert_allclose(256 * side, 1, rtol=0.05)


@learned
def test_weights_stay_uniform_where_all_rewards_are_alike(weighter: Any) -> None:
    """Rows in a closed loop, through resets as well: nothing is to be gained, and uniform weights conserve flow."""
    loop = toy_batch(size=64)
    following = jnp.roll(loop.obs, 1, axis=0)
    terminal = loop.terminal if weighter.terminal == "reset" else 0 * loop.terminal
    flat = loop._replace(next_obs=following, start_obs=following, unit_reward=jnp.full(64, 0.3), terminal=terminal)
    *_, metrics = train(weighter, jax.tree.map(lambda column: jnp.broadcast_to(column, (600, *column.shape)), flat))
    assert metrics["weight/ess"][-1] > 0.95


@learned
def test_every_parameter_changes_with_each_update(weighter: Any) -> None:
    begin = start(weighter)
    first, *_ = UPDATE(weighter, begin, toy_batch())
    second, *_ = UPDATE(weighter, first, toy_batch())
    for before, after in ((begin, first), (first, second)):
        moved = jax.tree.map(lambda a, b: bool((a != b).any()), before.params, after.params)
        still = [jax.tree_util.keystr(p) for p, change in jax.tree_util.tree_leaves_with_path(moved) if not change]
        assert still in ([], ["['nu'][1]['b']"])  # a constant added to ν is of no consequence


@learned
def test_better_rewarded_rows_come_to_weigh_more(weighter: Any) -> None:
    """The reward is the action's first number, and says nothing about where a row leads."""
    batches = stream(600, size=64)
    state, *_ = train(dataclasses.replace(weighter, learning_rate=1e-3), batches)
    batch = jax.tree.map(lambda column: column[-1], batches)._replace(row=jnp.arange(64))
    if getattr(weighter, "refreshes", False):
        state = weighter.refresh(state, lambda row: take(batch, row), jnp.arange(64))
    score = LOG_WEIGHT(weighter, state, batch)
    assert np.corrcoef(score, batch.unit_reward)[0, 1] > 0.8


# ------------------------------------------------------------------------------------------------ terminals


@every_weighter
def test_what_was_recorded_after_a_terminal_does_not_matter(name: str, folder: Path) -> None:
    weighter, batch = weighter_case(name, folder), toy_batch()
    elsewhere = batch._replace(next_obs=put(batch.next_obs, 1, [3.0, -2.0, 1.0]))
    assert_same(UPDATE(weighter, start(weighter), elsewhere), UPDATE(weighter, start(weighter), batch))


@learned
def test_a_row_that_is_not_terminal_keeps_its_recorded_successor(weighter: Any) -> None:
    batch = toy_batch()
    elsewhere = batch._replace(next_obs=put(batch.next_obs, 0, [3.0, -2.0, 1.0]))
    changed, plain = (UPDATE(weighter, start(weighter), rows)[0] for rows in (elsewhere, batch))
    assert differ(changed.params, plain.params)


@learned
def test_a_terminal_leads_to_an_initial_state_unless_it_is_masked(weighter: Any) -> None:
    """With γ < 1 initial states are read for every row; that is not what is asked here."""
    weighter = dataclasses.replace(weighter, discount=1.0) if hasattr(weighter, "discount") else weighter
    batch = toy_batch()
    terminal, other = (batch._replace(start_obs=put(batch.start_obs, row, [3.0, -2.0, 1.0])) for row in (1, 0))
    plain = UPDATE(weighter, start(weighter), batch)[0]
    assert differ(UPDATE(weighter, start(weighter), terminal)[0], plain) == (weighter.terminal == "reset")
    assert_same(UPDATE(weighter, start(weighter), other)[0], plain)


# ---------------------------------------------------------------------------------------------- diagnostics


@every_weighter
def test_every_weighter_reports_the_diagnostics(name: str, folder: Path) -> None:
    weighter, batch = weighter_case(name, folder), toy_batch()
    _, weights, metrics = UPDATE(weighter, start(weighter), batch)
    expected = diagnose(weights.sa, batch)
    assert set(expected) == {"weight/ess", "weight/max", "weight/kl", "weight/reward", "weight/flow"}
    assert_same({key: metrics[key] for key in expected}, expected, rtol=1e-5, atol=1e-6)
    assert all(np.isfinite(value) for value in metrics.values())


def test_diagnostics_on_numbers_worked_out_by_hand() -> None:
    """Weights ½ ¼ ¼ 0. Steps of the first column: 1, −2, 0 cancel; of the second: 1, 1, 0 (a reset), 9 (no weight)."""
    batch = take(toy_batch(), [0, 0, 1, 0])._replace(
        obs=jnp.array([[0.0, 0], [2, 0], [1, 1], [0, 0]]),
        next_obs=jnp.array([[1.0, 1], [0, 1], [7, 7], [9, 9]]),
        start_obs=jnp.array([[5.0, 5], [5, 5], [1, 1], [5, 5]]),
        unit_reward=jnp.array([1.0, 0.5, 0.0, 1.0]),
    )
    metrics = diagnose(jnp.array([0.5, 0.25, 0.25, 0.0]), batch)
    assert float(metrics["weight/ess"]) == pytest.approx(1 / (4 * 0.375))
    assert float(metrics["weight/max"]) == pytest.approx(2.0)
    assert float(metrics["weight/kl"]) == pytest.approx(0.5 * np.log(2))
    assert float(metrics["weight/reward"]) == pytest.approx(0.625)
    assert float(metrics["weight/flow"]) == pytest.approx((0 + 0.75 / np.sqrt(0.75)) / 2, rel=1e-5)


# ---------------------------------------------------------------------------------------------------- dual


@pytest.fixture(scope="module")
def easy() -> dict[float, dict[str, float]]:
    """Metrics by budget on rows whose reward says nothing about where they lead: the best ν is 0.

    The reward is spread evenly over [0, 1], so w ∝ exp(r/λ) with the λ that spends the budget.
    """

    def train_for(budget: float) -> dict[str, float]:
        *_, metrics = train(tiny(Dual, budget=budget), batches)
        return {name: float(values[-300:].mean()) for name, values in metrics.items()}

    batches = stream(1200, size=512)
    return {budget: train_for(budget) for budget in (0.3, 1.0)}


def spent(temperature: float) -> float:
    """KL of w ∝ exp(r/λ) from a uniform reward on [0, 1]."""
    reward = (np.arange(20_000) + 0.5) / 20_000
    weight = np.exp((reward - 1) / temperature)
    weight /= weight.mean()
    return float(np.mean(weight * np.log(weight)))


@pytest.mark.parametrize("budget", [0.3, 1.0])
def test_dual_spends_its_budget(easy: dict[float, dict[str, float]], budget: float) -> None:
    assert easy[budget]["weight/kl"] == pytest.approx(budget, rel=0.1)
    exact = brentq(lambda temperature: spent(temperature) - budget, 0.01, 10)
    assert easy[budget]["weighter/temperature"] == pytest.approx(exact, rel=0.1)


def test_a_larger_budget_means_a_lower_temperature_and_more_reward(easy: dict[float, dict[str, float]]) -> None:
    assert easy[1.0]["weighter/temperature"] < easy[0.3]["weighter/temperature"]
    assert easy[1.0]["weight/kl"] > easy[0.3]["weight/kl"]
    assert easy[1.0]["weight/reward"] > easy[0.3]["weight/reward"]


def still(batches: Batch) -> Batch:
    """The same rows in one state that is never left: the reward alone makes weights."""
    return batches._replace(**dict.fromkeys(("obs", "next_obs", "start_obs"), 0 * batches.obs))


def test_dual_temperature_never_falls_below_its_floor() -> None:
    weighter = tiny(Dual, budget=50.0, temperature=0.02, least_temperature=0.01)
    *_, metrics = train(weighter, still(stream(200, size=64)))
    assert metrics["weighter/temperature"].min() == pytest.approx(0.01)


def test_dual_temperature_leaves_its_floor_when_too_much_is_spent() -> None:
    """The minimum is over λ ≥ λ_min, so a λ that fell to it must rise again once weights exceed the budget."""
    weighter = tiny(Dual, budget=0.3, temperature=0.02, least_temperature=0.01)
    batches = still(stream(800, size=64))
    batches = batches._replace(unit_reward=batches.unit_reward.at[:200].set(0.3))
    *_, metrics = train(weighter, batches)
    temperature, kl = metrics["weighter/temperature"], metrics["weight/kl"]
    assert temperature[199] == pytest.approx(0.01)
    assert kl[200] > 1
    assert kl[-100:].mean() == pytest.approx(0.3, rel=0.2)


def test_dual_refresh_averages_log_weights_over_each_episode() -> None:
    by_row, averaged = tiny(Dual), tiny(Dual, average="trajectory")
    state, rows, episode = averaged.init(KEY, SPEC), toy_batch(size=6), jnp.array([0, 0, 0, 1, 2, 2])
    rows = rows._replace(row=jnp.arange(6))
    table = averaged.refresh(state, lambda index: take(rows, index), episode).table
    score = np.asarray(by_row.log_weight(state, rows))
    np.testing.assert_allclose(table, np.repeat([score[:3].mean(), score[3], score[4:].mean()], [3, 1, 2]), rtol=1e-5)


# --------------------------------------------------------------------------------------------------- fixed


def test_fixed_weights_depend_on_ratios_alone(folder: Path) -> None:
    batch = toy_batch()._replace(row=jnp.arange(8))

    def weights(scale: float) -> Any:
        np.save(folder / f"{scale}.npy", scale * np.arange(1.0, 41.0))
        weighter = Fixed(path=str(folder / f"{scale}.npy"))
        return weighter.update(weighter.init(KEY, SPEC), batch, KEY)[1].sa

    np.testing.assert_allclose(weights(1e-20), weights(1.0), rtol=1e-4)
    np.testing.assert_allclose(weights(1.0), np.arange(1, 9) / 36, rtol=1e-5)


def test_a_batch_of_rows_that_fixed_gives_no_weight_teaches_nothing(folder: Path) -> None:
    weighter = weighter_case("fixed", folder)
    batch = toy_batch()._replace(row=jnp.full(8, 3))
    _, weights, metrics = weighter.update(weighter.init(KEY, SPEC), batch, KEY)
    assert (weights.sa == 0).all()
    assert not np.isnan(float(metrics["weight/reward"]))
