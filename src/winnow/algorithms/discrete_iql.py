"""Implicit Q-learning (Kostrikov et al., 2022) of discrete actions: no choice outside the data is ever queried."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from winnow.algorithms.choices import both, log_prob, taken
from winnow.algorithms.iql import EXP_ADV_CLIP
from winnow.nets import Adam, Initialisation, adam_init, cosine, minimise, mlp, mlp_init, scalar, track, twins_init
from winnow.types import ActionKind, Array, Batch, Metrics, Spec, Weights, expect, plugin, setting


class DiscreteIQLState(NamedTuple):
    params: dict[str, Any]
    target_critic: Any
    optimiser: dict[str, Adam]


@plugin
class DiscreteIQL:
    """Three losses, one step of Adam each, V before the others:

    V:  E_w[ |τ − 1(u < 0)| u² ],  u = min Q̄(s,a) − V(s)

    Q:  E_w[ (r + γ V(s') − Q(s,a))² ]

    π:  E_w[ −min(exp(β u), 100) log π(a|s) ]

    π(·|s) is the softmax of a network's outputs, Q has an output for each choice. `--algorithm iql` means this where
    actions are discrete. The policy that is played takes the most likely choice.

    Follows the authors' code (ikostrikov/implicit_q_learning), which is for continuous actions: losses, order of
    updates, learning rates, target update, how networks begin. Deviates in this:

    - The policy is categorical, and Q reads the state alone.
    - Observations are standardised.
    - `return-range` spans full episodes where the data holds fragments of them; `stored-range` is the authors'.
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
    standardise: bool = True
    """Read observations with mean 0 and deviation 1."""
    reward_scaling: Literal["none", "return-range", "stored-range", "minus-one"] = "return-range"
    """none: raw; return-range: × 1000 / (greatest − least return of full episodes); stored-range: the same over what is
    stored, also where it is fragments; minus-one: r − 1."""
    initialisation: Initialisation = "orthogonal"
    """How networks begin. See `winnow.nets.Initialisation`."""

    action_kind: ClassVar[ActionKind] = "discrete"
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    def init(self, key: Array, spec: Spec) -> DiscreteIQLState:
        k_critic, k_value, k_actor = jax.random.split(key, 3)
        like = self.initialisation
        sizes = (spec.obs_dim, *self.hidden)
        params = {
            "critic": twins_init(k_critic, (*sizes, spec.action_dim), like),
            "value": mlp_init(k_value, (*sizes, 1), like),
            "actor": mlp_init(k_actor, (*sizes, spec.action_dim), like, 0.01),
        }
        optimiser = {"value": adam_init({"value": params["value"]})}
        optimiser["rest"] = adam_init({name: params[name] for name in ("critic", "actor")})
        return DiscreteIQLState(params, params["critic"], optimiser)

    def update(
        self, state: DiscreteIQLState, batch: Batch, weights: Weights, key: Array
    ) -> tuple[DiscreteIQLState, Metrics]:
        target_q = taken(both(state.target_critic, batch.obs), batch.action).min(axis=0)

        def value_loss(params: dict[str, Any]) -> tuple[Array, Metrics]:
            adv = target_q - scalar(params["value"], batch.obs)
            loss = expect(weights.values.s, jnp.abs(self.expectile - (adv < 0)) * adv**2)
            return loss, {"loss/value": loss}

        value, value_adam, value_metrics = minimise(
            value_loss, {"value": state.params["value"]}, state.optimiser["value"], self.learning_rate
        )
        v, next_v = jnp.split(scalar(value["value"], jnp.concatenate([batch.obs, batch.next_obs])), 2)
        exp_adv = jnp.minimum(jnp.exp(self.beta * (target_q - v)), EXP_ADV_CLIP)
        backup = batch.reward + self.discount * (1 - batch.terminal) * next_v

        def critic_loss(params: dict[str, Any]) -> tuple[Array, Array]:
            q = taken(both(params["critic"], batch.obs), batch.action)
            return expect(weights.values.sa, ((q - backup) ** 2).sum(axis=0)), expect(weights.sa, q[0])

        def actor_loss(params: dict[str, Any]) -> Array:
            logits = mlp(params["actor"], batch.obs, self.dropout, key)
            return -expect(weights.sa, exp_adv * log_prob(logits, batch.action))

        def loss(params: dict[str, Any]) -> tuple[Array, Metrics]:
            critic, q = critic_loss(params)
            actor = actor_loss(params)
            return critic + actor, {"loss/critic": critic, "loss/actor": actor, "q": q}

        rates = {"critic": self.learning_rate, "actor": self.learning_rate * cosine(batch.progress)}
        others = {name: state.params[name] for name in rates}
        others, adam, metrics = minimise(loss, others, state.optimiser["rest"], rates)
        target = track(state.target_critic, others["critic"], self.target_rate)
        state = DiscreteIQLState(others | value, target, {"value": value_adam, "rest": adam})
        return state, value_metrics | metrics

    def inspect(self, state: DiscreteIQLState, batch: Batch) -> Metrics:
        q = taken(both(state.params["critic"], batch.obs), batch.action).min(axis=0)
        v = scalar(state.params["value"], batch.obs)
        nll = -log_prob(mlp(state.params["actor"], batch.obs), batch.action)
        return {"nll": nll, "q": q, "v": v, "advantage": q - v}

    def act(self, state: DiscreteIQLState, obs: Array) -> Array:
        return mlp(state.params["actor"], obs)
