"""Behaviour cloning: imitate the data, as much as it weighs."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import jax

from winnow.nets import Adam, adam_init, adam_step, gaussian_init, gaussian_log_prob, gaussian_mean
from winnow.types import Array, Batch, Metrics, Spec, Weights, expect, plugin, setting


class BCState(NamedTuple):
    params: dict[str, Any]
    optimiser: Adam


@plugin
class BC:
    """π:  E_w[ −log π(a|s) ]  with a Gaussian policy: tanh mean, standard deviation the same in every state."""

    learning_rate: float = setting(default=3e-4, low=0)
    """How far Adam moves the parameters in one update."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    standardise: bool = True
    """Read observations with mean 0 and deviation 1."""
    reward_scaling: Literal["none"] = "none"
    """Rewards are not read."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    def init(self, key: Array, spec: Spec) -> BCState:
        params = {"actor": gaussian_init(key, spec.obs_dim, spec.action_dim, self.hidden)}
        return BCState(params, adam_init(params))

    def update(self, state: BCState, batch: Batch, weights: Weights, key: Array) -> tuple[BCState, Metrics]:
        def actor_loss(params: dict[str, Any]) -> Array:
            return -expect(weights.sa, gaussian_log_prob(params["actor"], batch.obs, batch.action))

        loss, grads = jax.value_and_grad(actor_loss)(state.params)
        params, optimiser = adam_step(state.params, grads, state.optimiser, self.learning_rate)
        return BCState(params, optimiser), {"loss/actor": loss}

    def act(self, state: BCState, obs: Array) -> Array:
        return gaussian_mean(state.params["actor"], obs)
