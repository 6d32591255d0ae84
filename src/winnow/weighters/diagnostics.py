"""What every weighter reports about its weights, computed one way for all of them."""

from __future__ import annotations

import jax.numpy as jnp

from winnow.types import Array, Batch, Metrics, expect


def after(batch: Batch) -> Array:
    """Where each row leads: s', or an initial state where the task ended (γ = 1 needs a way back)."""
    return jnp.where(batch.terminal[:, None] > 0, batch.start_obs, batch.next_obs)


def diagnose(weight: Array, batch: Batch) -> Metrics:
    """Weights [B] that sum to 1, and the batch they weigh.

    - weight/ess: effective sample size as a share of the batch, 1/(B Σ w²): 1 for uniform weights
    - weight/max: the largest weight in units of the uniform one
    - weight/kl: KL(D_w‖D) in nats, estimated on the batch
    - weight/reward: E_w of the scaled reward, J(D_w)
    - weight/flow: |E_w[s' − s]| / √E_w[(s' − s)²], averaged over observation columns: the flow residual seen through
      the observations themselves. 0 where the weighted states reproduce themselves, 1 where all drift one way;
      a batch of n effective rows has about √(2/(π n)) of it by chance.
    """
    count = weight.shape[0]
    change = after(batch) - batch.obs
    drift = jnp.abs(weight @ change) / jnp.sqrt(weight @ change**2 + 1e-8)
    return {
        "weight/ess": 1 / (count * expect(weight, weight)),
        "weight/max": count * jnp.max(weight),
        "weight/kl": expect(weight, jnp.log(jnp.maximum(count * weight, 1e-30))),
        "weight/reward": expect(weight, batch.unit_reward),
        "weight/flow": jnp.mean(drift),
    }
