"""Every algorithm against its losses written once more, in NumPy and float64, from their definitions.

Only random draws are shared: they are made with the keys that the algorithm splits, in its order.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import SPEC, perturbed, quick_compiles, tiny, toy_batch, toy_weights
from scipy.special import log1p, logsumexp

from winnow.algorithms import BC, CQL, FQL, IQL, TD3BC, ReBRAC
from winnow.types import Batch

KEY = jax.random.key(11)
BATCH, WEIGHTS = toy_batch(seed=4), toy_weights(seed=4)
Losses = tuple[float, dict[str, Any]]


def double(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


UPDATE: Any = jax.jit(lambda algorithm, state, batch: algorithm.update(state, batch, WEIGHTS, KEY))


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with quick_compiles():
        yield


# --------------------------------------------------------------------------------------------- by hand


def network(layers: Any, *inputs: np.ndarray, keep: list[np.ndarray] | None = None, dropout: float = 0.0) -> np.ndarray:
    x = np.concatenate(inputs, axis=-1)
    for depth, layer in enumerate(layers[:-1]):
        x = np.maximum(x @ layer["w"] + layer["b"], 0)
        if keep is not None:
            x = x * keep[depth] / (1 - dropout)
    return x @ layers[-1]["w"] + layers[-1]["b"]


def critic(params: Any, number: int, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    layers = [{name: array[number] for name, array in layer.items()} for layer in params]
    obs = np.broadcast_to(obs, (*action.shape[:-1], obs.shape[-1]))
    return network(layers, obs, action)[..., 0]


def both(params: Any, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    return np.stack([critic(params, 0, obs, action), critic(params, 1, obs, action)])


def gaussian_log_density(actor: Any, mean: np.ndarray, action: np.ndarray) -> np.ndarray:
    log_std = np.minimum(np.maximum(actor["log_std"], -5), 2)
    variance = np.exp(2 * log_std)
    return (-((action - mean) ** 2) / (2 * variance) - log_std - 0.5 * np.log(2 * np.pi)).sum(axis=-1)


def tanh_gaussian(params: Any, obs: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Actions tanh(x), x = mean + std · noise, and their log density log N(x) − Σ log(1 − tanh² x)."""
    out = network(params["actor"], obs)
    half = out.shape[-1] // 2
    slope, offset = params["log_std_line"]
    mean, log_std = out[..., :half], np.clip(slope * out[..., half:] + offset, -20, 2)
    x = mean + np.exp(log_std) * noise
    density = -(noise**2) / 2 - log_std - 0.5 * np.log(2 * np.pi)
    return np.tanh(x), (density - log1p(-(np.tanh(x) ** 2))).sum(axis=-1)


def bc(algorithm: BC, params: Any, state: Any, batch: Any, weights: Any) -> Losses:
    mean = np.tanh(network(params["actor"]["mean"], batch.obs))
    loss = -(weights.sa * gaussian_log_density(params["actor"], mean, batch.action)).sum()
    return loss, {"loss/actor": loss}


@functools.cache
def iql_draws(algorithm: IQL, rows: int) -> list[np.ndarray]:
    keys = [jax.random.fold_in(KEY, depth) for depth in range(len(algorithm.hidden))]
    kept = [
        jax.random.bernoulli(k, 1 - algorithm.dropout, (rows, w)) for k, w in zip(keys, algorithm.hidden, strict=True)
    ]
    return double(kept)


def iql_value(algorithm: IQL, params: Any, state: Any, batch: Any, weights: Any) -> Losses:
    gap = both(state.target_critic, batch.obs, batch.action).min(axis=0) - network(params["value"], batch.obs)[:, 0]
    steep = np.where(gap < 0, 1 - algorithm.expectile, algorithm.expectile)
    value = (weights.s * steep * gap**2).sum()
    return value, {"loss/value": value}


