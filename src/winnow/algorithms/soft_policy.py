"""The losses of a soft policy and of its entropy temperature, which CQL shares with the online SAC."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from winnow.nets import squashed_sample, twins
from winnow.types import Array, Metrics, expect


def policy_loss(
    params: dict[str, Any],
    critic: Any,
    obs: Array,
    weight: Array,
    key: Array,
    real: Array,
    log_std_line: Array | tuple[float, float] = (1.0, 0.0),
) -> tuple[Array, Metrics]:
    """The losses of the actor and of the entropy temperature. No gradient reaches the critic."""
    stop_gradient = jax.lax.stop_gradient
    action, log_prob = squashed_sample(params["actor"], obs, key, real=real, log_std_line=log_std_line)
    value = twins(stop_gradient(critic), obs, action).min(axis=0)
    alpha = stop_gradient(jnp.exp(params["log_alpha"]))
    actor = expect(weight, alpha * log_prob - value)
    temperature = -params["log_alpha"] * expect(weight, stop_gradient(log_prob - real.sum()))
    return actor + temperature, {"loss/actor": actor, "alpha": alpha, "entropy": -expect(weight, log_prob)}
