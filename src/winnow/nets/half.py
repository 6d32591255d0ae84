"""Perceptrons of any depth in half floats, with the compiler's own products.

For networks that the kernels of `winnow.nets.kernels` can't take, such as Kitchen's critics of three layers of 512
units. Products read 16 bits and sum in 32. Activations stored for the backward pass have 16 bits, so half as much
memory is moved as with TF32. The smaller range is handled as in the kernels: forward values saturate, backward values
are scaled to at most 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from winnow.types import Array

Layers = Sequence[Mapping[str, Any]]

LARGEST = 65504.0
"""The largest half float."""
MIN_WIDTH = 256
"""Minimum width of the hidden layers: for smaller ones, converting to half floats costs more time than it saves."""


def half(value: Array) -> Array:
    """As half floats; values beyond their range become the largest of them."""
    return jnp.clip(value, -LARGEST, LARGEST).astype(jnp.float16)


def largest(value: Array) -> Array:
    """The largest absolute value, by which gradients are divided before they are rounded; never 0."""
    return jnp.maximum(jnp.max(jnp.abs(value)), 1e-30)


def fits(layers: Layers) -> bool:
    """Whether half floats pay off for a network."""
    return len(layers) > 1 and all(layer["w"].shape[-1] >= MIN_WIDTH for layer in layers[:-1])


def copies(layers: Layers) -> tuple[Array, ...]:
    """The weights in half floats, as the products read them."""
    return tuple(half(layer["w"]) for layer in layers)


def mlp(layers: Layers, copied: tuple[Array, ...], x: Array) -> Array:
    """ReLUs and a linear last layer: [..., I] -> [..., O]."""
    weights, biases = (tuple(layer[name] for layer in layers) for name in ("w", "b"))
    out = _net(x.reshape(-1, x.shape[-1]), weights, biases, copied)
    return out.reshape(*x.shape[:-1], out.shape[-1])


@jax.custom_vjp
def _net(x: Array, weights: tuple[Array, ...], biases: tuple[Array, ...], copied: tuple[Array, ...]) -> Array:
    return _net_forward(x, weights, biases, copied)[0]


def _net_forward(x: Array, weights: Any, biases: tuple[Array, ...], copied: tuple[Array, ...]) -> tuple[Array, Any]:
    del weights  # the products read their copies
    layers = [half(x)]
    for w, b in zip(copied[:-1], biases[:-1], strict=True):
        layers.append(half(jax.nn.relu((layers[-1] @ w).astype(jnp.float32) + b)))
    return _dot(layers[-1], copied[-1]) + biases[-1], (layers, copied)


def _net_backward(kept: Any, dy: Array) -> tuple[Any, ...]:
    layers, copied = kept
    scale = largest(dy)
    gradient = dy / scale
    weights = []
    biases = []
    for below, w in zip(reversed(layers), reversed(copied), strict=True):
        biases.append(scale * jnp.sum(gradient, axis=0))
        weights.append(scale * _dot(below.T, half(gradient)))
        active = (below > 0) | (below is layers[0])
        gradient = jnp.where(active, (half(gradient) @ w.T).astype(jnp.float32), 0.0)
    return scale * gradient, tuple(weights[::-1]), tuple(biases[::-1]), None


_net.defvjp(_net_forward, _net_backward)


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, preferred_element_type=jnp.float32)