def iql_rest(algorithm: IQL, params: Any, state: Any, batch: Any, weights: Any) -> Losses:
    """`state` holds the value function after its update."""
    target = both(state.target_critic, batch.obs, batch.action).min(axis=0)
    following = network(state.params["value"], batch.next_obs)[:, 0]
    backup = batch.reward + algorithm.discount * np.where(batch.terminal == 1, 0, following)
    q = both(params["critic"], batch.obs, batch.action)
    error = (weights.sa * ((q[0] - backup) ** 2 + (q[1] - backup) ** 2)).sum()

    keep = iql_draws(algorithm, len(batch.reward)) if algorithm.dropout else None
    mean = np.tanh(network(params["actor"]["mean"], batch.obs, keep=keep, dropout=algorithm.dropout))
    advantage = target - network(state.params["value"], batch.obs)[:, 0]
    boost = np.minimum(np.exp(algorithm.beta * advantage), 100)
    actor = -(weights.sa * boost * gaussian_log_density(params["actor"], mean, batch.action)).sum()
    return error + actor, {"loss/critic": error, "loss/actor": actor, "q": (weights.sa * q[0]).sum()}


@functools.cache
def cql_draws(algorithm: CQL, rows: int, size: int) -> list[np.ndarray]:
    """Noise of π(s), of a' (one or `max_backup` of them), uniform actions, noise of the penalty's π(s) and π(s')."""
    k_policy, k_next, k_uniform, k_here, k_there = jax.random.split(KEY, 5)
    several = (algorithm.samples, rows, size)
    drawn = [
        jax.random.normal(k_policy, (rows, size)),
        jax.random.normal(k_next, (algorithm.max_backup, rows, size) if algorithm.max_backup else (rows, size)),
        jax.random.uniform(k_uniform, several, minval=-1.0, maxval=1.0),
        jax.random.normal(k_here, several),
        jax.random.normal(k_there, several),
    ]
    return double(drawn)


def cql(algorithm: CQL, params: Any, state: Any, batch: Any, weights: Any) -> Losses:
    rows, size = batch.action.shape
    data = np.clip(batch.action, -algorithm.action_limit, algorithm.action_limit)
    noise, noise_next, flat, noise_here, noise_there = cql_draws(algorithm, rows, size)
    plain = np.full(rows, 1 / rows)
    on_error = {"none": weights.sa, "literal": weights.sa, "strict": plain}[algorithm.reg_only]
    on_policy = {"none": weights.s, "literal": plain, "strict": plain}[algorithm.reg_only]

    action, _ = tanh_gaussian(state.params, batch.next_obs, noise_next)
    value = both(state.target_critic, batch.next_obs, action).min(axis=0)
    value = value.max(axis=0) if algorithm.max_backup else value
    backup = batch.reward + algorithm.discount * np.where(batch.terminal == 1, 0, value)
    q = both(params["critic"], batch.obs, data)
    td = (on_error * ((q - backup) ** 2).sum(axis=0)).sum()

    here, log_here = tanh_gaussian(state.params, batch.obs, noise_here)
    there, log_there = tanh_gaussian(state.params, batch.next_obs, noise_there)
    log_flat = np.full(flat.shape[:-1], size * np.log(0.5))
    penalty = np.zeros(rows)
    for number in range(2):
        values = [critic(params["critic"], number, batch.obs, drawn) for drawn in (flat, here, there)]
        if algorithm.importance:
            values = [v - density for v, density in zip(values, (log_flat, log_here, log_there), strict=True)]
        else:
            values.append(q[number][None])
        penalty += logsumexp(np.concatenate(values), axis=0) - q[number]
    gap = (weights.sa * penalty).sum()

    own, log_own = tanh_gaussian(params, batch.obs, noise)
    alpha = np.exp(state.params["log_alpha"])
    actor = (on_policy * (alpha * log_own - both(state.params["critic"], batch.obs, own).min(axis=0))).sum()
    _, log_frozen = tanh_gaussian(state.params, batch.obs, noise)
    temperature = -params["log_alpha"] * (on_policy * (log_frozen + -size)).sum()
    metrics = {
        "loss/td": td,
        "loss/penalty": gap,
        "loss/actor": actor,
        "alpha": alpha,
        "entropy": -(on_policy * log_own).sum(),
        "q": (weights.sa * q[0]).sum(),
    }
    return td + algorithm.penalty * gap + actor + temperature, metrics


