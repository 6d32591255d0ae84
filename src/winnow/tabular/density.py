"""`Density`'s loss over the whole dataset at once, with tables for φ and ψ: without the noise of batches.

With each edge's share p of the data in place of the mean over a batch, w̄ = p exp(φ + ψ) / Σ p exp(φ + ψ):

    L = −Σ w̄ r̃  +  λF · Σ p (exp φ(s') − exp(φ(s) + ψ(s,a)))²  +  λK Σ w̄ log(w̄ / p)

It equals `Density`'s loss up to a constant, the log of the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winnow.nets import adam_init, adam_step
from winnow.tabular.data import Data
from winnow.types import Array
from winnow.weighters.density import CLIP, Density

STAGES = ((1.0, 500), (0.3, 400), (0.1, 400), (0.03, 400), (0.01, 300), (1e-3, 300), (1e-4, 300))
"""(factor of the learning rate, updates): the rate decreases so that weights converge."""


class Edges:
    """Every edge that the grid allows as arrays, so that all datasets of a grid share one compiled program."""

    def __init__(self, data: Data) -> None:
        grid = data.grid
        state, action, led = np.nonzero(grid.transition > 0)
        number = {edge: i for i, edge in enumerate(zip(state, action, led, strict=True))}
        outcome = np.where(data.terminal > 0, grid.states, data.following)
        self.own = np.array([number[edge] for edge in zip(data.state, data.action, outcome, strict=True)])
        share = np.zeros(len(state))
        share[self.own] = data.share
        self.arrays = {
            "share": jnp.asarray(share, jnp.float32),
            "reward": jnp.asarray(led == grid.states, jnp.float32),
            "state": jnp.asarray(state),
            "pair": jnp.asarray(4 * state + action),
            "following": jnp.asarray(np.where(led == grid.states, 0, led)),
        }


def learn_density(data: Data, weighters: Sequence[Density], stages: Sequence[tuple[float, int]] = STAGES) -> np.ndarray:
    """[weighters, edges] log w with E_D[w] = 1, after Adam on the whole dataset, all weighters side by side.

    The weighters may differ in their numbers, not in their form. Only form, λK, λF and the learning rate are used.
    """
    edges = Edges(data)
    rate = jnp.concatenate([jnp.full(steps, factor) for factor, steps in stages])
    several = jax.tree.map(lambda *numbers: jnp.array(numbers), *weighters)
    score = np.asarray(_learn(several, edges.arrays, rate, data.grid.states), np.float64)[:, edges.own]
    top = score.max(axis=1, keepdims=True)
    return score - top - np.log(np.exp(score - top) @ data.share)[:, None]


def loss(weighter: Density, params: dict[str, Array], edges: dict[str, Array]) -> Array:
    """L of tables phi [S] and psi [4 S]."""
    share = edges["share"]
    phi = params["phi"][edges["state"]]
    psi = params["psi"][edges["pair"]]
    log_ratio = _normalised(log_weight(weighter, phi, psi), share)
    log_kl = _normalised(bound(weighter, phi), share) if weighter.form == "code-td3bc" else log_ratio
    residual = jnp.exp(params["phi"][edges["following"]]) - jnp.exp(phi + psi)
    gain = (share * jnp.exp(log_ratio)) @ edges["reward"]
    kl = (share * jnp.exp(log_kl)) @ log_kl
    return -gain + weighter.lambda_f * (share @ residual**2) + weighter.lambda_k * kl


def _normalised(score: Array, share: Array) -> Array:
    return score - jax.nn.logsumexp(score, b=share)


def log_weight(weighter: Density, phi: Array, psi: Array) -> Array:
    """log w up to a constant."""
    if weighter.form == "code-td3bc":
        return bound(weighter, phi + psi)
    return bound(weighter, phi) + bound(weighter, psi)


def bound(weighter: Density, value: Array) -> Array:
    return value if weighter.form == "paper" else jnp.clip(value, -CLIP, CLIP)


def _learn(several: Any, edges: dict[str, Array], rate: Array, states: int) -> Array:
    def learn_one(weighter: Density) -> Array:
        params = {"phi": jnp.zeros(states), "psi": jnp.zeros(4 * states)}

        def update(state: Any, factor: Array) -> tuple[Any, None]:
            params, optimiser = state
            grads = jax.grad(lambda p: loss(weighter, p, edges))(params)
            return adam_step(params, grads, optimiser, factor * weighter.learning_rate), None

        (params, _), _ = jax.lax.scan(update, (params, adam_init(params)), rate)
        return log_weight(weighter, params["phi"][edges["state"]], params["psi"][edges["pair"]])

    return jax.vmap(learn_one)(several)


_learn = jax.jit(_learn, static_argnames="states")
