"""Networks as plain pytrees: an init and an apply function for each, and the optimiser step they share.

A flax or equinox module can be used in three lines: its parameters are the pytree, its apply replaces `mlp`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from winnow.nets import half
from winnow.system.cores import cores_here
from winnow.types import Array

# The number of XLA's threads. XLA reads it once, when it starts; it knows no container's share and no WINNOW_CORES. At
# least two: a program compiled for one thread rounds differently from one compiled for several, however many.
if "WINNOW_CORES" in os.environ or "PJRT_NPROC" not in os.environ:
    os.environ["PJRT_NPROC"] = str(max(2, cores_here()))

Params = Any

Initialisation = Literal["orthogonal", "lecun", "torch", "he"]
"""How networks are initialised: the standard deviation of a weight in a layer with n inputs and m outputs.

orthogonal: √2 / √max(n, m), in every layer, as in the published IQL (flax, orthogonal with a gain of √2)
lecun: 1/√n, normal truncated at two deviations; the last layer uniform, 0.1/√n; as in the published CQL (JaxCQL)
torch: 1/√(3n), uniform in ±1/√n, biases too: PyTorch's default, as in the published TD3+BC
he: √2/√n, normal; the caller sets the scale of the last layer. Meant for standardised observations.

Biases are 0, except with `torch`.
"""
CUT_DEVIATION = 0.8796256610342398
"""Standard deviation of a standard normal number truncated at ±2."""
COPIES = "half"
"""Key of a network's first layer that holds copies of the weights in half floats: see `with_copies`."""


def mlp_init(
    key: Array, sizes: Sequence[int], like: Initialisation = "he", last_scale: float = 1.0
) -> list[dict[str, Array]]:
    """Initial layers of a multilayer perceptron: see `Initialisation`. `last_scale`: for the last layer of `he`."""
    shapes = list(itertools.pairwise(sizes))
    weights = sum(i * o for i, o in shapes)
    outputs = sum(o for _, o in shapes)
    # All layers' numbers in one call: each call is another program to compile.
    key = jax.random.split(key, 1)[0]
    if like in ("torch", "lecun"):
        numbers = jax.random.uniform(key, (weights + outputs,), minval=-1.0, maxval=1.0)
    else:
        numbers = jax.random.normal(key, (weights,))
    layers = []
    weight = 0  # offsets of the next layer's numbers
    bias = weights
    for depth, (i, o) in enumerate(shapes):
        last = depth == len(shapes) - 1
        w = _weights(numbers[weight : weight + i * o].reshape(i, o), like, last, last_scale)
        b = numbers[bias : bias + o] / i**0.5 if like == "torch" else jnp.zeros(o)
        layers.append({"w": w, "b": b})
        weight += i * o
        bias += o
    return layers


def _weights(numbers: Array, like: Initialisation, last: bool, last_scale: float) -> Array:
    """A layer's weights [inputs, outputs] from random numbers: uniform in ±1 for `torch` and `lecun`, else normal."""
    inputs = numbers.shape[0]
    if like == "orthogonal":
        return 2**0.5 * orthogonal(numbers)
    if like == "torch":
        return numbers / inputs**0.5
    if like == "lecun" and last:
        return (0.03 / inputs) ** 0.5 * numbers
    if like == "lecun":
        truncated = 2**0.5 * jax.scipy.special.erfinv(numbers * jax.scipy.special.erf(2**0.5))
        return truncated / (CUT_DEVIATION * inputs**0.5)
    return (last_scale if last else 2**0.5) / inputs**0.5 * numbers


def orthogonal(normal: Array) -> Array:
    """A random matrix from standard normal numbers: with orthonormal columns, or rows if it has fewer rows.

    The product of the Householder reflections that triangularise a matrix of such numbers is a uniformly random
    rotation (Stewart, 1980). LAPACK's QR would compute it, but the batched one of jaxlib 0.10.2 deadlocks on two-core
    machines: it waits for the threads that it runs on.
    """
    rows, columns = normal.shape
    if rows < columns:
        return orthogonal(normal.T).T
    tail = jnp.tril(normal)  # reflection k maps column k, from its k-th number on, onto axis k
    sign = jnp.where(jnp.diagonal(tail) < 0, -1.0, 1.0)
    along = tail + jnp.eye(rows, columns) * (sign * jnp.linalg.norm(tail, axis=0))
    along *= 2**0.5 / jnp.linalg.norm(along, axis=0)

    def reflect(matrix: Array, v: Array) -> tuple[Array, None]:
        return matrix - jnp.outer(v, jnp.dot(v, matrix, precision=jax.lax.Precision.HIGHEST)), None

    return jax.lax.scan(reflect, jnp.eye(rows, columns) * -sign, along.T, reverse=True)[0]