@functools.cache
def td3bc_draws(shape: tuple[int, ...]) -> np.ndarray:
    return double(jax.random.normal(KEY, shape))


def td3bc_critic(algorithm: TD3BC, params: Any, state: Any, batch: Any, weights: Any) -> Losses:
    noise = np.clip(
        algorithm.target_noise * td3bc_draws(batch.action.shape), -algorithm.noise_clip, algorithm.noise_clip
    )
    following = np.clip(np.tanh(network(state.target["actor"], batch.next_obs)) + noise, -1, 1)
    value = both(state.target["critic"], batch.next_obs, following).min(axis=0)
    backup = batch.reward + algorithm.discount * np.where(batch.terminal == 1, 0, value)
    q = both(params["critic"], batch.obs, batch.action)
    error = (weights.sa * ((q - backup) ** 2).sum(axis=0)).sum()
    return error, {"loss/critic": error, "q": (weights.sa * q[0]).sum()}


def td3bc_actor(algorithm: TD3BC, params: Any, state: Any, batch: Any, weights: Any) -> Losses:
    """`state` holds the critic after its update."""
    frozen = np.tanh(network(state.params["actor"], batch.obs))
    scale = algorithm.alpha / np.abs(critic(state.params["critic"], 0, batch.obs, frozen)).mean()
    action = np.tanh(network(params["actor"], batch.obs))
    improvement = scale * (weights.s * critic(state.params["critic"], 0, batch.obs, action)).sum()
    imitation = (weights.sa * ((action - batch.action) ** 2).mean(axis=-1)).sum()
    return imitation - improvement, {"loss/actor": imitation - improvement}


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def normed(layers: Any, *inputs: np.ndarray, activation: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Layers whose activations are standardised over the units, where a layer has a scale for that."""
    x = np.concatenate(inputs, axis=-1)
    for layer in layers[:-1]:
        x = activation(x @ layer["w"] + layer["b"])
        if "scale" in layer:
            mean = x.mean(axis=-1, keepdims=True)
            x = (x - mean) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-6) * layer["scale"] + layer["offset"]
    return x @ layers[-1]["w"] + layers[-1]["b"]


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def normed_both(params: Any, *inputs: np.ndarray, activation: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    each = [jax.tree.map(lambda array, number=number: array[number], params) for number in range(2)]
    return np.stack([normed(layers, *inputs, activation=activation)[..., 0] for layers in each])


def rebrac_policy(actor: Any, obs: np.ndarray) -> np.ndarray:
    return np.tanh(normed(actor, obs, activation=relu))


def rebrac_critic(algorithm: ReBRAC, params: Any, state: Any, batch: Any, weights: Any) -> Losses:
    """Rows whose episode ends have no next action: nothing is paid there."""
    noise = np.clip(
        algorithm.target_noise * td3bc_draws(batch.action.shape), -algorithm.noise_clip, algorithm.noise_clip
    )
    following = np.clip(rebrac_policy(state.target["actor"], batch.next_obs) + noise, -1, 1)
    value = normed_both(state.target["critic"], batch.next_obs, following, activation=relu).min(axis=0)
    ends = np.isnan(batch.next_action).any(axis=-1)
    distance = ((following - np.where(ends[:, None], following, batch.next_action)) ** 2).sum(axis=-1)
    value = value - algorithm.critic_penalty * distance
    backup = batch.reward + algorithm.discount * np.where(batch.terminal == 1, 0, value)
    q = normed_both(params["critic"], batch.obs, batch.action, activation=relu)
    error = (weights.sa * ((q - backup) ** 2).sum(axis=0)).sum()
    return error, {"loss/critic": error, "q": (weights.sa * q[0]).sum()}


def rebrac_actor(algorithm: ReBRAC, params: Any, state: Any, batch: Any, weights: Any) -> Losses:
    """`state` holds the critic after its update."""

    def value(actor: Any) -> np.ndarray:
        action = rebrac_policy(actor, batch.obs)
        return normed_both(state.params["critic"], batch.obs, action, activation=relu).min(axis=0)

    scale = 1 / np.abs(value(state.params["actor"])).mean()
    imitation = ((rebrac_policy(params["actor"], batch.obs) - batch.action) ** 2).sum(axis=-1)
    loss = algorithm.actor_penalty * (weights.sa * imitation).sum() - scale * (weights.s * value(params["actor"])).sum()
    return loss, {"loss/actor": loss}


@functools.cache
def fql_draws(rows: int, size: int) -> list[np.ndarray]:
    """Noise of the next action, where the flow's path begins, the time on it, and noise of the policy's action."""
    k_next, k_start, k_time, k_noise = jax.random.split(KEY, 4)
    start, time = jax.random.normal(k_start, (rows, size)), jax.random.uniform(k_time, (rows, 1))
    return double([jax.random.normal(k_next, (rows, size)), start, time, jax.random.normal(k_noise, (rows, size))])


def fql(algorithm: FQL, params: Any, state: Any, batch: Any, weights: Any) -> Losses:
    noise_next, start, time, noise = fql_draws(*batch.action.shape)
    following = np.clip(normed(state.params["policy"], batch.next_obs, noise_next, activation=gelu), -1, 1)
    targets = normed_both(state.target_critic, batch.next_obs, following, activation=gelu)
    target = targets.mean(axis=0) if algorithm.target == "mean" else targets.min(axis=0)
    backup = batch.reward + algorithm.discount * np.where(batch.terminal == 1, 0, target)
    q = normed_both(params["critic"], batch.obs, batch.action, activation=gelu)
    error = (weights.sa * ((q[0] - backup) ** 2 + (q[1] - backup) ** 2) / 2).sum()

    halfway = start + time * (batch.action - start)
    velocity = normed(params["flow"], batch.obs, halfway, time, activation=gelu)
    flow = (weights.sa * ((velocity - batch.action + start) ** 2).mean(axis=-1)).sum()

    cloned = noise
    for step in range(algorithm.flow_steps):
        now = np.full((len(noise), 1), step / algorithm.flow_steps)
        cloned = cloned + normed(state.params["flow"], batch.obs, cloned, now, activation=gelu) / algorithm.flow_steps
    action = normed(params["policy"], batch.obs, noise, activation=gelu)
    distillation = (weights.s * ((action - np.clip(cloned, -1, 1)) ** 2).mean(axis=-1)).sum()

    def value(policy: Any) -> np.ndarray:
        chosen = np.clip(normed(policy, batch.obs, noise, activation=gelu), -1, 1)
        return normed_both(state.params["critic"], batch.obs, chosen, activation=gelu).mean(axis=0)

    scale = 1 / np.abs(value(state.params["policy"])).mean() if algorithm.normalise_q else 1.0
    policy = -scale * (weights.s * value(params["policy"])).sum()
    losses = {"critic": error, "flow": flow, "distillation": distillation, "policy": policy}
    metrics = {f"loss/{name}": loss for name, loss in losses.items()}
    total = error + flow + algorithm.alpha * distillation + policy
    return total, metrics | {"q": (weights.sa * q[0]).sum()}


# --------------------------------------------------------------------------------------------- comparing


def begin(algorithm: Any) -> Any:
    """A state in which no bias is 0 and no target equals what it follows."""
    state = algorithm.init(KEY, SPEC)
    changes = {name: perturbed(getattr(state, name), seed) for seed, name in enumerate(state._fields) if name in MOVED}
    return state._replace(**changes)


MOVED = ("params", "target", "target_critic")


def assert_gradients(loss: Callable[[Any], Losses], params: Any, moments: Any) -> None:
    """Slopes of the loss by finite differences at a few entries of every array, against Adam's first moment 0.1 g."""
    rng = np.random.default_rng(0)
    leaves, structure = jax.tree.flatten(params)
    for number, (place, moment) in enumerate(jax.tree_util.tree_leaves_with_path(moments)):
        gradient = 10 * np.asarray(moment, np.float64)
        size = np.abs(gradient).max()
        assert size > 0, jax.tree_util.keystr(place)
        for _ in range(3):
            entry = tuple(int(rng.integers(length)) for length in gradient.shape)

            def at(shift: float, number: int = number, entry: tuple[int, ...] = entry) -> float:
                moved = leaves[number].copy()
                moved[entry] += shift
                return loss(jax.tree.unflatten(structure, [*leaves[:number], moved, *leaves[number + 1 :]]))[0]

            slope = (at(1e-6) - at(-1e-6)) / 2e-6
            assert gradient[entry] == pytest.approx(slope, rel=2e-3, abs=1e-4 * size + 1e-6), jax.tree_util.keystr(
                place
            )


def assert_metrics(actual: Any, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        assert float(actual[name]) == pytest.approx(float(value), rel=1e-4, abs=1e-5), name


def after_adam(params: Any, moments: Any, rate: float) -> Any:
    """Where a first Adam step of this rate leads, from the first moment 0.1 g: its direction is g / (|g| + 1e-8)."""
    return jax.tree.map(lambda p, m: p - rate * 10 * m / (np.abs(10 * m) + 1e-8), params, moments)


def assert_close(actual: Any, expected: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6), actual, expected)


IQL_HIGH_ADVANTAGE = toy_batch(seed=35)._replace(obs=3 * toy_batch(seed=35).obs)  # one row is clipped
IQL_CASES: dict[str, tuple[IQL, Batch]] = {
    "plain": (IQL(hidden=(16, 16)), BATCH),
    "dropout": (IQL(hidden=(16, 16), dropout=0.4), BATCH),
    "clipped": (IQL(hidden=(16, 16), beta=4.0, expectile=0.9, initialisation="he"), IQL_HIGH_ADVANTAGE),
}
CASES: dict[str, tuple[Any, Any, Batch]] = {
    "bc": (bc, BC(hidden=(16, 16)), BATCH),
    "cql": (cql, tiny(CQL, hidden=(16, 16)), BATCH),
    "cql-edge-actions": (cql, tiny(CQL, penalty=1.0), BATCH._replace(action=jnp.sign(BATCH.action))),
    "cql-plain-sum": (cql, tiny(CQL, importance=False, penalty=5.0), BATCH),
    "cql-max-backup": (cql, tiny(CQL, max_backup=4), BATCH),
    "cql-literal": (cql, tiny(CQL, reg_only="literal"), BATCH),
    "cql-strict": (cql, tiny(CQL, reg_only="strict", discount=0.9), BATCH),
    "fql": (fql, FQL(hidden=(16, 16)), BATCH),
    "fql-normalised": (fql, FQL(hidden=(16,), normalise_q=True, target="min", normalise_actor=True), BATCH),
}


@pytest.mark.parametrize("case", CASES)
def test_losses_and_gradients_are_those_of_the_definitions(case: str) -> None:
    losses, algorithm, batch = CASES[case]
    state = begin(algorithm)
    new, metrics = UPDATE(algorithm, state, batch)
    frozen, rows, weights = double(state), double(batch), double(WEIGHTS)
    _, expected = losses(algorithm, frozen.params, frozen, rows, weights)
    assert set(metrics) == set(expected)
    assert_metrics(metrics, expected)
    moments = new.optimiser.moments.mu
    assert_gradients(lambda params: losses(algorithm, params, frozen, rows, weights), frozen.params, moments)

    for name, group in frozen.params.items():
        assert_close(new.params[name], after_adam(group, double(moments[name]), algorithm.learning_rate))
    if "critic" in new.params:
        # FQL's target follows the critic of before this update, as in its authors' code.
        followed = frozen.params["critic"] if isinstance(algorithm, FQL) else new.params["critic"]
        expected = jax.tree.map(lambda old, now: 0.995 * old + 0.005 * now, frozen.target_critic, followed)
        assert_close(new.target_critic, expected)


@pytest.mark.parametrize("case", IQL_CASES)
def test_iql_losses_and_gradients_are_those_of_the_definitions(case: str) -> None:
    algorithm, batch = IQL_CASES[case]
    state = begin(algorithm)
    new, metrics = UPDATE(algorithm, state, batch)
    frozen, rows, weights = double(state), double(batch), double(WEIGHTS)
    between = frozen._replace(params=frozen.params | {"value": double(new.params["value"])})
    first = iql_value(algorithm, frozen.params, frozen, rows, weights)[1]
    second = iql_rest(algorithm, between.params, between, rows, weights)[1]
    assert set(metrics) == set(first | second)
    assert_metrics(metrics, first | second)
    moments = {name: adam.moments.mu for name, adam in new.optimiser.items()}
    assert_gradients(
        lambda params: iql_value(algorithm, frozen.params | params, frozen, rows, weights),
        {"value": frozen.params["value"]},
        moments["value"],
    )
    assert_gradients(
        lambda params: iql_rest(algorithm, between.params | params, between, rows, weights),
        {name: frozen.params[name] for name in ("actor", "critic")},
        moments["rest"],
    )
    falling = 0.5 * (1 + np.cos(np.pi * float(batch.progress)))
    for part, name, factor in (("value", "value", 1), ("rest", "critic", 1), ("rest", "actor", falling)):
        expected = after_adam(frozen.params[name], double(moments[part][name]), factor * algorithm.learning_rate)
        assert_close(new.params[name], expected)
    expected = jax.tree.map(lambda old, now: 0.995 * old + 0.005 * now, frozen.target_critic, new.params["critic"])
    assert_close(new.target_critic, expected)


DELAYED: dict[str, tuple[Any, Any, Any]] = {
    "td3bc": (td3bc_critic, td3bc_actor, TD3BC(hidden=(16, 16))),
    "td3bc-other": (td3bc_critic, td3bc_actor, TD3BC(hidden=(16,), alpha=1.0, noise_clip=0.1)),
    "rebrac": (rebrac_critic, rebrac_actor, ReBRAC(hidden=(16, 16))),
    "rebrac-other": (rebrac_critic, rebrac_actor, ReBRAC(hidden=(16,), critic_penalty=0.5, normalise_actor=True)),
}
"""Algorithms that move the critic first and then, in some updates, the policy."""


@pytest.mark.parametrize("case", DELAYED)
def test_delayed_losses_and_gradients_are_those_of_the_definitions(case: str) -> None:
    critic_losses, actor_losses, algorithm = DELAYED[case]
    state = begin(algorithm)
    new, metrics = UPDATE(algorithm, state, BATCH)
    frozen, rows, weights = double(state), double(BATCH), double(WEIGHTS)
    between = frozen._replace(params=frozen.params | {"critic": double(new.params["critic"])})
    first = critic_losses(algorithm, frozen.params, frozen, rows, weights)[1]
    second = actor_losses(algorithm, between.params, between, rows, weights)[1]
    assert set(metrics) == set(first | second)
    assert_metrics(metrics, first | second)
    for name, losses, before in (("critic", critic_losses, frozen), ("actor", actor_losses, between)):
        moments = new.optimiser[name].moments.mu
        assert_gradients(
            lambda params, losses=losses, before=before: losses(
                algorithm, before.params | params, before, rows, weights
            ),
            {name: frozen.params[name]},
            moments,
        )
        expected = after_adam(frozen.params[name], double(moments[name]), algorithm.learning_rate)
        assert_close(new.params[name], expected)
    # ReBRAC's target policy follows the policy of before this update, as in its authors' code.
    followed = new.params | ({"actor": frozen.params["actor"]} if isinstance(algorithm, ReBRAC) else {})
    assert_close(new.target, jax.tree.map(lambda old, now: 0.995 * old + 0.005 * now, frozen.target, followed))


def test_the_clipped_case_of_iql_clips_some_rows_and_not_others() -> None:
    algorithm, batch = IQL_CASES["clipped"]
    state, rows = begin(algorithm), double(batch)
    value = double(UPDATE(algorithm, state, batch)[0].params["value"])
    target = both(double(state.target_critic), rows.obs, rows.action).min(axis=0)
    boost = np.exp(algorithm.beta * (target - network(value, rows.obs)[:, 0]))
    assert 0 < (boost > 100).sum() < 8


@pytest.mark.parametrize("kind", [BC, IQL])
@pytest.mark.parametrize("log_std", [-9.0, 4.0])
def test_a_log_std_outside_its_range_counts_as_the_edge(kind: Any, log_std: float) -> None:
    algorithm = kind(hidden=(16,))
    state = begin(algorithm)
    actor = state.params["actor"] | {"log_std": jnp.asarray([log_std, 0.3])}
    state = state._replace(params=state.params | {"actor": actor})
    frozen, rows, weights = double(state), double(BATCH), double(WEIGHTS)
    new, metrics = UPDATE(algorithm, state, BATCH)
    if kind is IQL:
        frozen = frozen._replace(params=frozen.params | {"value": double(new.params["value"])})
    _, expected = {BC: bc, IQL: iql_rest}[kind](algorithm, frozen.params, frozen, rows, weights)
    assert_metrics(metrics, expected)
    adam = new.optimiser["rest"] if kind is IQL else new.optimiser
    slope = adam.moments.mu["actor"]["log_std"]
    assert slope[0] == 0
    assert slope[1] != 0


def test_iql_policy_stops_learning_at_the_end_of_the_run() -> None:
    algorithm = IQL(hidden=(16,))
    state = begin(algorithm)
    new, _ = UPDATE(algorithm, state, BATCH._replace(progress=jnp.ones(())))
    assert_close(new.params["actor"], state.params["actor"])
    assert (new.params["value"][0]["w"] != state.params["value"][0]["w"]).any()


def test_settings_reach_the_losses() -> None:
    """A setting that the update ignored would pass every comparison above with its default."""
    for algorithm, changes in (
        (IQL(hidden=(16,)), {"expectile": 0.9, "beta": 1.0, "discount": 0.5, "target_rate": 0.5}),
        (tiny(CQL), {"penalty": 1.0, "discount": 0.5, "target_rate": 0.5, "action_limit": 0.5}),
        (
            TD3BC(hidden=(16,)),
            {"alpha": 1.0, "target_noise": 0.5, "noise_clip": 0.01, "discount": 0.5, "target_rate": 0.5},
        ),
        (
            ReBRAC(hidden=(16,)),
            {"actor_penalty": 1.0, "critic_penalty": 1.0, "target_noise": 0.5, "discount": 0.5, "target_rate": 0.5},
        ),
        (FQL(hidden=(16,)), {"alpha": 1.0, "flow_steps": 2, "discount": 0.5, "target_rate": 0.5}),
    ):
        state = begin(algorithm)
        plain = jax.tree.leaves(UPDATE(algorithm, state, BATCH))
        for name, value in changes.items():
            other = jax.tree.leaves(UPDATE(dataclasses.replace(algorithm, **{name: value}), state, BATCH))
            assert any((a != b).any() for a, b in zip(plain, other, strict=True)), name
