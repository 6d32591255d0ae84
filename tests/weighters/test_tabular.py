"""Weighters against exact answers: a linear program and Newton's method on a grid of four small rooms."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from winnow.packs.pack import Pack
from winnow.samplers import AW, PF
from winnow.tabular.data import Data
from winnow.tabular.exact import distance_to_optimum, divergence, exact_budget, exact_dual, linear_program
from winnow.tabular.judge import extracted, from_rows
from winnow.tabular.small_rooms import collect, edge_log_weights, judge, small_rooms, table_of_nu, train
from winnow.weighters import Density, Dual


@cache
def data(slip: float = 0.0) -> Data:
    return collect(small_rooms(slip))


def tabular_dual(**settings: Any) -> Dual:
    """ν as a table: a linear network on one-hot states."""
    return Dual(hidden=(), learning_rate=0.03, temperature_rate=0.1, **settings)


def fixed(temperature: float, **settings: Any) -> Dual:
    return tabular_dual(control="temperature", temperature=temperature, **settings)


@cache
def learnt(weighter: Any, slip: float = 0.0) -> np.ndarray:
    """[edges] log w after training, with E_D[w] = 1."""
    pack = train([(data(slip), weighter, 0)])
    return edge_log_weights(data(slip), pack.log_weights(0))


def assert_same_weights(log_weight: np.ndarray, exact: np.ndarray, data: Data) -> None:
    """Total variation of the weighted data, and log w of every edge that has 0.1 % of it or more."""
    weighted, wanted = data.share * np.exp(log_weight), data.share * np.exp(exact)
    assert np.abs(weighted - wanted).sum() / 2 < 0.02
    np.testing.assert_allclose(log_weight[wanted > 1e-3], exact[wanted > 1e-3], atol=0.15)


# ------------------------------------------------------------------------------------- the exact answers


def test_the_data_holds_no_optimal_episode_and_yet_all_that_an_optimal_one_is_made_of() -> None:
    assert data().dataset.episodes.length.min() > data().grid.least_steps[0]
    assert linear_program(data())[0] == pytest.approx(data().grid.best) == pytest.approx(1 / 12)


def test_where_nothing_slips_edges_and_pairs_are_the_same() -> None:
    assert linear_program(data(), "edge")[0] == pytest.approx(linear_program(data(), "pair")[0])


@pytest.mark.parametrize("slip", [0.0, 0.1])
def test_the_behaviour_is_worth_what_its_data_holds(slip: float) -> None:
    """Some recordings stop at their time limit, so a little flow is lost."""
    judged = judge(data(slip), np.zeros(len(data(slip).dataset)))
    assert judged.value == pytest.approx(judged.reported, rel=0.15)
    assert judged.flow < 0.01


@pytest.mark.parametrize(("discount", "terminal"), [(1.0, "reset"), (0.9, "reset"), (1.0, "mask"), (0.9, "mask")])
def test_the_exact_dual_conserves_flow(discount: float, terminal: str) -> None:
    """inflow · γ + (1 − γ) at the start = outflow, over the rows that flow."""
    world = data(0.1)
    weighted = world.share * np.exp(exact_dual(world, 0.1, discount, terminal))
    flows = weighted * (1 - world.terminal) if terminal == "mask" else weighted
    balance = discount * np.bincount(world.following, flows, 39) - np.bincount(world.state, flows, 39)
    balance[0] += 1 - discount
    assert weighted.sum() == pytest.approx(1)
    np.testing.assert_allclose(balance, 0, atol=1e-6)


def test_the_exact_dual_tends_to_the_linear_program() -> None:
    judged = judge(data(), exact_dual(data(), 0.003)[data().edge])
    assert judged.reported == pytest.approx(1 / 12, rel=1e-4)
    assert judged.value == pytest.approx(1 / 12, rel=1e-4)
    assert judged.distance < 1e-4


# ---------------------------------------------------------------------------------------------------- dual


@cache
def sharp() -> Pack:
    return train([(data(), fixed(0.01), 0)], batch_size=8192)


def test_dual_reaches_the_optimum_of_the_linear_program() -> None:
    judged = judge(data(), sharp().log_weights(0))
    best, _ = linear_program(data())
    assert judged.reported == pytest.approx(best, rel=0.01)
    assert judged.value == pytest.approx(best, rel=0.01)
    assert judged.flow < 0.01
    assert judged.distance < 0.01


def test_dual_finds_the_exact_weights() -> None:
    assert_same_weights(edge_log_weights(data(), sharp().log_weights(0)), exact_dual(data(), 0.01), data())


def test_a_linear_dual_on_one_hot_states_is_a_table() -> None:
    """log w from the table of ν is the log w that the pack gives."""
    nu, world = table_of_nu(sharp(), 0, data()), data()
    score = (world.reward + nu[world.following] - nu[world.state]) / 0.01
    given = sharp().log_weights(0) - score[world.edge]
    np.testing.assert_allclose(given - given.mean(), 0, atol=0.02)


def test_dual_beats_every_way_of_drawing_episodes() -> None:
    """No episode is optimal, so only what joins pieces of them can be."""
    nothing = np.zeros(len(data().dataset))
    episodes = [judge(data(), nothing, sampler).value for sampler in (None, AW(), PF(), AW(0.01), PF(0.003))]
    assert max(episodes) < 0.8 * judge(data(), sharp().log_weights(0)).value


def test_where_moves_slip_dual_finds_the_exact_weights_of_edges() -> None:
    assert_same_weights(learnt(fixed(0.03), slip=0.1), exact_dual(data(0.1), 0.03), data(0.1))


def test_where_moves_slip_dual_promises_more_than_is_possible() -> None:
    """It weighs (s, a, s'), so it counts on lucky outcomes: docs/weighters.md says so."""
    world = data(0.1)
    judged = judge(world, learnt(fixed(0.03), slip=0.1)[world.edge])
    possible, lucky = linear_program(world, "pair")[0], linear_program(world, "edge")[0]
    assert 1.1 * possible < judged.reported < 1.02 * lucky
    assert judged.value < possible
    assert judged.value > 2 * judge(world, np.zeros(len(world.dataset))).value


@pytest.mark.parametrize("budget", [0.25, 0.5])
def test_dual_spends_a_budget_that_binds(budget: float) -> None:
    log_weight = learnt(tabular_dual(budget=budget))
    temperature, exact = exact_budget(data(), budget)
    assert temperature > 0.02
    assert divergence(data(), exact) == pytest.approx(budget, rel=1e-3)
    assert divergence(data(), log_weight) == pytest.approx(budget, rel=0.05)
    assert_same_weights(log_weight, exact, data())


def test_dual_leaves_what_it_cannot_use_of_a_budget() -> None:
    """The optimum is less than 2 nats away: λ falls to its least value and the budget is not spent."""
    log_weight = learnt(tabular_dual(budget=2.0, least_temperature=0.02))
    assert divergence(data(), log_weight) < 1
    assert_same_weights(log_weight, exact_dual(data(), 0.02), data())


@pytest.mark.parametrize("discount", [0.9, 0.95])
def test_dual_with_a_discount_finds_the_exact_weights(discount: float) -> None:
    exact = exact_dual(data(), 0.03, discount)
    assert_same_weights(learnt(fixed(0.03, discount=discount)), exact, data())


def test_a_discount_gives_the_first_steps_more_weight() -> None:
    """The share of the start state: a twelfth of the optimal flow, and 1 − γ more with restarts."""
    start = data().state == 0
    plain, restarts = (data().share * np.exp(learnt(fixed(0.03, discount=gamma))) for gamma in (0.95, 0.9))
    assert restarts[start].sum() > plain[start].sum() > 1.2 / 12


def test_a_masked_terminal_leaves_the_flow() -> None:
    """Then nothing pays for the goal's rows: they take a share that no policy could give them."""
    masked = learnt(fixed(0.3, terminal="mask"))
    assert_same_weights(masked, exact_dual(data(), 0.3, terminal="mask"), data())
    reset = judge(data(), exact_dual(data(), 0.3)[data().edge])
    judged = judge(data(), masked[data().edge])
    assert judged.reported > 3 * linear_program(data())[0] > 3 * reset.reported
    assert judged.flow > 0.3 > 100 * reset.flow
    assert judged.value < reset.value


def test_trajectory_averages_are_the_mean_of_log_weights_over_each_episode() -> None:
    pack = train([(data(), fixed(0.1, average="trajectory"), 0)], ((1.0, 300), (0.1, 300)), batch_size=1024)
    assert (pack.log_weights(0) == 0).all()  # until the first refresh every row counts the same
    pack.end_chunk()
    given, world = pack.log_weights(0), data()
    nu = table_of_nu(pack, 0, world)
    score = ((world.reward + nu[world.following] - nu[world.state]) / 0.1)[world.edge]
    first, length = world.dataset.episodes.start, world.dataset.episodes.length
    wanted = np.add.reduceat(score, first) / length
    np.testing.assert_array_equal(given, np.repeat(given[first], length))
    np.testing.assert_allclose(given[first], wanted, atol=1e-3)
    assert np.corrcoef(given[first], data().dataset.returns)[0, 1] > 0.7


# ------------------------------------------------------------------------------------------------- density


@cache
def density(form: Any) -> Any:
    """With the settings published for CQL and TD3+BC, and tables for φ and ψ."""
    weighter = Density(form=form, lambda_k=0.2, lambda_f=0.1, hidden=(), learning_rate=0.01)
    pack = train([(data(), weighter, 0)], ((1.0, 1200), (0.1, 300)), batch_size=1024)
    return pack.log_weights(0), pack.end_chunk()


@pytest.mark.parametrize("form", ["paper", "code"])
def test_density_promises_what_no_policy_can_do(form: str) -> None:
    log_weight, metrics = density(form)
    best, _ = linear_program(data())
    judged = judge(data(), log_weight)
    assert judged.reported > 2 * best
    assert judged.flow > 0.1
    assert metrics["weighter/phi"][0] < -1  # the scale of w falls, and the flow penalty with it


@pytest.mark.parametrize("form", ["paper", "code"])
def test_a_policy_from_density_stays_near_the_behaviour_and_below_one_from_dual(form: str) -> None:
    behaviour = judge(data(), np.zeros(len(data().dataset))).value
    value = judge(data(), density(form)[0]).value
    assert value < 0.5 * judge(data(), sharp().log_weights(0)).value
    assert value == pytest.approx(behaviour, rel=0.5)


# -------------------------------------------------------------------------------------------- the measures


def test_measures_of_the_optimal_occupancy() -> None:
    best, weighted = linear_program(data())
    with np.errstate(divide="ignore"):
        log_weight = np.log(weighted / data().share)
    assert distance_to_optimum(data(), weighted) == pytest.approx(0, abs=1e-9)
    judged = judge(data(), np.maximum(log_weight, -700)[data().edge])
    assert judged == pytest.approx((best, 0, 0, best), abs=1e-9)


def test_a_policy_that_never_arrives_is_worth_nothing() -> None:
    stays = np.tile([1.0, 0, 0, 0], (39, 1))  # always up
    assert data().grid.value(stays) == 0


def test_the_extracted_policy_of_equal_weights_is_the_behaviour() -> None:
    policy = extracted(data(), from_rows(data()))
    assert policy.sum(axis=1) == pytest.approx(np.ones(39))
    best = np.argmin(data().grid.least_steps[data().grid.outcome], axis=1)
    assert (policy[np.arange(39), best] > 0.25).all()  # a quarter of three quarters at random, and some on purpose
