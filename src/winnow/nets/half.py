"""Perceptrons of any depth in half floats, by the compiler's own products.

For the networks that the kernels of `winnow.nets.kernels` can't take, such as Kitchen's critics of three layers of 512
units. Products read 16 bits and add up in 32; what is kept of a layer for the way back has 16 bits: half of what TF32
moves. Range is met as in the kernels: what goes forth saturates, what comes back is scaled to at most 1.
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
NARROWEST = 256
"""Units in every hidden layer, at the least: below, rounding costs more than it saves."""


def half(value: Array) -> Array:
    """As half floats; what is beyond their range becomes the largest of them."""
    return jnp.clip(value, -LARGEST, LARGEST).astype(jnp.float16)


def largest(value: Array) -> Array:
    """The largest size of an element, by which what comes back is divided before it is rounded; never 0."""
    return jnp.maximum(jnp.max(jnp.abs(value)), 1e-30)


def fits(layers: Layers) -> bool:
    """Whether this is worth it for a network."""
    return len(layers) > 1 and all(layer["w"].shape[-1] >= NARROWEST for layer in layers[:-1])


def copies(layers: Layers) -> tuple[Array, ...]:
    """The weights as the products read them."""
    return tuple(half(layer["w"]) for layer in layers)


def mlp(layers: Layers, copied: tuple[Array, ...], x: Array) -> Array:
    """ReLUs and a linear last layer: [..., I] -> [..., O]."""
    weights, biases = (tuple(layer[name] for layer in layers) for name in ("w", "b"))
    out = _net(x.reshape(-1, x.shape[-1]), weights, biases, copied)
    return out.reshape(*x.shape[:-1], out.shape[-1])


@jax.custom_vjp
def _net(x: Array, weights: tuple[Array, ...], biases: tuple[Array, ...], copied: tuple[Array, ...]) -> Array:
    return _net_forth(x, weights, biases, copied)[0]


def _net_forth(x: Array, weights: Any, biases: tuple[Array, ...], copied: tuple[Array, ...]) -> tuple[Array, Any]:
    del weights  # their copies are read
    layers = [half(x)]
    for w, b in zip(copied[:-1], biases[:-1], strict=True):
        layers.append(half(jax.nn.relu((layers[-1] @ w).astype(jnp.float32) + b)))
    return _dot(layers[-1], copied[-1]) + biases[-1], (layers, copied)


def _net_back(kept: Any, dy: Array) -> tuple[Any, ...]:
    layers, copied = kept
    top = largest(dy)
    back, weights, biases = dy / top, [], []
    for below, w in zip(reversed(layers), reversed(copied), strict=True):
        biases.append(top * jnp.sum(back, axis=0))
        weights.append(top * _dot(below.T, half(back)))
        active = (below > 0) | (below is layers[0])
        back = jnp.where(active, (half(back) @ w.T).astype(jnp.float32), 0.0)
    return top * back, tuple(weights[::-1]), tuple(biases[::-1]), None


_net.defvjp(_net_forth, _net_back)


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, preferred_element_type=jnp.float32)
