"""Conservative Q-learning of discrete actions, CQL(H) on double deep Q-learning (Kumar et al., 2020)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from winnow.algorithms.choices import greedy, taken
from winnow.nets import Adam, Initialisation, adam_init, minimise, mlp, mlp_init, track
from winnow.types import ActionKind, Array, Batch, Metrics, Spec, Weights, expect, plugin, setting


class DiscreteCQLState(NamedTuple):
    params: dict[str, Any]
    target_critic: Any
    optimiser: Adam


@plugin
class DiscreteCQL:
    """Q:  E_w[ huber(r + γ Q̄(s', a*) − Q(s,a)) ] + κ E_w[ log Σ_a exp Q(s,a) − Q(s,a) ],  a* = argmax Q(s',·)

    The log-sum-exp is exact: a sum over the choices. The policy that is played takes the choice with the greatest Q.
    `--algorithm cql` means this where actions are discrete.

    There is no discrete BCQ beside it: BCQ keeps to choices that are likely in the data by a threshold on a cloned
    policy, and this penalty does the same without a second network and a threshold to set.

    The authors' code for discrete actions (aviralkumar2907/CQL, atari) has this penalty on a quantile network. Follows
    d3rlpy's `DiscreteCQL`: one critic, double Q-learning, Huber loss, penalty times 1. Deviates in this:

    - The target follows by a small step in every update; theirs is copied every few thousand updates.
    - Observations are standardised.
    """

    penalty: float = setting(default=1.0, low=0)
    """κ: how much values of actions outside the data are pushed down."""
    discount: float = setting(default=0.99, low=0, high=1)
    """γ of the value functions."""
    target_rate: float = setting(default=0.005, low=0, high=1)
    """How fast the target critic follows."""
    learning_rate: float = setting(default=3e-4, low=0)
    """How far Adam moves the parameters in one update."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    standardise: bool = True
    """Read observations with mean 0 and deviation 1."""
    reward_scaling: Literal["none", "return-range", "minus-one"] = "none"
    """none: raw; return-range: × 1000 / (greatest − least return); minus-one: r − 1."""
    initialisation: Initialisation = "lecun"
    """How networks begin. See `winnow.nets.Initialisation`."""

    action_kind: ClassVar[ActionKind] = "discrete"
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}

    def init(self, key: Array, spec: Spec) -> DiscreteCQLState:
        params = {"critic": mlp_init(key, (spec.obs_dim, *self.hidden, spec.action_dim), self.initialisation)}
        return DiscreteCQLState(params, params["critic"], adam_init(params))

    def update(
        self, state: DiscreteCQLState, batch: Batch, weights: Weights, key: Array
    ) -> tuple[DiscreteCQLState, Metrics]:
        best = greedy(mlp(state.params["critic"], batch.next_obs))
        next_q = taken(mlp(state.target_critic, batch.next_obs), best)
        target_q = batch.reward + self.discount * (1 - batch.terminal) * next_q

        def loss(params: dict[str, Any]) -> tuple[Array, Metrics]:
            values = mlp(params["critic"], batch.obs)
            q = taken(values, batch.action)
            td = expect(weights.values.sa, huber(target_q - q))
            cost = expect(weights.sa, jax.nn.logsumexp(values, axis=-1) - q)
            return td + self.penalty * cost, {"loss/td": td, "loss/penalty": cost, "q": expect(weights.sa, q)}

        params, optimiser, metrics = minimise(loss, state.params, state.optimiser, self.learning_rate)
        target_critic = track(state.target_critic, params["critic"], self.target_rate)
        return DiscreteCQLState(params, target_critic, optimiser), metrics

    def inspect(self, state: DiscreteCQLState, batch: Batch) -> Metrics:
        return {"q": taken(mlp(state.params["critic"], batch.obs), batch.action)}

    def act(self, state: DiscreteCQLState, obs: Array) -> Array:
        return mlp(state.params["critic"], obs)


def huber(error: Array) -> Array:
    """error²/2 within ±1, |error| − 1/2 beyond."""
    return jnp.where(jnp.abs(error) < 1, 0.5 * error**2, jnp.abs(error) - 0.5)
