"""Behaviour cloning: imitate the data, as much as it weighs."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from winnow.algorithms.projection import projection_init, projection_losses
from winnow.nets import Adam, Initialisation, adam_init, gaussian_init, gaussian_log_prob, gaussian_mean, minimise
from winnow.types import Array, Batch, Metrics, Spec, Weights, expect, plugin, setting


class BCState(NamedTuple):
    params: dict[str, Any]
    optimiser: Adam


@plugin
class BC:
    """π:  E_w[ −log π(a|s) ]  with a Gaussian policy: tanh mean, standard deviation the same in every state.

    With OptiDICE's weights this is OptiDICE by weighted cloning; with PF it is 10 %-BC. `projection` is how OptiDICE's
    authors extract a policy: E_{a~π}[ log π(a|s) − log π_D(a|s) − log w(s,a) ], with π_D and w learned beside it.

    Cloning has no authors' code. Follows the policy of IQL's authors (ikostrikov/implicit_q_learning) and begins like
    it, so that IQL with β = 0 and BC are the same algorithm. Deviates in this:

    - Observations are standardised.
    """

    extraction: Literal["clone", "projection"] = "clone"
    """How weights become a policy. clone: imitate the weighted data; projection: OptiDICE's information projection."""
    learning_rate: float = setting(default=3e-4, low=0)
    """How far Adam moves the parameters in one update."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    standardise: bool = True
    """Read observations with mean 0 and deviation 1."""
    reward_scaling: Literal["none"] = "none"
    """Rewards are not read."""
    initialisation: Initialisation = "orthogonal"
    """How the policy begins. See `winnow.nets.Initialisation`."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    def init(self, key: Array, spec: Spec) -> BCState:
        params = {"actor": gaussian_init(key, spec.obs_dim, spec.action_dim, self.hidden, self.initialisation)}
        if self.extraction == "projection":
            params |= projection_init(jax.random.fold_in(key, 1), spec, self.hidden)
        return BCState(params, adam_init(params))

    def update(self, state: BCState, batch: Batch, weights: Weights, key: Array) -> tuple[BCState, Metrics]:
        def loss(params: dict[str, Any]) -> tuple[Array, Metrics]:
            if self.extraction == "projection":
                metrics = projection_losses(params, batch, weights, key)
            else:
                log_prob = gaussian_log_prob(params["actor"], batch.obs, batch.action)
                metrics = {"loss/actor": -expect(weights.sa, log_prob)}
            return sum(metrics.values(), start=jnp.zeros(())), metrics

        params, optimiser, metrics = minimise(loss, state.params, state.optimiser, self.learning_rate)
        return BCState(params, optimiser), metrics

    def inspect(self, state: BCState, batch: Batch) -> Metrics:
        return {"nll": -gaussian_log_prob(state.params["actor"], batch.obs, batch.action)}

    def act(self, state: BCState, obs: Array) -> Array:
        return gaussian_mean(state.params["actor"], obs)
