"""w(s) from w(s,a), for weighters that have no network of their own for it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from winnow.nets import scalar
from winnow.types import Array

HIGHEST = 10.0
"""log w(s) is kept below this, so that its exponential stays finite while it is learned."""


def marginal_fit(params: Any, obs: Array, ratio: Array) -> tuple[Array, Array]:
    """mean(exp m(s) − w m(s)), whose minimum over m is log E[w | s], and m of each row."""
    log_ratio = jnp.minimum(scalar(params, obs), HIGHEST)
    return jnp.mean(jnp.exp(log_ratio) - ratio * log_ratio), log_ratio
