"""Implicit Q-learning (Kostrikov et al., 2022): no action outside the data is ever queried."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from winnow.nets import (
    Adam,
    Initialisation,
    adam_init,
    cosine,
    gaussian_init,
    gaussian_log_prob,
    gaussian_mean,
    minimise,
    mlp_init,
    scalar,
    track,
    twins,
    twins_init,
)
from winnow.types import Array, Batch, Metrics, Spec, Weights, expect, plugin, setting

EXP_ADV_CLIP = 100.0
"""No row's advantage weight in the policy loss exceeds this."""


class IQLState(NamedTuple):
    params: dict[str, Any]
    target_critic: Any
    optimiser: dict[str, Adam]


@plugin
class IQL:
    """Three losses, one step of Adam each, V before the others:

    V:  E_w[ |τ − 1(u < 0)| u² ],  u = min Q̄(s,a) − V(s)

    Q:  E_w[ (r + γ V(s') − Q(s,a))² ]

    π:  E_w[ −min(exp(β u), 100) log π(a|s) ]

    Q and π read the V of this update, and Q̄ follows Q at its end.

    Follows the authors' code (ikostrikov/implicit_q_learning): networks and how they begin, losses, order of updates,
    learning rates, target update, log-std in [−5, 2] that begins at 0, mean actions in evaluation. Deviates in this:

    - Actions of the data are not clipped to ±(1 − 1e-5): the policy is a Gaussian without squashing, for which the
      clip changes nothing.
    - `return-range` spans full episodes where the data holds fragments of them; `stored-range` is the authors'.
    - A timeout's last row is kept with its recorded s'; D4RL's reader drops it.
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
    reward_scaling: Literal["none", "return-range", "stored-range", "minus-one"] = "return-range"
    """none: raw; return-range: × 1000 / (greatest − least return of full episodes); stored-range: the same over what is
    stored, also where it is fragments; minus-one: r − 1 (AntMaze)."""
    initialisation: Initialisation = "orthogonal"
    """How networks begin; orthogonal as published. See `winnow.nets.Initialisation`."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "ant": {"reward_scaling": "none"},
        "antmaze": {"expectile": 0.9, "beta": 10.0, "reward_scaling": "minus-one"},
        "kitchen": {"beta": 0.5, "dropout": 0.1, "reward_scaling": "none"},
        "adroit": {"reward_scaling": "none"},
    }

    def init(self, key: Array, spec: Spec) -> IQLState:
        k_critic, k_value, k_actor = jax.random.split(key, 3)
        like = self.initialisation
        params = {
            "critic": twins_init(k_critic, (spec.obs_dim + spec.action_dim, *self.hidden, 1), like),
            "value": mlp_init(k_value, (spec.obs_dim, *self.hidden, 1), like),
            "actor": gaussian_init(k_actor, spec.obs_dim, spec.action_dim, self.hidden, like),
        }
        optimiser = {"value": adam_init({"value": params["value"]})}
        optimiser["rest"] = adam_init({name: params[name] for name in ("critic", "actor")})
        return IQLState(params, params["critic"], optimiser)

    def update(self, state: IQLState, batch: Batch, weights: Weights, key: Array) -> tuple[IQLState, Metrics]:
        target_q = twins(state.target_critic, batch.obs, batch.action).min(axis=0)

        def value_loss(params: dict[str, Any]) -> tuple[Array, Metrics]:
            adv = target_q - scalar(params["value"], batch.obs)
            loss = expect(weights.values.s, jnp.abs(self.expectile - (adv < 0)) * adv**2)
            return loss, {"loss/value": loss}

        value, value_adam, value_metrics = minimise(
            value_loss, {"value": state.params["value"]}, state.optimiser["value"], self.learning_rate
        )
        # One pass over s and s': one product is faster than two.
        v, next_v = jnp.split(scalar(value["value"], jnp.concatenate([batch.obs, batch.next_obs])), 2)
        exp_adv = jnp.minimum(jnp.exp(self.beta * (target_q - v)), EXP_ADV_CLIP)
        backup = batch.reward + self.discount * (1 - batch.terminal) * next_v

        def critic_loss(params: dict[str, Any]) -> tuple[Array, Array]:
            q = twins(params["critic"], batch.obs, batch.action)
            return expect(weights.values.sa, ((q - backup) ** 2).sum(axis=0)), expect(weights.sa, q[0])

        def actor_loss(params: dict[str, Any]) -> Array:
            log_prob = gaussian_log_prob(params["actor"], batch.obs, batch.action, self.dropout, key)
            return -expect(weights.sa, exp_adv * log_prob)

        def loss(params: dict[str, Any]) -> tuple[Array, Metrics]:
            critic, q = critic_loss(params)
            actor = actor_loss(params)
            return critic + actor, {"loss/critic": critic, "loss/actor": actor, "q": q}

        rates = {"critic": self.learning_rate, "actor": self.learning_rate * cosine(batch.progress)}
        others = {name: state.params[name] for name in rates}
        others, adam, metrics = minimise(loss, others, state.optimiser["rest"], rates)
        target = track(state.target_critic, others["critic"], self.target_rate)
        return IQLState(others | value, target, {"value": value_adam, "rest": adam}), value_metrics | metrics

    def inspect(self, state: IQLState, batch: Batch) -> Metrics:
        q = twins(state.params["critic"], batch.obs, batch.action).min(axis=0)
        v = scalar(state.params["value"], batch.obs)
        nll = -gaussian_log_prob(state.params["actor"], batch.obs, batch.action)
        return {"nll": nll, "q": q, "v": v, "advantage": q - v}

    def act(self, state: IQLState, obs: Array) -> Array:
        return gaussian_mean(state.params["actor"], obs)
