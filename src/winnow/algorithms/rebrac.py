"""ReBRAC (Tarasov et al., 2023): TD3+BC with layer normalisation and a penalty for the critic and one for the actor."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp

from winnow.nets import Adam, adam_init, adam_step, track
from winnow.nets.normed import normed, normed_init, normed_twins, normed_twins_init
from winnow.types import Array, Batch, Metrics, Spec, Weights, expect, plugin, setting

LAST_ACTOR_LAYER = 1e-3
"""Bound of the weights that the policy's last layer begins with."""


class ReBRACState(NamedTuple):
    params: dict[str, Any]
    target: dict[str, Any]
    optimiser: dict[str, Adam]
    actor_loss: Array  # of the last actor update, to report in between


@plugin
class ReBRAC:
    """Two losses; a' is the target policy's action at s' with noise, â' the data's action at s':

    Q:  E_w[ (r + γ (min Q̄(s', a') − β_Q |a' − â'|²) − Q(s,a))² ]

    π:  E_w[ β_π |π(s) − a|² − min Q(s, π(s)) / mean|min Q(s, π(s))| ],  every second update, and the targets with it

    Follows the authors' code (tinkoff-ai/ReBRAC): three hidden layers, normalised in the critic, how networks begin,
    losses, target smoothing, order of updates, delay, targets that follow the policy of before this update. Deviates in
    this:

    - Where an episode's recording ends the data has no next action: β_Q does not count there. The authors drop the last
      row before a timeout.
    - The authors tune β_π and β_Q for each dataset. The defaults are those that most of their locomotion sets have.
    - The authors' batch has 1024 rows (`--batch-size 1024`).
    """

    actor_penalty: float = setting(default=0.01, low=0)
    """β_π: how much the policy is held to the data's actions. The authors' grid: 0.001, 0.01, 0.05, 0.1."""
    critic_penalty: float = setting(default=0.01, low=0)
    """β_Q: how much the target pays for actions far from the data's. The authors' grid: 0, 0.001, 0.01, 0.1, 0.5."""
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
    learning_rate: float = setting(default=1e-3, low=0)
    """How far Adam moves the parameters in one update."""
    hidden: tuple[int, ...] = (256, 256, 256)
    """Widths of the hidden layers."""
    normalise_critic: bool = True
    """Layer normalisation in the critic."""
    normalise_actor: bool = False
    """Layer normalisation in the policy."""
    standardise: bool = False
    """Read observations with mean 0 and deviation 1."""
    reward_scaling: Literal["none", "return-range", "minus-one"] = "none"
    """none: raw; return-range: × 1000 / (greatest − least return); minus-one: r − 1 (AntMaze)."""

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}
    reads_next_action: ClassVar[bool] = True

    def init(self, key: Array, spec: Spec) -> ReBRACState:
        k_critic, k_actor = jax.random.split(key)
        critic_sizes = (spec.obs_dim + spec.action_dim, *self.hidden, 1)
        actor_sizes = (spec.obs_dim, *self.hidden, spec.action_dim)
        params: dict[str, Any] = {
            "critic": normed_twins_init(k_critic, critic_sizes, "edac", normalise=self.normalise_critic),
            "actor": normed_init(k_actor, actor_sizes, "edac", normalise=self.normalise_actor, last=LAST_ACTOR_LAYER),
        }
        optimiser = {name: adam_init({name: group}) for name, group in params.items()}
        return ReBRACState(params, params, optimiser, jnp.zeros(()))

    def update(self, state: ReBRACState, batch: Batch, weights: Weights, key: Array) -> tuple[ReBRACState, Metrics]:
        noise = self.target_noise * jax.random.normal(key, batch.action.shape)
        noise = jnp.clip(noise, -self.noise_clip, self.noise_clip)
        next_action = jnp.clip(_act(state.target["actor"], batch.next_obs) + noise, -1.0, 1.0)
        next_value = normed_twins(state.target["critic"], batch.next_obs, next_action).min(axis=0)
        assert batch.next_action is not None
        distance = ((next_action - batch.next_action) ** 2).sum(axis=-1)
        penalty = jnp.where(jnp.isnan(distance), 0.0, distance)
        backup = batch.reward + self.discount * (1 - batch.terminal) * (next_value - self.critic_penalty * penalty)

        def critic_loss(params: dict[str, Any]) -> tuple[Array, Array]:
            value = normed_twins(params["critic"], batch.obs, batch.action)
            return expect(weights.values.sa, ((value - backup) ** 2).sum(axis=0)), value

        critic = {"critic": state.params["critic"]}
        (loss, value), grads = jax.value_and_grad(critic_loss, has_aux=True)(critic)
        critic, adam = adam_step(critic, grads, state.optimiser["critic"], self.learning_rate)
        state = state._replace(params=state.params | critic, optimiser=state.optimiser | {"critic": adam})
        # `step` is the same for every run of a pack, so this stays a branch when runs are packed.
        state = jax.lax.cond(
            batch.step % self.actor_every == 0, lambda s: self._update_actor(s, batch, weights), lambda s: s, state
        )
        return state, {"loss/critic": loss, "loss/actor": state.actor_loss, "q": expect(weights.sa, value[0])}

    def _update_actor(self, state: ReBRACState, batch: Batch, weights: Weights) -> ReBRACState:
        def actor_loss(params: dict[str, Any]) -> Array:
            action = _act(params["actor"], batch.obs)
            value = normed_twins(state.params["critic"], batch.obs, action).min(axis=0)
            # A plain mean: it sets the scale of Q, and is not a loss over the batch.
            scale = 1 / jnp.maximum(jax.lax.stop_gradient(jnp.abs(value).mean()), 1e-6)
            imitation = ((action - batch.action) ** 2).sum(axis=-1)
            return expect(weights.sa, self.actor_penalty * imitation) - scale * expect(weights.s, value)

        before = {"actor": state.params["actor"]}
        loss, grads = jax.value_and_grad(actor_loss)(before)
        actor, adam = adam_step(before, grads, state.optimiser["actor"], self.learning_rate)
        target = track(state.target, state.params, self.target_rate)
        return ReBRACState(state.params | actor, target, state.optimiser | {"actor": adam}, loss)

    def inspect(self, state: ReBRACState, batch: Batch) -> Metrics:
        q = normed_twins(state.params["critic"], batch.obs, batch.action).min(axis=0)
        error = ((_act(state.params["actor"], batch.obs) - batch.action) ** 2).mean(axis=-1)
        return {"error": error, "q": q}

    def act(self, state: ReBRACState, obs: Array) -> Array:
        return _act(state.params["actor"], obs)


def _act(actor: Any, obs: Array) -> Array:
    return jnp.tanh(normed(actor, obs))
