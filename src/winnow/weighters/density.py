"""Density-ratio weighting as the paper writes it and as its published code runs it (Hong et al., NeurIPS 2023)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from winnow.nets import Adam, adam_init, adam_step, mlp_init, scalar
from winnow.types import Array, Batch, Metrics, Spec, Weights, expect, plugin, setting
from winnow.weighters.diagnostics import after, diagnose

CLIP = 1.2
"""The published code keeps phi and psi in ±1.2 where they make weights (not in the flow penalty)."""


class DensityState(NamedTuple):
    params: dict[str, Any]
    optimiser: Adam


@plugin
class Density:
    """w(s,a) = exp(φ(s) + ψ(s,a)), w(s) = exp φ(s), w̄ = w normalised over the batch:

    L = −Σ w̄ r̃  +  λF · mean (w(s') − w(s,a))²  +  λK Σ w̄ log w̄

    The flow penalty depends on the scale of w while the rest does not, so it does not enforce flow conservation:
    docs/weighters.md shows, measured, what that does on a tabular problem. `Dual` solves the problem exactly.
    """

    form: Literal["paper", "code"] = "code"
    """paper: the equations; code: what made the published numbers (φ and ψ clipped to ±1.2 in w̄)."""
    lambda_k: float = setting(default=1.0, low=0)
    """λK: how strongly the weighted data is held to the dataset. The paper's grid: 0.2, 1."""
    lambda_f: float = setting(default=1.0, low=0)
    """λF: how strongly the flow penalty counts. The paper's grid: 0.1, 1, 5."""
    terminal: Literal["reset", "mask"] = "reset"
    """What follows a terminal row. reset: a random initial state; mask: nothing, the row leaves the flow penalty."""
    state_weight: Literal["joint", "marginal"] = "joint"
    """Weight where the policy's own action is judged. joint: w(s,a), as published; marginal: w(s), as in the text."""
    learning_rate: float = setting(default=1e-4, low=0)
    """How far Adam moves the parameters in one update."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of φ and of ψ."""

    def init(self, key: Array, spec: Spec) -> DensityState:
        k_phi, k_psi = jax.random.split(key)
        params = {
            "phi": mlp_init(k_phi, (spec.obs_dim, *self.hidden, 1), last_scale=0.01),
            "psi": mlp_init(k_psi, (spec.obs_dim + spec.action_dim, *self.hidden, 1), last_scale=0.01),
        }
        return DensityState(params, adam_init(params))

    def update(self, state: DensityState, batch: Batch, key: Array) -> tuple[DensityState, Weights, Metrics]:
        flows = 1.0 - batch.terminal if self.terminal == "mask" else jnp.ones_like(batch.terminal)
        both = jnp.concatenate([batch.obs, after(batch)])

        def loss(params: dict[str, Any]) -> tuple[Array, tuple[Array, Array, Metrics]]:
            phi, following = jnp.split(scalar(params["phi"], both), 2)  # one pass: one product is faster than two
            psi = scalar(params["psi"], batch.obs, batch.action)
            log_weight = jax.nn.log_softmax(self._bound(phi) + self._bound(psi))
            weight = jnp.exp(log_weight)
            gap = jnp.exp(following) - jnp.exp(phi + psi)
            gain, flow, kl = expect(weight, batch.unit_reward), jnp.mean(flows * gap**2), expect(weight, log_weight)
            total = -gain + self.lambda_f * flow + self.lambda_k * kl
            metrics = {"weighter/loss": total, "weighter/flow_penalty": flow, "weighter/phi": jnp.mean(phi)}
            return total, (weight, jax.nn.softmax(self._bound(phi)), metrics)

        grads, (joint, marginal, metrics) = jax.grad(loss, has_aux=True)(state.params)
        params, optimiser = adam_step(state.params, grads, state.optimiser, self.learning_rate)
        joint, marginal = jax.lax.stop_gradient((joint, marginal))
        weights = Weights(joint, marginal if self.state_weight == "marginal" else joint)
        return DensityState(params, optimiser), weights, metrics | diagnose(joint, batch)

    def log_weight(self, state: DensityState, batch: Batch) -> Array:
        phi, psi = scalar(state.params["phi"], batch.obs), scalar(state.params["psi"], batch.obs, batch.action)
        return self._bound(phi) + self._bound(psi)

    def _bound(self, value: Array) -> Array:
        return jnp.clip(value, -CLIP, CLIP) if self.form == "code" else value
