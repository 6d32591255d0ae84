"""OptiDICE's weights against NumPy and against its primal problem, and the policy that is extracted from weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import SPEC, bandit, quick_compiles, tiny, toy_batch, toy_dataset
from scipy.optimize import minimize
from scipy.special import xlogy
from scipy.stats import norm

from winnow.algorithms import BC
from winnow.algorithms.projection import COMPONENTS, mixture_log_prob, projection_init
from winnow.methods import method
from winnow.packs.pack import Pack
from winnow.packs.run import Run
from winnow.samplers import Uniform
from winnow.training import train_runs
from winnow.training.planning import plan
from winnow.types import Batch, Spec, Weights
from winnow.weighters import NoWeights, OptiDICE
from winnow.weighters.optidice import DIVERGENCES

KEY = jax.random.key(0)
F = {
    "kl": lambda w: xlogy(w, w),
    "soft-chi2": lambda w: np.where(w < 1, xlogy(w, w) - w + 1, (w - 1) ** 2 / 2),
}
INVERSE = {"kl": lambda y: np.exp(y - 1), "soft-chi2": lambda y: np.where(y < 0, np.exp(np.minimum(y, 0)), y + 1)}
both = pytest.mark.parametrize("divergence", ["kl", "soft-chi2"])


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with quick_compiles():
        yield


# ------------------------------------------------------------------------------------------- closed forms


@both
def test_weights_maximise_gain_less_divergence(divergence: Any) -> None:
    """w = argmax of w y − f(w), found on a grid, and the dual's term is that maximum."""
    weighter, y = OptiDICE(divergence=divergence), np.linspace(-3, 2.5, 23)
    grid = np.linspace(0, 8, 80_001)
    value = y[:, None] * grid - F[divergence](grid)
    score = jnp.asarray(y - DIVERGENCES[divergence].shift)
    np.testing.assert_allclose(np.exp(weighter._log_ratio(score)), grid[value.argmax(axis=1)], atol=2e-4)
    np.testing.assert_allclose(weighter._area(score) - DIVERGENCES[divergence].floor, value.max(axis=1), atol=1e-5)


@both
def test_the_dual_is_smooth_at_its_knee_and_its_slope_is_the_weight(divergence: Any) -> None:
    weighter, knee = OptiDICE(divergence=divergence), DIVERGENCES[divergence].knee
    for score in (knee - 2, knee - 1e-4, knee + 1e-4, knee + 2):
        slope = jax.grad(lambda x: weighter._area(x))(score)
        assert float(slope) == pytest.approx(float(jnp.exp(weighter._log_ratio(jnp.asarray(score)))), rel=1e-4)


@both
@pytest.mark.parametrize("terminal", ["end", "reset"])
def test_loss_and_weights_equal_numpy(divergence: Any, terminal: Any) -> None:
    weighter = tiny(OptiDICE, divergence=divergence, terminal=terminal, alpha=0.7, discount=0.9)
    state, batch = weighter.init(KEY, SPEC), toy_batch()
    _, weights, metrics = weighter.update(state, batch, KEY)
    first, last = state.params["nu"]

    def nu(obs: Any) -> np.ndarray:
        hidden = np.maximum(np.asarray(obs) @ np.asarray(first["w"]) + np.asarray(first["b"]), 0)
        return (hidden @ np.asarray(last["w"]) + np.asarray(last["b"]))[:, 0]

    ends = np.asarray(batch.terminal)
    leads = np.where(ends > 0, nu(batch.start_obs) if terminal == "reset" else 0, nu(batch.next_obs))
    gain = np.asarray(batch.unit_reward) + 0.9 * leads - nu(batch.obs)
    ratio = np.maximum(0, INVERSE[divergence](gain / 0.7))
    loss = 0.1 * nu(batch.start_obs).mean() + (ratio * gain - 0.7 * F[divergence](ratio)).mean()
    assert float(metrics["weighter/loss"]) == pytest.approx(loss, rel=1e-4)
    assert float(metrics["weighter/ratio"]) == pytest.approx(ratio.mean(), rel=1e-4)
    np.testing.assert_allclose(weights.sa, ratio / ratio.sum(), rtol=1e-4)
    np.testing.assert_allclose(np.exp(weighter.log_weight(state, batch)), ratio, rtol=1e-4)


# ---------------------------------------------------------------------------- a problem with a known answer

STATES, GAMMA = 5, 0.9


