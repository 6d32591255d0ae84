"""Implicit Q-learning (Kostrikov et al., 2022): no action outside the data is ever queried."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from winnow.nets import (
    Adam,
    adam_init,
    adam_step,
    cosine,
    gaussian_init,
    gaussian_log_prob,
    gaussian_mean,
    mlp_init,
    scalar,
    track,
    twins,
    twins_init,
)
from winnow.types import Array, Batch, Metrics, Spec, Weights, expect, plugin, setting

HEAVIEST = 100.0
"""No row's advantage weight in the policy loss exceeds this."""


class IQLState(NamedTuple):
    params: dict[str, Any]
    target_critic: Any
    optimiser: Adam


@plugin
class IQL:
    """Three losses, minimised together:

    V:  E_w[ |τ − 1(u < 0)| u² ],  u = min Q̄(s,a) − V(s)

    Q:  E_w[ (r + γ V(s') − Q(s,a))² ]

    π:  E_w[ −min(exp(β u), 100) log π(a|s) ]
    """

    expectile: float = setting(default=0.7, low=0, high=1)
    """τ: 0.5 is the mean over actions in the data, 1 their maximum."""
    beta: float = setting(default=3.0, low=0)
    """How sharply the policy prefers actions with a higher advantage."""
    discount: float = setting(default=0.99, low=0, high=1)
    """γ of the value functions."""
    target_rate: float = setting(default=0.005, low=0, high=1)
    """How fast the target critic follows."""
    learning_rate: float = setting(default=3e-4, low=0)
    """How far Adam moves the parameters in one update; the policy's falls to 0 along a cosine."""
    dropout: float = setting(default=0.0, low=0, high=0.9, static=True)
    """Share of the policy's hidden units left out while learning."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    standardise: bool = False
    """Read observations with mean 0 and deviation 1."""
    reward_scaling: Literal["none", "return-range", "minus-one"] = "return-range"
    """none: raw; return-range: × 1000 / (greatest − least return); minus-one: r − 1 (AntMaze)."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "ant": {"reward_scaling": "none"},
        "antmaze": {"expectile": 0.9, "beta": 10.0, "reward_scaling": "minus-one"},
        "kitchen": {"beta": 0.5, "dropout": 0.1, "reward_scaling": "none"},
        "adroit": {"reward_scaling": "none"},
    }

    def init(self, key: Array, spec: Spec) -> IQLState:
        k_critic, k_value, k_actor = jax.random.split(key, 3)
        params = {
            "critic": twins_init(k_critic, (spec.obs_dim + spec.action_dim, *self.hidden, 1)),
            "value": mlp_init(k_value, (spec.obs_dim, *self.hidden, 1)),
            "actor": gaussian_init(k_actor, spec.obs_dim, spec.action_dim, self.hidden),
        }
        return IQLState(params, params["critic"], adam_init(params))

    def update(self, state: IQLState, batch: Batch, weights: Weights, key: Array) -> tuple[IQLState, Metrics]:
        frozen = jax.lax.stop_gradient
        ceiling = twins(state.target_critic, batch.obs, batch.action).min(axis=0)

        def value_loss(params: dict[str, Any]) -> tuple[Array, Array]:
            gap = ceiling - scalar(params["value"], batch.obs)
            return expect(weights.values.s, jnp.abs(self.expectile - (gap < 0)) * gap**2), gap

        def critic_loss(params: dict[str, Any]) -> tuple[Array, Array]:
            backup = batch.reward + self.discount * (1 - batch.terminal) * scalar(state.params["value"], batch.next_obs)
            value = twins(params["critic"], batch.obs, batch.action)
            return expect(weights.values.sa, ((value - frozen(backup)) ** 2).sum(axis=0)), value

        def actor_loss(params: dict[str, Any], advantage: Array) -> Array:
            log_prob = gaussian_log_prob(params["actor"], batch.obs, batch.action, self.dropout, key)
            return -expect(weights.sa, jnp.minimum(jnp.exp(self.beta * advantage), HEAVIEST) * log_prob)

        def loss(params: dict[str, Any]) -> tuple[Array, Metrics]:
            value, gap = value_loss(params)
            critic, q = critic_loss(params)
            actor = actor_loss(params, frozen(gap))
            metrics = {"loss/value": value, "loss/critic": critic, "loss/actor": actor, "q": expect(weights.sa, q[0])}
            return value + critic + actor, metrics

        grads, metrics = jax.grad(loss, has_aux=True)(state.params)
        rates: dict[str, Any] = dict.fromkeys(state.params, self.learning_rate)
        rates["actor"] = self.learning_rate * cosine(batch.progress)
        params, optimiser = adam_step(state.params, grads, state.optimiser, rates)
        return IQLState(params, track(state.target_critic, params["critic"], self.target_rate), optimiser), metrics

    def act(self, state: IQLState, obs: Array) -> Array:
        return gaussian_mean(state.params["actor"], obs)
