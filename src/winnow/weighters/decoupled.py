"""Decoupled resampling (Yue et al., 2023, arXiv:2306.05412): what the sampler prefers is for the policy alone."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp

from winnow.types import Array, Batch, Metrics, Spec, Weights, expect, plugin
from winnow.weighters.diagnostics import diagnose


@plugin
class Decoupled:
    """w = 1 in the losses of the policy, w ∝ 1/(rows · p) where a value is fitted.

    So the policy learns from rows as they are sampled, and values from rows as they lie in the dataset. The authors
    sample a second, uniform batch for values; this weighs the one batch instead. A row that is never sampled stays
    unseen.

    Examples:
        >>> from winnow import BC, toy, train
        >>> data = toy.imbalanced(2_000, share=0.1)
        >>> (run,) = train(data, BC(hidden=(8,)), "uniform", weighter=Decoupled(), steps=300, progress=False)
        >>> round(run.weights().share(data.source == 1), 1)  # of the policy's batch; 0.1 of the rows are good
        0.1
    """

    reads_frequency: ClassVar[bool] = True

    def init(self, key: Array, spec: Spec) -> tuple[()]:
        return ()

    def update(self, state: tuple[()], batch: Batch, key: Array) -> tuple[tuple[()], Weights, Metrics]:
        count = batch.reward.shape[0]
        weight = jnp.full(batch.reward.shape, 1 / count)
        rarity = jnp.ones_like(weight) if batch.frequency is None else 1 / batch.frequency
        fit = rarity / jnp.sum(rarity)
        share = {"weighter/fit_ess": 1 / (count * expect(fit, fit))}
        return state, Weights(weight, weight, fit), share | diagnose(weight, batch)

    def log_weight(self, state: tuple[()], batch: Batch) -> Array:
        return jnp.zeros(batch.reward.shape)
