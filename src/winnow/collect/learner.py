"""The programs on the device: replay buffers and networks of all lanes, and how they act and learn."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from winnow.collect import sac as sac_
from winnow.collect.sac import SAC, SACState, Transitions
from winnow.nets import squashed_sample
from winnow.types import Array, Metrics


class Learner(NamedTuple):
    """State on the device, of all lanes."""

    sac: SACState
    replay: Array  # [L, C, 2 O + A + 2] columns: observation, next observation, action, reward, terminal


def unpack(rows: Array, obs_dim: int) -> Transitions:
    """Rows of a replay buffer as a batch."""
    obs = rows[..., :obs_dim]
    next_obs = rows[..., obs_dim : 2 * obs_dim]
    rest = rows[..., 2 * obs_dim :]
    return Transitions(obs, rest[..., :-2], rest[..., -2], next_obs, rest[..., -1])


@partial(jax.jit, static_argnames=("updates", "batch_size", "obs_dim"), donate_argnames=("learner",))
def learn(
    learner: Learner,
    fresh: Array,
    step: Array,
    key: Array,
    real: Array,
    sac: SAC,
    updates: int,
    batch_size: int,
    obs_dim: int,
) -> tuple[Learner, Metrics]:
    """Write the transitions [L, E, …] of a step to the replay buffers, then update every lane."""
    _, count, _ = fresh.shape
    slots = learner.replay.shape[1] // count  # each for one step of all of a lane's environments
    replay = jax.lax.dynamic_update_slice(learner.replay, fresh, (0, step % slots * count, 0))
    filled = (jnp.minimum(step + 1, slots) * count).astype(jnp.uint32)

    def update(state: SACState, rows: Array, lane_key: Array, exists: Array, number: Array) -> tuple[SACState, Metrics]:
        k_sample, k_update = jax.random.split(
            jax.random.fold_in(jax.random.fold_in(jax.random.wrap_key_data(lane_key), step), number)
        )
        row = (jax.random.bits(k_sample, (batch_size,), jnp.uint32) % filled).astype(jnp.int32)
        return sac_.update(sac, state, unpack(rows[row], obs_dim), k_update, exists)

    def all_lanes(state: SACState, number: Array) -> tuple[SACState, Metrics]:
        return jax.vmap(update, in_axes=(0, 0, 0, 0, None))(state, replay, key, real, number)

    state, metrics = jax.lax.scan(all_lanes, learner.sac, jnp.arange(updates))
    return Learner(state, replay), jax.tree.map(lambda m: m.mean(axis=0), metrics)


@jax.jit
def explore(actor: Any, obs: Array, step: Array, key: Array, real: Array, random: Array) -> Array:
    """Actions [L, E, A]: sampled from the policies, or uniformly if `random`."""

    def act(actor: Any, obs: Array, lane_key: Array, exists: Array) -> Array:
        k_act = jax.random.fold_in(
            jax.random.fold_in(jax.random.wrap_key_data(lane_key), step), 0x5EED
        )  # no update has this number
        k_policy, k_uniform = jax.random.split(k_act)
        sampled, _ = squashed_sample(actor, obs, k_policy, real=exists)
        uniform = exists * jax.random.uniform(k_uniform, sampled.shape, minval=-1.0, maxval=1.0)
        return jnp.where(random, uniform, sampled)

    return jax.vmap(act)(actor, obs, key, real)


@jax.jit
def exploit(actor: Any, obs: Array, real: Array) -> Array:
    """The policies' mean actions [L, E, A]."""
    return jax.vmap(sac_.mean)(actor, obs, real)
