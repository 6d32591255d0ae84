"""Soft actor-critic (Haarnoja et al., 2018), which trains behaviour policies online.

Plain functions, not a plug-in: it uses no weights and no dataset. Unlike winnow's CQL, its targets include the entropy.

Environments of different sizes learn in one program: observations and actions are padded with zeros to one width,
`real` marks the actions that exist, and the weights of padding are zero and stay zero.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from winnow.algorithms.soft_policy import policy_loss
from winnow.nets import (
    Adam,
    adam_init,
    minimise,
    squashed_init,
    squashed_mean,
    squashed_sample,
    track,
    twins,
    twins_init,
)
from winnow.types import Array, Metrics, expect, plugin, setting


class Transitions(NamedTuple):
    """A batch from the replay buffer. `terminal` is 1 where the task ended; a timeout is not a terminal."""

    obs: Array  # [B, O]
    action: Array  # [B, A] in [-1, 1]
    reward: Array  # [B]
    next_obs: Array  # [B, O]
    terminal: Array  # [B]


class SACState(NamedTuple):
    params: dict[str, Any]
    target_critic: Any
    optimiser: Adam


@plugin
class SAC:
    """Settings. Three losses are minimised together:

    Q:  E[ (r + γ (min Q̄(s',a') − α log π(a'|s')) − Q(s,a))² ],  a' ~ π(s')

    π:  E[ α log π(a|s) − min Q(s,a) ],  a ~ π(s)

    α:  E[ −log α (log π(a|s) + H̄) ],  H̄ = −|A|

    **Deviates from the authors' code**: networks are initialised as `he` (see `winnow.nets.Initialisation`). The
    policies that ship with winnow were trained so, and only the score of a behaviour policy matters.
    """

    discount: float = setting(default=0.99, low=0, high=1)
    """Discount γ."""
    target_rate: float = setting(default=0.005, low=0, high=1)
    """Rate at which the target critic tracks the critic."""
    learning_rate: float = setting(default=3e-4, low=0)
    """Adam's learning rate."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""


@partial(jax.jit, static_argnames=("obs_dim", "action_dim", "width"))
def init(sac: SAC, key: Array, obs_dim: int, action_dim: int, width: tuple[int, int] | None = None) -> SACState:
    """Parameters for an environment, padded to the `width` of (observations, actions)."""
    k_critic, k_actor = jax.random.split(key)
    critic = twins_init(k_critic, (obs_dim + action_dim, *sac.hidden, 1))
    actor = squashed_init(k_actor, obs_dim, action_dim, sac.hidden)
    wide_obs, wide_action = width or (obs_dim, action_dim)
    more_obs = wide_obs - obs_dim
    more_action = wide_action - action_dim
    first = critic[0]["w"]  # [2, O + A, H]
    padded = [_pad(first[:, :obs_dim], 1, more_obs), _pad(first[:, obs_dim:], 1, more_action)]
    critic[0]["w"] = jnp.concatenate(padded, axis=1)
    actor[0]["w"] = _pad(actor[0]["w"], 0, more_obs)
    for name in ("w", "b"):
        halves = jnp.split(actor[-1][name], 2, axis=-1)  # mean and log-std
        actor[-1][name] = jnp.concatenate([_pad(half, -1, more_action) for half in halves], axis=-1)
    params = {"critic": critic, "actor": actor, "log_alpha": jnp.zeros(())}
    return SACState(params, critic, adam_init(params))


def trimmed(actor: Any, obs_dim: int, action_dim: int) -> Any:
    """The actor of one environment, without the padding of `init`."""
    first, *middle, last = actor
    first = first | {"w": first["w"][:obs_dim]}
    layers = [first, *middle, last]
    layers[-1] = {
        name: jnp.concatenate([half[..., :action_dim] for half in jnp.split(value, 2, axis=-1)], axis=-1)
        for name, value in layers[-1].items()
    }
    return layers


def mean(actor: Any, obs: Array, real: Array) -> Array:
    """The policy's mean action."""
    return real * squashed_mean(actor, obs)


def update(sac: SAC, state: SACState, batch: Transitions, key: Array, real: Array) -> tuple[SACState, Metrics]:
    """One step on all three losses."""
    k_pi, k_next = jax.random.split(key)
    alpha = jnp.exp(state.params["log_alpha"])
    next_action, next_log_prob = squashed_sample(state.params["actor"], batch.next_obs, k_next, real=real)
    next_value = twins(state.target_critic, batch.next_obs, next_action).min(axis=0) - alpha * next_log_prob
    target = batch.reward + sac.discount * (1 - batch.terminal) * next_value
    uniform = jnp.full(target.shape, 1 / target.shape[0])

    def loss(params: dict[str, Any]) -> tuple[Array, Metrics]:
        value = twins(params["critic"], batch.obs, batch.action)
        td = expect(uniform, ((value - target) ** 2).sum(axis=0))
        policy, metrics = policy_loss(params, state.params["critic"], batch.obs, uniform, k_pi, real)
        return td + policy, metrics | {"loss/td": td, "q": expect(uniform, value[0])}

    params, optimiser, metrics = minimise(loss, state.params, state.optimiser, sac.learning_rate)
    return SACState(params, track(state.target_critic, params["critic"], sac.target_rate), optimiser), metrics


def _pad(array: Array, axis: int, more: int) -> Array:
    """Add zeros at the end of an axis."""
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, more)
    return jnp.pad(array, widths)
