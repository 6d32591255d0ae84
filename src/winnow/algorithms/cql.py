"""Conservative Q-learning, CQL(H) on soft actor-critic (Kumar et al., 2020)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from winnow.algorithms.soft_policy import policy_loss
from winnow.nets import (
    Adam,
    Initialisation,
    adam_init,
    minimise,
    squashed_init,
    squashed_log_prob,
    squashed_mean,
    squashed_sample,
    track,
    twins,
    twins_init,
)
from winnow.types import Array, Batch, Metrics, Spec, Weights, expect, plugin, setting

LOG_STD_LINE = (1.0, -1.0)
"""Where the policy's log-std begins: 1 · output − 1. Both numbers are learned."""


class CQLState(NamedTuple):
    params: dict[str, Any]
    target_critic: Any
    optimiser: Adam


@plugin
class CQL:
    """Three losses, minimised together:

    Q:  E_w[ (r + γ min Q̄(s',a') − Q(s,a))² ] + κ E_w[ log Σ_a exp Q(s,a) − Q(s,a) ],  a' ~ π(s')

    π:  E_w[ α log π(a|s) − min Q(s,a) ],  a ~ π(s)

    α:  E_w[ −log α (log π(a|s) + H̄) ],  H̄ = −|A|

    The log-sum-exp is estimated from actions sampled uniformly, from π(s) and from π(s').

    Follows the authors' code (JaxCQL, as the paper's authors changed it): networks and how they begin, log-std as a
    learned multiple of the output plus a learned offset that begins at −1, losses, simultaneous updates, target update,
    clipped actions, entropy target, no entropy in the backup, and no normaliser in the log-sum-exp. Deviates in this:

    - A timeout's last row is kept with its recorded s'; D4RL's reader drops it.
    - The very last row of the data is not made a terminal.
    """

    penalty: float = setting(default=10.0, low=0)
    """κ: how much values of actions outside the data are pushed down."""
    samples: int = setting(default=10, low=1)
    """Actions sampled from each of the three distributions for the penalty."""
    importance: bool = True
    """Correct the log-sum-exp for how likely each sampled action was."""
    max_backup: int = setting(default=0, low=0)
    """Back up the best of this many actions at s' instead of one; 0: one (Kitchen: 10)."""
    reg_only: Literal["none", "literal", "strict"] = "none"
    """Weigh every loss (none), only TD error and penalty (literal), or only the penalty (strict)."""
    action_limit: float = setting(default=0.999, low=0, high=1)
    """Actions of the data are kept in ± this, where the tanh policy can follow."""
    discount: float = setting(default=0.99, low=0, high=1)
    """γ of the value functions."""
    target_rate: float = setting(default=0.005, low=0, high=1)
    """How fast the target critic follows."""
    learning_rate: float = setting(default=3e-4, low=0)
    """How far Adam moves the parameters in one update."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    standardise: bool = False
    """Read observations with mean 0 and deviation 1."""
    reward_scaling: Literal["none", "return-range", "minus-one"] = "none"
    """none: raw; return-range: × 1000 / (greatest − least return); minus-one: r − 1 (AntMaze)."""
    initialisation: Initialisation = "lecun"
    """How networks begin; lecun as published. See `winnow.nets.Initialisation`."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "kitchen": {"penalty": 5.0, "max_backup": 10, "importance": False, "hidden": (512, 512, 512)},
        "antmaze": {"reward_scaling": "minus-one"},
    }

    def init(self, key: Array, spec: Spec) -> CQLState:
        k_critic, k_actor = jax.random.split(key)
        like = self.initialisation
        params = {
            "critic": twins_init(k_critic, (spec.obs_dim + spec.action_dim, *self.hidden, 1), like),
            "actor": squashed_init(k_actor, spec.obs_dim, spec.action_dim, self.hidden, like),
            "log_std_line": jnp.array(LOG_STD_LINE),
            "log_alpha": jnp.zeros(()),
        }
        return CQLState(params, params["critic"], adam_init(params))

    def update(self, state: CQLState, batch: Batch, weights: Weights, key: Array) -> tuple[CQLState, Metrics]:
        stop_gradient = jax.lax.stop_gradient
        action_dim = batch.action.shape[-1]
        batch = batch._replace(action=jnp.clip(batch.action, -self.action_limit, self.action_limit))
        k_pi, k_next, k_uniform, k_here, k_there = jax.random.split(key, 5)
        plain = jnp.full_like(weights.sa, 1 / weights.sa.shape[0])
        td_weight = plain if self.reg_only == "strict" else weights.values.sa
        policy_weight = weights.s if self.reg_only == "none" else plain

        def sample(obs: Array, key: Array, *samples: int) -> tuple[Array, Array]:
            line = state.params["log_std_line"]
            return squashed_sample(state.params["actor"], obs, key, samples, log_std_line=line)

        def backup() -> Array:
            action, _ = sample(batch.next_obs, k_next, *([self.max_backup] if self.max_backup else []))
            value = twins(state.target_critic, _like(batch.next_obs, action), action).min(axis=0)
            value = value.max(axis=0) if self.max_backup else value
            return batch.reward + self.discount * (1 - batch.terminal) * value

        def values(critic: Any) -> tuple[Array, Array]:
            """Q of the data's actions, [2, B], and log Σ exp Q over sampled actions, minus that."""
            uniform = jax.random.uniform(k_uniform, (self.samples, *batch.action.shape), minval=-1.0, maxval=1.0)
            here, log_here = sample(batch.obs, k_here, self.samples)
            there, log_there = sample(batch.next_obs, k_there, self.samples)
            action = jnp.concatenate([batch.action[None], uniform, here, there])  # one pass for all
            every = twins(critic, _like(batch.obs, action), action)
            value = every[:, 0]
            if not self.importance:
                return value, jax.nn.logsumexp(every, axis=1) - value
            log_uniform = jnp.full(uniform.shape[:-1], -action_dim * jnp.log(2.0))
            log_sampled = jnp.concatenate([log_uniform, log_here, log_there])
            return value, jax.nn.logsumexp(every[:, 1:] - log_sampled, axis=1) - value

        target_q = stop_gradient(backup())

        def critic_loss(params: dict[str, Any]) -> tuple[Array, Metrics]:
            value, over = values(params["critic"])
            td = expect(td_weight, ((value - target_q) ** 2).sum(axis=0))
            cost = expect(weights.sa, over.sum(axis=0))
            return td + self.penalty * cost, {"loss/td": td, "loss/penalty": cost, "q": expect(weights.sa, value[0])}

        def loss(params: dict[str, Any]) -> tuple[Array, Metrics]:
            critic, critic_metrics = critic_loss(params)
            given = (state.params["critic"], batch.obs, policy_weight, k_pi, jnp.ones(action_dim))
            policy, policy_metrics = policy_loss(params, *given, log_std_line=params["log_std_line"])
            return critic + policy, critic_metrics | policy_metrics

        params, optimiser, metrics = minimise(loss, state.params, state.optimiser, self.learning_rate)
        return CQLState(params, track(state.target_critic, params["critic"], self.target_rate), optimiser), metrics

    def inspect(self, state: CQLState, batch: Batch) -> Metrics:
        action = jnp.clip(batch.action, -self.action_limit, self.action_limit)
        q = twins(state.params["critic"], batch.obs, action).min(axis=0)
        log_prob = squashed_log_prob(state.params["actor"], batch.obs, action, state.params["log_std_line"])
        return {"nll": -log_prob, "q": q}

    def act(self, state: CQLState, obs: Array) -> Array:
        return squashed_mean(state.params["actor"], obs)


def _like(obs: Array, action: Array) -> Array:
    """Observations repeated along the leading axes of sampled actions."""
    return jnp.broadcast_to(obs, (*action.shape[:-1], obs.shape[-1]))
