"""Information projection: a policy from weights by what its own actions are worth, not by cloning the data's.

OptiDICE's way to extract a policy (Lee et al., ICML 2021, arXiv:2106.10783). It needs w(s,a) and the data's own policy
at actions that are not in the data, so it learns both: log w by regression on the weights, and π_D, which may have
several modes, as a mixture of Gaussians.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from winnow.nets import gaussian_mean, mlp, mlp_init, scalar
from winnow.types import Array, Batch, Spec, Weights

COMPONENTS = 5
LOWEST = -20.0
"""log w of a row with no weight, for the regression."""


def projection_init(key: Array, spec: Spec, hidden: tuple[int, ...]) -> dict[str, Any]:
    """The two networks beside the policy: log w(s,a) and the parameters of π_D."""
    k_ratio, k_data = jax.random.split(key)
    mixture = COMPONENTS * (1 + 2 * spec.action_dim)
    return {
        "ratio": mlp_init(k_ratio, (spec.obs_dim + spec.action_dim, *hidden, 1), last_scale=0.01),
        "data": mlp_init(k_data, (spec.obs_dim, *hidden, mixture), last_scale=0.3),
    }


def projection_losses(params: dict[str, Any], batch: Batch, weights: Weights, key: Array) -> dict[str, Array]:
    """Three losses over the rows as they are sampled:

    log w:  mean (log w(s,a) − log B w̄)²

    π_D:  mean −log π_D(a|s)

    π:  mean [ log π(a|s) − log π_D(a|s) − log w(s,a) ],  a ~ π(s)
    """
    stop_gradient = jax.lax.stop_gradient
    count = batch.reward.shape[0]
    target = jnp.maximum(jnp.log(count * weights.sa), LOWEST)
    log_std = jnp.clip(params["actor"]["log_std"], -5.0, 2.0)
    noise = jax.random.normal(key, batch.action.shape)
    action = gaussian_mean(params["actor"], batch.obs) + jnp.exp(log_std) * noise
    log_prob = jnp.sum(-0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi), axis=-1)
    worth = scalar(stop_gradient(params["ratio"]), batch.obs, jnp.clip(action, -1.0, 1.0))
    return {
        "loss/ratio": jnp.mean((scalar(params["ratio"], batch.obs, batch.action) - target) ** 2),
        "loss/data": -jnp.mean(mixture_log_prob(params["data"], batch.obs, batch.action)),
        "loss/actor": jnp.mean(log_prob - mixture_log_prob(stop_gradient(params["data"]), batch.obs, action) - worth),
    }


def mixture_log_prob(params: Any, obs: Array, action: Array) -> Array:
    """log Σ_k c_k(s) N(a; m_k(s), d_k(s)), means in ±1 and log-deviations in [−5, 2]."""
    sides = jnp.split(mlp(params, obs), [COMPONENTS, COMPONENTS * (1 + action.shape[-1])], axis=-1)
    share, (centre, log_std) = sides[0], (side.reshape(*side.shape[:-1], COMPONENTS, -1) for side in sides[1:])
    log_std = jnp.clip(log_std, -5.0, 2.0)
    scaled = (action[..., None, :] - jnp.tanh(centre)) / jnp.exp(log_std)
    density = jnp.sum(-0.5 * scaled**2 - log_std - 0.5 * jnp.log(2 * jnp.pi), axis=-1)
    return jax.nn.logsumexp(jax.nn.log_softmax(share) + density, axis=-1)
