"""What is on the device: the replays and the networks of all lanes, and the programs that act and learn with them."""

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
    """What is on the device, for all lanes."""

    sac: SACState
    replay: Array  # [L, C, 2 O + A + 2] observation, following one, action, reward and terminal side by side


def unpack(rows: Array, obs_dim: int) -> Transitions:
    """Rows of a replay as a batch."""
    obs, next_obs, rest = rows[..., :obs_dim], rows[..., obs_dim : 2 * obs_dim], rows[..., 2 * obs_dim :]
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
    """Write the transitions [L, E, …] of a step to the replays, then update every lane on what they hold."""
    _, count, _ = fresh.shape
    places = learner.replay.shape[1] // count
    replay = jax.lax.dynamic_update_slice(learner.replay, fresh, (0, step % places * count, 0))
    held = (jnp.minimum(step + 1, places) * count).astype(jnp.uint32)

    def one(state: SACState, rows: Array, lane_key: Array, exists: Array, number: Array) -> tuple[SACState, Metrics]:
        k_draw, k_update = jax.random.split(
            jax.random.fold_in(jax.random.fold_in(jax.random.wrap_key_data(lane_key), step), number)
        )
        row = (jax.random.bits(k_draw, (batch_size,), jnp.uint32) % held).astype(jnp.int32)
        return sac_.update(sac, state, unpack(rows[row], obs_dim), k_update, exists)

    def all_lanes(state: SACState, number: Array) -> tuple[SACState, Metrics]:
        return jax.vmap(one, in_axes=(0, 0, 0, 0, None))(state, replay, key, real, number)

    state, metrics = jax.lax.scan(all_lanes, learner.sac, jnp.arange(updates))
    return Learner(state, replay), jax.tree.map(lambda m: m.mean(axis=0), metrics)


@jax.jit
def explore(actor: Any, obs: Array, step: Array, key: Array, real: Array, random: Array) -> Array:
    """Actions [L, E, A]: drawn from the policies, or uniformly where `random`."""

    def one(actor: Any, obs: Array, lane_key: Array, exists: Array) -> Array:
        k_act = jax.random.fold_in(
            jax.random.fold_in(jax.random.wrap_key_data(lane_key), step), 0x5EED
        )  # no update has this number
        k_policy, k_uniform = jax.random.split(k_act)
        drawn, _ = squashed_sample(actor, obs, k_policy, real=exists)
        return jnp.where(random, exists * jax.random.uniform(k_uniform, drawn.shape, minval=-1.0, maxval=1.0), drawn)

    return jax.vmap(one)(actor, obs, key, real)


@jax.jit
def exploit(actor: Any, obs: Array, real: Array) -> Array:
    """The policies' mean actions [L, E, A]."""
    return jax.vmap(sac_.mean)(actor, obs, real)