def mlp(params: Sequence[Mapping[str, Any]], x: Array, dropout: float = 0.0, key: Array | None = None) -> Array:
    """ReLU layers and a linear last layer. With a key, that is while learning, dropout follows each ReLU."""
    drops = key if dropout > 0 else None
    if COPIES in params[0] and drops is None:
        return _half_module(params).mlp(params, params[0][COPIES], x)
    for depth, layer in enumerate(params[:-1]):
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
        if drops is not None:
            keep = jax.random.bernoulli(jax.random.fold_in(drops, depth), 1 - dropout, x.shape)
            x = jnp.where(keep, x / (1 - dropout), 0.0)
    return x @ params[-1]["w"] + params[-1]["b"]


def scalar(params: Params, *inputs: Array) -> Array:
    """A network with one output, applied to its concatenated inputs: [..., I] -> [...]."""
    x = jnp.concatenate(inputs, axis=-1)
    # Sampled actions are [samples, rows, I]: as one long batch, products and gradients take 10 % less time.
    return mlp(params, x.reshape(-1, x.shape[-1]))[:, 0].reshape(x.shape[:-1])


def twins_init(key: Array, sizes: Sequence[int], like: Initialisation = "he") -> Params:
    """Two networks of one shape, stacked, so that each layer is one batched product."""
    return jax.vmap(lambda k: mlp_init(k, sizes, like))(jax.random.split(key, 2))


def twins(params: Params, *inputs: Array) -> Array:
    """Both networks applied to the same inputs: [2, ...]."""
    return jax.vmap(lambda network: scalar(network, *inputs))(params)


# --------------------------------------------------------------------------------------------- policy heads


def gaussian_init(
    key: Array, obs_dim: int, action_dim: int, hidden: Sequence[int], like: Initialisation = "he"
) -> Params:
    """A Gaussian policy with a tanh mean. Its standard deviation does not depend on the state and begins at 1."""
    mean = mlp_init(key, (obs_dim, *hidden, action_dim), like, last_scale=0.01)
    return {"mean": mean, "log_std": jnp.zeros(action_dim)}


def gaussian_mean(params: Params, obs: Array, dropout: float = 0.0, key: Array | None = None) -> Array:
    return jnp.tanh(mlp(params["mean"], obs, dropout, key))


def gaussian_log_prob(
    params: Params, obs: Array, action: Array, dropout: float = 0.0, key: Array | None = None
) -> Array:
    """log π(a|s), with log-std clipped to [−5, 2]."""
    log_std = jnp.clip(params["log_std"], -5.0, 2.0)
    scaled = (action - gaussian_mean(params, obs, dropout, key)) / jnp.exp(log_std)
    return jnp.sum(-0.5 * scaled**2 - log_std - 0.5 * jnp.log(2 * jnp.pi), axis=-1)


def squashed_init(
    key: Array, obs_dim: int, action_dim: int, hidden: Sequence[int], like: Initialisation = "he"
) -> Params:
    """A tanh-Gaussian policy whose mean and log-std both depend on the state."""
    return mlp_init(key, (obs_dim, *hidden, 2 * action_dim), like, last_scale=0.01)


def squashed_mean(params: Params, obs: Array) -> Array:
    return jnp.tanh(jnp.split(mlp(params, obs), 2, axis=-1)[0])


def squashed_sample(
    params: Params,
    obs: Array,
    key: Array,
    samples: tuple[int, ...] = (),
    real: Array | float = 1.0,
    log_std_line: Array | tuple[float, float] = (1.0, 0.0),
) -> tuple[Array, Array]:
    """Actions sampled from the policy and their log-probabilities: [*samples, ..., A] and [*samples, ...].

    real: [A] 1 for actions that exist, 0 for padding to a common width
    log_std_line: (c, d): log-std is c · output + d, clipped to [−20, 2]
    """
    mean, log_std = _squashed_heads(params, obs, log_std_line)
    noise = jax.random.normal(key, (*samples, *mean.shape))
    raw = mean + jnp.exp(log_std) * noise
    return real * jnp.tanh(raw), _squashed_density(raw, noise, log_std, real)


def squashed_log_prob(
    params: Params, obs: Array, action: Array, log_std_line: Array | tuple[float, float] = (1.0, 0.0)
) -> Array:
    """log π(a|s) of actions strictly between −1 and 1."""
    mean, log_std = _squashed_heads(params, obs, log_std_line)
    raw = jnp.arctanh(action)
    return _squashed_density(raw, (raw - mean) / jnp.exp(log_std), log_std, 1.0)