def walk(ends: bool) -> tuple[Batch, np.ndarray, np.ndarray]:
    """A ring of states with two moves each; the data has some moves more often than others. With `ends`, the move
    that pays most is a terminal. One line for each copy of a row; states and successors as numbers beside it."""
    rng = np.random.default_rng(1)
    state, move = np.repeat(np.arange(STATES), 2), np.tile([0, 1], STATES)
    following, reward = (state + 1 + move) % STATES, rng.random(2 * STATES)
    reward = (reward - reward.min()) / (reward.max() - reward.min())
    terminal = np.zeros(2 * STATES)
    terminal[reward.argmax()] = ends
    copies = np.repeat(np.arange(2 * STATES), rng.integers(1, 5, 2 * STATES))
    one_hot = np.eye(STATES, dtype=np.float32)
    count = len(copies)
    batch = Batch(
        obs=jnp.asarray(one_hot[state[copies]]),
        action=jnp.zeros((count, 1)),
        reward=jnp.asarray(reward[copies], jnp.float32),
        next_obs=jnp.asarray(one_hot[following[copies]]),
        terminal=jnp.asarray(terminal[copies], jnp.float32),
        unit_reward=jnp.asarray(reward[copies], jnp.float32),
        start_obs=jnp.asarray(one_hot[np.zeros(count, int)]),
        row=jnp.arange(count),
        step=jnp.zeros((), int),
        progress=jnp.zeros(()),
    )
    return batch, state[copies], following[copies]


def primal(divergence: str, alpha: float, ends: bool) -> np.ndarray:
    """max mean(w r) − α mean f(w) over w ≥ 0 where every state's outflow is its inflow and (1 − γ) at the start."""
    batch, state, following = walk(ends)
    reward, goes_on = np.asarray(batch.unit_reward, float), 1 - np.asarray(batch.terminal, float)
    count = len(reward)
    leaves = np.eye(STATES)[state].T / count
    enters = GAMMA * np.eye(STATES)[following].T * goes_on / count
    start = (1 - GAMMA) * np.eye(STATES)[0]

    def cost(w: np.ndarray) -> float:
        return -float(np.mean(w * reward - alpha * F[divergence](w)))

    def slope(w: np.ndarray) -> np.ndarray:
        rises = {"kl": np.log(w) + 1, "soft-chi2": np.where(w < 1, np.log(w), w - 1)}[divergence]
        return -(reward - alpha * rises) / count

    flow: Any = {"type": "eq", "fun": lambda w: (leaves - enters) @ w - start, "jac": lambda w: leaves - enters}
    options = {"ftol": 1e-13, "maxiter": 2000}
    found = minimize(cost, np.ones(count), jac=slope, bounds=[(1e-9, None)] * count, constraints=flow, options=options)
    assert found.success
    return found.x


@jax.jit
def _solve(weighter: Any, state: Any, batch: Batch, rates: Any) -> Any:
    def step(state: Any, rate: Any) -> tuple[Any, None]:
        return dataclasses.replace(weighter, learning_rate=rate).update(state, batch, KEY)[0], None

    return jax.lax.scan(step, state, rates)[0]


def solved(divergence: Any, alpha: float, ends: bool) -> tuple[Any, Any, Batch]:
    weighter = OptiDICE(divergence=divergence, alpha=alpha, discount=GAMMA, hidden=())
    batch, *_ = walk(ends)
    rates = jnp.concatenate([jnp.full(12_000, 0.03), jnp.full(4_000, 0.003), jnp.full(2_000, 3e-4)])
    return weighter, _solve(weighter, weighter.init(KEY, Spec(STATES, 1, 1)), batch, rates), batch


@both
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_a_table_of_nu_comes_to_the_weights_of_the_primal_problem(divergence: Any, ends: bool, alpha: float) -> None:
    weighter, state, batch = solved(divergence, alpha, ends)
    exact = primal(divergence, alpha, ends)
    np.testing.assert_allclose(np.exp(weighter.log_weight(state, batch)), exact, atol=0.02)
    _, weights, metrics = weighter.update(state, batch, KEY)
    np.testing.assert_allclose(weights.sa, exact / exact.sum(), atol=1e-3)
    if not ends:  # all that starts stays, so the ratio's mean is 1 without its being asked for
        assert float(metrics["weighter/ratio"]) == pytest.approx(1, abs=0.01)


def test_a_lower_alpha_gives_more_reward_from_fewer_rows() -> None:
    rewards, shares = [], []
    for alpha in (0.1, 1.0, 5.0):
        weighter, state, batch = solved("soft-chi2", alpha, ends=False)
        _, _, metrics = weighter.update(state, batch, KEY)
        rewards.append(float(metrics["weight/reward"]))
        shares.append(float(metrics["weight/ess"]))
    assert rewards == sorted(rewards, reverse=True)
    assert shares == sorted(shares)


# ------------------------------------------------------------------------------------------------ finiteness


