"""Perceptrons with layer normalisation, for the algorithms of recent years.

A network is a tuple of layers and not a list: the half-float kernels, which know ReLU networks without normalisation,
leave it alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

from winnow.types import Array

NormedInitialisation = Literal["edac", "glorot"]
"""How these networks begin: a layer with n inputs and m outputs.

edac: uniform in ±1/√n, biases 0.1; the last layer and its bias uniform in ± a small number. As in the published ReBRAC,
    which takes it from EDAC
glorot: uniform in ±√(6/(n + m)), biases 0, in every layer. As in the published FQL
"""
EPSILON = 1e-6
"""Added to the variance of a layer's outputs, as flax does."""


def normed_init(
    key: Array, sizes: Sequence[int], like: NormedInitialisation, *, normalise: bool, last: float = 3e-3
) -> tuple[dict[str, Array], ...]:
    """Layers as they begin; hidden ones with a scale and an offset if they `normalise`. `last` is for `edac` alone."""
    layers = []
    shapes = list(itertools.pairwise(sizes))
    for depth, (inputs, outputs) in enumerate(shapes):
        k_weight, k_bias = jax.random.split(jax.random.fold_in(key, depth))
        hidden = depth < len(shapes) - 1
        if like == "glorot":
            bound = (6 / (inputs + outputs)) ** 0.5
            bias = jnp.zeros(outputs)
        else:
            bound = inputs**-0.5 if hidden else last
            bias = jnp.full(outputs, 0.1) if hidden else _uniform(k_bias, (outputs,), last)
        layer = {"w": _uniform(k_weight, (inputs, outputs), bound), "b": bias}
        if normalise and hidden:
            layer |= {"scale": jnp.ones(outputs), "offset": jnp.zeros(outputs)}
        layers.append(layer)
    return tuple(layers)


def _uniform(key: Array, shape: tuple[int, ...], bound: float) -> Array:
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def normed(params: Any, *inputs: Array, activation: Callable[[Array], Array] = jax.nn.relu) -> Array:
    """Inputs side by side through all layers. A layer's activation comes before its normalisation."""
    x = jnp.concatenate(inputs, axis=-1)
    for layer in params[:-1]:
        x = activation(x @ layer["w"] + layer["b"])
        if "scale" in layer:
            centred = x - x.mean(axis=-1, keepdims=True)
            deviation = jnp.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON)
            x = centred / deviation * layer["scale"] + layer["offset"]
    return x @ params[-1]["w"] + params[-1]["b"]


def normed_twins_init(key: Array, sizes: Sequence[int], like: NormedInitialisation, *, normalise: bool) -> Any:
    """Two networks of one shape, stacked."""
    return jax.vmap(lambda k: normed_init(k, sizes, like, normalise=normalise))(jax.random.split(key, 2))


def normed_twins(params: Any, *inputs: Array, activation: Callable[[Array], Array] = jax.nn.relu) -> Array:
    """Both networks on the same inputs, one number each: [2, ...]."""
    return jax.vmap(lambda params: normed(params, *inputs, activation=activation)[..., 0])(params)