def _squashed_heads(params: Params, obs: Array, log_std_line: Array | tuple[float, float]) -> tuple[Array, Array]:
    mean, log_std = jnp.split(mlp(params, obs), 2, axis=-1)
    return mean, jnp.clip(log_std_line[0] * log_std + log_std_line[1], -20.0, 2.0)


def _squashed_density(raw: Array, noise: Array, log_std: Array, real: Array | float) -> Array:
    """log π(tanh raw | s), where raw = mean + std · noise."""
    # log(1 − tanh²(x)) = 2 (log 2 − x − softplus(−2x)), which stays finite for large |x|
    squash = 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))
    return jnp.sum(real * (-0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi) - squash), axis=-1)


# ------------------------------------------------------------------------------------------------ learning


class Adam(NamedTuple):
    """Adam's moments for a dictionary of parameter groups."""

    moments: optax.OptState


def adam_init(params: Mapping[str, Params]) -> Adam:
    return Adam(optax.scale_by_adam().init(params))


def adam_step(
    params: dict[str, Params], grads: dict[str, Params], adam: Adam, rate: float | Array | Mapping[str, Any]
) -> tuple[dict[str, Params], Adam]:
    """One Adam step. `rate`: one learning rate, or one for each parameter group; may be traced."""
    direction: Any
    direction, moments = optax.scale_by_adam().update(without_copies(grads), adam.moments)

    def move(name: str) -> Params:
        step = rate[name] if isinstance(rate, Mapping) else rate
        moved = jax.tree.map(lambda p, d: p - step * d, without_copies(params[name]), direction[name])
        return _as_before(params[name], moved)

    return {name: move(name) for name in params}, Adam(moments)


def minimise(
    loss: Callable[[dict[str, Params]], tuple[Array, Any]],
    params: dict[str, Params],
    adam: Adam,
    rate: float | Array | Mapping[str, Any],
) -> tuple[dict[str, Params], Adam, Any]:
    """One Adam step on a loss that also returns something to report. Returns the new parameters, Adam's new state, and
    that report."""
    grads, report = jax.grad(loss, has_aux=True)(params)
    params, adam = adam_step(params, grads, adam, rate)
    return params, adam, report


def cosine(progress: Array) -> Array:
    """A factor that falls from 1 to 0 along a cosine as progress goes from 0 to 1."""
    return 0.5 * (1 + jnp.cos(jnp.pi * progress))


def track(target: Params, online: Params, rate: float | Array) -> Params:
    """Move a target network towards the online network by this rate."""
    moved = jax.tree.map(lambda t, o: t + rate * (o - t), without_copies(target), without_copies(online))
    return _as_before(target, moved)


# ------------------------------------------------------------------------------- networks in half floats


def with_copies(tree: Any) -> Any:
    """The same states, with copies of the weights in half floats added to every network for which they pay off. Such a
    network uses the kernels of `winnow.nets.kernels` or, if it does not fit them, the products of `winnow.nets.half`.
    Adam and `track` update the copies together with the weights, in one pass over memory."""

    def add(part: Any) -> Any:
        module = _half_module(part) if _is_network(part) else None
        return [part[0] | {COPIES: module.copies(part)}, *part[1:]] if module else part

    return jax.tree.map(add, tree, is_leaf=lambda part: _is_network(part) or isinstance(part, Adam))


def without_copies(tree: Any) -> Any:
    """The same states without copies, as they are stored, saved and read."""

    def drop(part: Any) -> Any:
        if not _is_network(part):
            return part
        return [{name: part[0][name] for name in part[0] if name != COPIES}, *part[1:]]

    return jax.tree.map(drop, tree, is_leaf=_is_network)


def sizes_with_copies(tree: Any) -> set[tuple[int, int, int]]:
    """Inputs, width and outputs of those networks in these states that would use the kernels."""
    from winnow.nets import kernels

    parts = jax.tree.leaves(tree, is_leaf=lambda part: _is_network(part) or isinstance(part, Adam))
    nets = [part for part in parts if _is_network(part) and kernels.fits(part)]
    return {(*net[0]["w"].shape[-2:], net[2]["w"].shape[-1]) for net in nets}


def _half_module(layers: Any) -> Any:
    """The module that computes this network in half floats; None if half floats don't pay off for it."""
    from winnow.nets import kernels  # Pallas takes a second to import

    return next((module for module in (kernels, half) if module.fits(layers)), None)


def _as_before(before: Any, after: Any) -> Any:
    """`after` with copies if `before` had copies."""
    return after if jax.tree.structure(before) == jax.tree.structure(after) else with_copies(after)


def _is_network(part: Any) -> bool:
    return isinstance(part, list) and bool(part) and isinstance(part[0], dict) and "w" in part[0]
