"""Density and Dual against their losses written once more, in NumPy and float64, from their definitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import SPEC, perturbed, quick_compiles, toy_batch

from winnow.weighters import Density, Dual

KEY = jax.random.key(2)
BATCH = toy_batch(seed=9, size=12)
UPDATE: Any = jax.jit(lambda weighter, state, batch: weighter.update(state, batch, KEY))


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with quick_compiles():
        yield


def double(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def network(layers: Any, *inputs: np.ndarray) -> np.ndarray:
    x = np.concatenate(inputs, axis=-1)
    for layer in layers[:-1]:
        x = np.maximum(x @ layer["w"] + layer["b"], 0)
    return (x @ layers[-1]["w"] + layers[-1]["b"])[:, 0]


def successor(batch: Any) -> np.ndarray:
    return np.array(
        [s0 if end else s for s0, s, end in zip(batch.start_obs, batch.next_obs, batch.terminal, strict=True)]
    )


def normalised(score: np.ndarray) -> np.ndarray:
    weight = np.exp(score - score.max())
    return weight / weight.sum()


def density(weighter: Density, params: Any, state: Any, batch: Any) -> tuple[float, np.ndarray, np.ndarray]:
    phi, psi = network(params["phi"], batch.obs), network(params["psi"], batch.obs, batch.action)
    bound = (lambda x: x) if weighter.form == "paper" else (lambda x: np.minimum(np.maximum(x, -1.2), 1.2))
    weight = normalised(bound(phi + psi) if weighter.form == "code-td3bc" else bound(phi) + bound(psi))
    marginal = normalised(bound(phi))
    flow = (np.exp(network(params["phi"], successor(batch))) - np.exp(phi + psi)) ** 2
    if weighter.terminal == "mask":
        flow = np.where(batch.terminal == 1, 0, flow)
    held = marginal if weighter.form == "code-td3bc" else weight
    spread = (held * np.log(held)).sum()
    loss = -(weight * batch.unit_reward).sum() + weighter.lambda_f * flow.mean() + weighter.lambda_k * spread
    return loss, weight, marginal if weighter.state_weight == "marginal" else weight


def dual(weighter: Dual, params: Any, state: Any, batch: Any) -> tuple[float, np.ndarray, np.ndarray]:
    def heat(params: Any) -> float:
        if weighter.control == "temperature":
            return weighter.temperature
        return max(np.exp(params["log_temperature"]), weighter.least_temperature)

    def gain(params: Any) -> np.ndarray:
        flow = weighter.discount * network(params["nu"], successor(batch)) - network(params["nu"], batch.obs)
        if weighter.terminal == "mask":
            flow = np.where(batch.terminal == 1, 0, flow)
        return batch.unit_reward + flow

    loss = heat(params) * np.log(np.mean(np.exp(gain(params) / heat(params))))
    loss += (1 - weighter.discount) * network(params["nu"], batch.start_obs).mean()
    if weighter.control == "budget":
        loss += heat(params) * weighter.budget
    score = state.table[batch.row.astype(int)] if weighter.average == "trajectory" else gain(params) / heat(params)
    if weighter.state_weight == "joint":
        return loss, normalised(score), normalised(score)
    held = (
        state.table[batch.row.astype(int)]
        if weighter.average == "trajectory"
        else gain(state.params) / heat(state.params)
    )
    ratio, log_ratio = len(held) * normalised(held), network(params["state"], batch.obs)
    return loss + np.mean(np.exp(log_ratio) - ratio * log_ratio), normalised(score), normalised(log_ratio)


HIDDEN: Any = {"hidden": (16, 16)}
CASES: dict[str, Any] = {
    "density-code": Density(lambda_k=0.2, lambda_f=0.1, **HIDDEN),
    "density-paper": Density(form="paper", lambda_k=0.7, lambda_f=2.0, **HIDDEN),
    "density-td3bc": Density(form="code-td3bc", state_weight="marginal", **HIDDEN),
    "density-mask": Density(terminal="mask", **HIDDEN),
    "density-paper-mask-marginal": Density(form="paper", terminal="mask", state_weight="marginal", **HIDDEN),
    "density-code-marginal": Density(state_weight="marginal", **HIDDEN),
    "dual-budget": Dual(**HIDDEN),
    "dual-temperature": Dual(control="temperature", temperature=0.3, **HIDDEN),
    "dual-discount": Dual(discount=0.9, budget=0.5, **HIDDEN),
    "dual-mask": Dual(terminal="mask", **HIDDEN),
    "dual-mask-discount-temperature": Dual(terminal="mask", discount=0.8, control="temperature", **HIDDEN),
    "dual-marginal": Dual(state_weight="marginal", **HIDDEN),
    "dual-trajectory-marginal": Dual(average="trajectory", state_weight="marginal", **HIDDEN),
}


def begin(weighter: Any) -> Any:
    """A state with weights far from uniform; for Density some of φ and ψ lie beyond ±1.2."""
    state = weighter.init(KEY, SPEC)
    state = state._replace(params=perturbed(state.params, seed=0, amount=0.3))
    if getattr(weighter, "refreshes", False):
        state = state._replace(table=jax.random.normal(KEY, state.table.shape))
    return state


@pytest.mark.parametrize("case", CASES)
def test_loss_weights_and_gradients_are_those_of_the_definitions(case: str) -> None:
    weighter = CASES[case]
    losses: Any = density if isinstance(weighter, Density) else dual
    state = begin(weighter)
    new, weights, metrics = UPDATE(weighter, state, BATCH)
    frozen, batch = double(state), double(BATCH)
    loss, pair, marginal = losses(weighter, frozen.params, frozen, batch)
    assert float(metrics["weighter/loss"]) == pytest.approx(loss, rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(weights.sa, pair, rtol=1e-4)
    np.testing.assert_allclose(weights.s, marginal, rtol=1e-4)

    rng = np.random.default_rng(0)
    leaves, structure = jax.tree.flatten(frozen.params)
    for number, (place, moment) in enumerate(jax.tree_util.tree_leaves_with_path(new.optimiser.moments.mu)):
        gradient = 10 * np.asarray(moment, np.float64)
        for _ in range(3):
            entry = tuple(int(rng.integers(length)) for length in gradient.shape)

            def at(shift: float, number: int = number, entry: tuple[int, ...] = entry) -> float:
                moved = leaves[number].copy()
                moved[entry] += shift
                params = jax.tree.unflatten(structure, [*leaves[:number], moved, *leaves[number + 1 :]])
                return losses(weighter, params, frozen, batch)[0]

            slope = (at(1e-6) - at(-1e-6)) / 2e-6
            size = np.abs(gradient).max()
            assert gradient[entry] == pytest.approx(slope, rel=2e-3, abs=1e-4 * size + 2e-6), jax.tree_util.keystr(
                place
            )

    rates = dict.fromkeys(frozen.params, weighter.learning_rate)
    if isinstance(weighter, Dual):
        rates["log_temperature"] = weighter.temperature_rate
    for name, group in frozen.params.items():
        step = jax.tree.map(lambda m: 10 * m / (np.abs(10 * m) + 1e-8), double(new.optimiser.moments.mu[name]))
        expected = jax.tree.map(lambda p, d, rate=rates[name]: p - rate * d, group, step)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6), new.params[name], expected)


@pytest.mark.parametrize("case", ["density-code", "density-paper"])
def test_the_cases_reach_beyond_the_clip(case: str) -> None:
    state, batch = double(begin(CASES[case])), double(BATCH)
    phi, psi = network(state.params["phi"], batch.obs), network(state.params["psi"], batch.obs, batch.action)
    for value in (phi, psi):
        assert 0 < (np.abs(value) > 1.2).sum() < len(value)


def test_the_gradient_in_nu_is_the_flow_residual_under_the_weights() -> None:
    """METHOD: d/dν of the dual is E_w[∇ν(s') − ∇ν(s)]; for the last bias it is 0, for a linear ν the mean drift."""
    weighter = Dual(hidden=(), control="temperature", temperature=0.2)
    state = weighter.init(KEY, SPEC)
    new, weights, _ = UPDATE(weighter, state, BATCH)
    drift = weights.sa @ (jnp.asarray(successor(double(BATCH))) - BATCH.obs)
    layer = new.optimiser.moments.mu["nu"][0]
    np.testing.assert_allclose(10 * layer["w"][:, 0], drift, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(10 * layer["b"], 0, atol=1e-6)


def test_the_temperature_gradient_is_the_budget_that_is_left() -> None:
    """d/d(log λ) of λ ε + λ log E[exp(e/λ)] is λ (ε − KL)."""
    weighter = Dual(budget=0.7, **HIDDEN)
    state = begin(weighter)
    new, _, metrics = UPDATE(weighter, state, BATCH)
    left = float(metrics["weighter/temperature"]) * (0.7 - float(metrics["weight/kl"]))
    assert 10 * float(new.optimiser.moments.mu["log_temperature"]) == pytest.approx(left, rel=1e-3)
