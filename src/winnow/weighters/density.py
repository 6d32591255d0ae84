"""Density-ratio weighting as the paper writes it and as its published code runs it (Hong et al., NeurIPS 2023)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from winnow.nets import Adam, Initialisation, adam_init, minimise, mlp_init, scalar
from winnow.types import Array, Batch, Metrics, Spec, Weights, expect, plugin, setting
from winnow.weighters.diagnostics import after, diagnose

CLIP = 1.2
"""The published code clips to ±1.2 what makes weights (not what is in the flow penalty)."""


class DensityState(NamedTuple):
    params: dict[str, Any]
    optimiser: Adam


@plugin
class Density:
    """w(s,a) = exp(φ(s) + ψ(s,a)), w(s) = exp φ(s), w̄ = w normalised over the batch:

    L = −Σ w̄ r̃  +  λF · mean (w(s') − w(s,a))²  +  λK Σ w̄ log w̄

    The flow penalty depends on the scale of w while the rest does not, so it does not enforce flow conservation:
    docs/weighters.md shows, measured, what that does on a tabular problem. `Dual` solves the problem exactly.

    Follows the authors' code (Improbable-AI/dw-offline-rl), which differs between algorithms: a method by name, `dw-aw`
    say, has the settings of its algorithm (`winnow.methods.DENSITY`). Deviates in this:

    - What follows a terminal row is a random initial state. The authors' IQL and CQL take the first state of the next
      stored episode, their TD3+BC an observation of zeros.
    - A timeout's last row is kept with its recorded s'; their readers drop it.
    - With CQL ψ reads the data's actions as they are; theirs reads them clipped to ±0.999.

    Examples:
        >>> from winnow import BC, toy, train
        >>> data = toy.imbalanced(2_000, share=0.1)
        >>> weighter = Density(hidden=(32,), lambda_k=0.2, lambda_f=0.1, learning_rate=1e-2)
        >>> (run,) = train(data, BC(hidden=(8,)), "uniform", weighter=weighter, steps=300, progress=False)
        >>> round(run.weights().share(data.source == 1), 1)  # of a batch's weight; 0.1 of the rows are good
        0.3
    """

    form: Literal["paper", "code", "code-td3bc"] = "code"
    """paper: the equations; code: as published with IQL and CQL, φ and ψ each clipped to ±1.2 in w̄; code-td3bc: as
    published with TD3+BC, φ + ψ clipped to ±1.2, and the KL term on w(s)."""
    lambda_k: float = setting(default=1.0, low=0)
    """λK: how strongly the weighted data is held to the dataset. The paper's grid: 0.2, 1."""
    lambda_f: float = setting(default=1.0, low=0)
    """λF: how strongly the flow penalty counts. The paper's grid: 0.1, 1, 5."""
    reward_scaling: Literal["std", "min-max"] = "std"
    """The reward it reads. std: r / std(r), as published with IQL; min-max: scaled to [0, 1], with CQL and TD3+BC."""
    standardise: bool = True
    """Read observations with mean 0 and deviation 1. Published: raw with IQL and CQL, standardised with TD3+BC."""
    terminal: Literal["reset", "mask"] = "reset"
    """What follows a terminal row. reset: a random initial state; mask: nothing, the row leaves the flow penalty."""
    state_weight: Literal["joint", "marginal"] = "joint"
    """Weight where the policy's own action is judged. joint: w(s,a), as published with IQL and CQL; marginal: w(s), as
    in the text and as published with TD3+BC."""
    learning_rate: float = setting(default=1e-4, low=0)
    """How far Adam moves the parameters in one update."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of φ and of ψ."""
    initialisation: Initialisation = "he"
    """How φ and ψ begin. he: with a small last layer, so that w begins at 1. Published: as the algorithm's critics."""

    def init(self, key: Array, spec: Spec) -> DensityState:
        k_phi, k_psi = jax.random.split(key)
        sizes = {"phi": (spec.obs_dim, *self.hidden, 1), "psi": (spec.obs_dim + spec.action_dim, *self.hidden, 1)}
        params = {
            name: mlp_init(k, sizes[name], self.initialisation, last_scale=0.01)
            for name, k in (("phi", k_phi), ("psi", k_psi))
        }
        return DensityState(params, adam_init(params))

    def update(self, state: DensityState, batch: Batch, key: Array) -> tuple[DensityState, Weights, Metrics]:
        flows = 1.0 - batch.terminal if self.terminal == "mask" else jnp.ones_like(batch.terminal)
        both = jnp.concatenate([batch.obs, after(batch)])

        def loss(params: dict[str, Any]) -> tuple[Array, tuple[Array, Array, Metrics]]:
            phi, following = jnp.split(scalar(params["phi"], both), 2)  # one pass: one product is faster than two
            psi = scalar(params["psi"], batch.obs, batch.action)
            log_weight = jax.nn.log_softmax(self._score(phi, psi))
            log_marginal = jax.nn.log_softmax(self._bound(phi))
            weight = jnp.exp(log_weight)
            residual = jnp.exp(following) - jnp.exp(phi + psi)
            gain = expect(weight, batch.unit_reward)
            flow = jnp.mean(flows * residual**2)
            log_kl = log_marginal if self.form == "code-td3bc" else log_weight
            kl = expect(jnp.exp(log_kl), log_kl)
            total = -gain + self.lambda_f * flow + self.lambda_k * kl
            metrics = {"weighter/loss": total, "weighter/flow_penalty": flow, "weighter/phi": jnp.mean(phi)}
            return total, (weight, jnp.exp(log_marginal), metrics)

        params, optimiser, (joint, marginal, metrics) = minimise(
            loss, state.params, state.optimiser, self.learning_rate
        )
        joint, marginal = jax.lax.stop_gradient((joint, marginal))
        weights = Weights(joint, marginal if self.state_weight == "marginal" else joint)
        return DensityState(params, optimiser), weights, metrics | diagnose(joint, batch)

    def log_weight(self, state: DensityState, batch: Batch) -> Array:
        phi = scalar(state.params["phi"], batch.obs)
        psi = scalar(state.params["psi"], batch.obs, batch.action)
        return self._score(phi, psi)

    def _score(self, phi: Array, psi: Array) -> Array:
        """log w̄ up to a constant."""
        return self._bound(phi + psi) if self.form == "code-td3bc" else self._bound(phi) + self._bound(psi)

    def _bound(self, value: Array) -> Array:
        return value if self.form == "paper" else jnp.clip(value, -CLIP, CLIP)
