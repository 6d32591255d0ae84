"""What discrete algorithms share: networks with an output for each choice, and the choice that was made."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from winnow.nets import mlp
from winnow.types import Array


def log_prob(logits: Array, action: Array) -> Array:
    """log π(a|s) of one-hot actions [..., K] under the softmax of these outputs."""
    return taken(jax.nn.log_softmax(logits), action)


def taken(values: Array, action: Array) -> Array:
    """Of the values of all choices [..., K], that of the choice that was made."""
    return jnp.sum(values * action, axis=-1)


def both(params: Any, obs: Array) -> Array:
    """Two critics' values of all choices: [2, ..., K]."""
    return jax.vmap(lambda critic: mlp(critic, obs))(params)


def greedy(values: Array) -> Array:
    """The choice with the greatest value, one-hot."""
    return jax.nn.one_hot(jnp.argmax(values, axis=-1), values.shape[-1], dtype=values.dtype)