@both
@pytest.mark.parametrize("alpha", [1e-4, 0.1])
def test_a_small_alpha_stays_finite(divergence: Any, alpha: float) -> None:
    """exp(e/α) is far beyond float32 at the first update with α = 10⁻⁴."""
    weighter = tiny(OptiDICE, divergence=divergence, alpha=alpha, learning_rate=1e-2)
    state, batch = weighter.init(KEY, SPEC), toy_batch(size=64)
    update = jax.jit(lambda state: weighter.update(state, batch, KEY))
    for _ in range(300):
        state, *_ = update(state)
    state, weights, metrics = update(state)
    for leaf in jax.tree.leaves((state, weights, metrics, weighter.log_weight(state, batch))):
        assert np.isfinite(leaf).all()
    assert float(weights.sa.sum()) == pytest.approx(1, abs=1e-5)


def test_a_run_has_finite_weights_for_every_row() -> None:
    data = toy_dataset(200, longest=40)
    sampler, weighter = method("optidice-w", "bc")
    assert isinstance(sampler, Uniform)
    assert isinstance(weighter, OptiDICE)
    tight = tiny(OptiDICE, alpha=0.01, divergence="kl", learning_rate=1e-3)
    runs = plan(data, tiny(BC), "optidice-w", weighter=tight)
    assert runs[0].method == "optidice-w"
    (trained,) = train_runs(runs, steps=200, batch_size=32, chunk=100, progress=False)
    assert trained.failure is None
    weight = trained.weights().weight
    assert np.isfinite(weight).all()
    assert weight.mean() == pytest.approx(1)


# ----------------------------------------------------------------------------------- information projection


def test_the_mixture_is_a_density() -> None:
    """Against scipy, component by component."""
    params = projection_init(KEY, SPEC, (16,))["data"]
    obs, action = toy_batch().obs, toy_batch().action
    hidden = np.maximum(np.asarray(obs) @ np.asarray(params[0]["w"]), 0)
    out = hidden @ np.asarray(params[1]["w"])
    share = np.exp(out[:, :COMPONENTS])
    share /= share.sum(axis=1, keepdims=True)
    centre, log_std = (side.reshape(8, COMPONENTS, 2) for side in np.split(out[:, COMPONENTS:], 2, axis=1))
    each = norm.pdf(np.asarray(action)[:, None], np.tanh(centre), np.exp(log_std)).prod(axis=2)
    np.testing.assert_allclose(mixture_log_prob(params, obs, action), np.log((share * each).sum(axis=1)), rtol=1e-4)


def extracted(extraction: Any, log_weight: Any, steps: int = 2000) -> tuple[float, float]:
    """Mean and deviation of a policy in one state whose data has actions spread evenly over ±1, weighed as given."""
    learner = tiny(BC, extraction=extraction, learning_rate=3e-3, hidden=(32,))
    size, spec = 128, Spec(1, 1, 1)
    still = jnp.ones((size, 1))

    @jax.jit
    def train(state: Any, keys: Any) -> Any:
        def step(state: Any, key: Any) -> tuple[Any, None]:
            action = jax.random.uniform(key, (size, 1), minval=-1.0, maxval=1.0)
            weight = jax.nn.softmax(log_weight(action[:, 0]))
            none = 0 * weight
            batch = Batch(still, action, none, still, none, none, still, none, jnp.zeros((), int), jnp.zeros(()))
            return learner.update(state, batch, Weights(weight, weight), key)[0], None

        return jax.lax.scan(step, state, keys)[0]

    state = train(learner.init(KEY, spec), jax.random.split(KEY, steps))
    return float(learner.act(state, jnp.ones(1))[0]), float(jnp.exp(state.params["actor"]["log_std"][0]))


@pytest.mark.parametrize("extraction", ["clone", "projection"])
def test_both_ways_find_the_weighted_policy(extraction: Any) -> None:
    """w is a Gaussian about 0.4 with deviation 0.2 on even data: so is the weighted policy."""
    mean, deviation = extracted(extraction, lambda a: -(((a - 0.4) / 0.2) ** 2) / 2)
    assert mean == pytest.approx(0.4, abs=0.08)
    assert deviation == pytest.approx(0.2, rel=0.4)


def test_projection_takes_one_of_two_modes_and_cloning_the_middle() -> None:
    """Peaks at ±0.6, the left one e times as high: the mean action is −0.28."""

    def peaks(a: Any) -> Any:
        return jnp.logaddexp(-(((a - 0.6) / 0.2) ** 2) / 2, 1 - (((a + 0.6) / 0.2) ** 2) / 2)

    assert extracted("clone", peaks, 4000)[0] == pytest.approx(-0.28, abs=0.1)
    assert extracted("projection", peaks, 4000)[0] == pytest.approx(-0.6, abs=0.15)


def test_projection_trains_in_a_pack() -> None:
    learner = tiny(BC, extraction="projection", hidden=(16,))
    pack = Pack([Run(bandit(64), learner, Uniform(), NoWeights())], steps=20, batch_size=16)
    pack.advance(20)
    means = pack.end_chunk()
    assert {"loss/actor", "loss/data", "loss/ratio"} <= set(means)
    assert all(np.isfinite(value).all() for value in means.values())
