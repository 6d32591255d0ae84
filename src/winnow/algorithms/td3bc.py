"""TD3+BC (Fujimoto and Gu, 2021): a deterministic actor-critic with behaviour cloning beside the actor's objective."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from winnow.nets import Adam, Initialisation, adam_init, adam_step, mlp, mlp_init, scalar, track, twins, twins_init
from winnow.types import Array, Batch, Metrics, Spec, Weights, expect, plugin, setting


class TD3BCState(NamedTuple):
    params: dict[str, Any]
    target: dict[str, Any]
    optimiser: dict[str, Adam]
    actor_loss: Array  # of the last actor update, to report in between


@plugin
class TD3BC:
    """Two losses:

    Q:  E_w[ (r + γ min Q̄(s', π̄(s') + noise) − Q(s,a))² ]

    π:  E_w[ −(α / mean|Q1(s,π(s))|) Q1(s, π(s)) + (π(s) − a)² ],  every second update, and the targets with it

    Follows the authors' code (sfujim/TD3_BC), and d3rlpy's, which made the paper's numbers: networks and how they
    begin (biases too), losses, target smoothing, order of updates, delay, target update. Deviates in this:

    - Observations are divided by max(std, 1e-3), not by std + 1e-3.
    - The first update moves the policy, as in d3rlpy; in the authors' code the second one does.
    - A timeout's last row is kept with its recorded s'; D4RL's reader and d3rlpy drop it.
    """

    alpha: float = setting(default=2.5, low=0)
    """How much improvement counts beside imitation."""
    target_noise: float = setting(default=0.2, low=0)
    """Deviation of the noise on the target policy's action."""
    noise_clip: float = setting(default=0.5, low=0)
    """That noise is kept in ± this."""
    actor_every: int = setting(default=2, low=1)
    """Updates of the critic for one of the actor and the targets."""
    discount: float = setting(default=0.99, low=0, high=1)
    """γ of the value functions."""
    target_rate: float = setting(default=0.005, low=0, high=1)
    """How fast the targets follow."""
    learning_rate: float = setting(default=3e-4, low=0)
    """How far Adam moves the parameters in one update."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    standardise: bool = True
    """Read observations with mean 0 and deviation 1."""
    reward_scaling: Literal["none", "return-range", "minus-one"] = "none"
    """none: raw; return-range: × 1000 / (greatest − least return); minus-one: r − 1 (AntMaze)."""
    initialisation: Initialisation = "torch"
    """How networks begin; torch as published. See `winnow.nets.Initialisation`."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {"antmaze": {"reward_scaling": "minus-one"}}

    def init(self, key: Array, spec: Spec) -> TD3BCState:
        k_critic, k_actor = jax.random.split(key)
        params = {
            "critic": twins_init(k_critic, (spec.obs_dim + spec.action_dim, *self.hidden, 1), self.initialisation),
            "actor": mlp_init(k_actor, (spec.obs_dim, *self.hidden, spec.action_dim), self.initialisation, 0.01),
        }
        optimiser = {name: adam_init({name: group}) for name, group in params.items()}
        return TD3BCState(params, params, optimiser, jnp.zeros(()))

    def update(self, state: TD3BCState, batch: Batch, weights: Weights, key: Array) -> tuple[TD3BCState, Metrics]:
        noise = self.target_noise * jax.random.normal(key, batch.action.shape)
        noise = jnp.clip(noise, -self.noise_clip, self.noise_clip)
        next_action = jnp.clip(self._policy(state.target["actor"], batch.next_obs) + noise, -1.0, 1.0)
        next_value = twins(state.target["critic"], batch.next_obs, next_action).min(axis=0)
        backup = batch.reward + self.discount * (1 - batch.terminal) * next_value

        def critic_loss(params: dict[str, Any]) -> tuple[Array, Array]:
            value = twins(params["critic"], batch.obs, batch.action)
            return expect(weights.values.sa, ((value - backup) ** 2).sum(axis=0)), value

        (loss, value), grads = jax.value_and_grad(critic_loss, has_aux=True)({"critic": state.params["critic"]})
        critic, adam = adam_step(
            {"critic": state.params["critic"]}, grads, state.optimiser["critic"], self.learning_rate
        )
        state = state._replace(params=state.params | critic, optimiser=state.optimiser | {"critic": adam})
        # `step` is the same for every run of a pack, so this stays a branch when runs are packed.
        state = jax.lax.cond(
            batch.step % self.actor_every == 0, lambda s: self._update_actor(s, batch, weights), lambda s: s, state
        )
        return state, {"loss/critic": loss, "loss/actor": state.actor_loss, "q": expect(weights.sa, value[0])}

    def _update_actor(self, state: TD3BCState, batch: Batch, weights: Weights) -> TD3BCState:
        first = jax.tree.map(lambda both: both[0], state.params["critic"])

        def actor_loss(params: dict[str, Any]) -> Array:
            action = self._policy(params["actor"], batch.obs)
            value = scalar(first, batch.obs, action)
            # A plain mean: λ sets the scale of Q, and is not a loss over the batch.
            scale = self.alpha / jnp.maximum(jax.lax.stop_gradient(jnp.abs(value).mean()), 1e-6)
            imitation = ((action - batch.action) ** 2).mean(axis=-1)
            return -scale * expect(weights.s, value) + expect(weights.sa, imitation)

        actor = {"actor": state.params["actor"]}
        loss, grads = jax.value_and_grad(actor_loss)(actor)
        actor, adam = adam_step(actor, grads, state.optimiser["actor"], self.learning_rate)
        params = state.params | actor
        target = track(state.target, params, self.target_rate)
        return TD3BCState(params, target, state.optimiser | {"actor": adam}, loss)

    def inspect(self, state: TD3BCState, batch: Batch) -> Metrics:
        q = twins(state.params["critic"], batch.obs, batch.action).min(axis=0)
        error = ((self._policy(state.params["actor"], batch.obs) - batch.action) ** 2).mean(axis=-1)
        return {"error": error, "q": q}

    def act(self, state: TD3BCState, obs: Array) -> Array:
        return self._policy(state.params["actor"], obs)

    @staticmethod
    def _policy(actor: Any, obs: Array) -> Array:
        return jnp.tanh(mlp(actor, obs))
