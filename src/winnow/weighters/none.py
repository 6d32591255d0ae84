"""No weights: every sampled row counts the same, and the algorithm is the plain one."""

from __future__ import annotations

import jax.numpy as jnp

from winnow.types import Array, Batch, Metrics, Spec, Weights, plugin
from winnow.weighters.diagnostics import diagnose


@plugin
class NoWeights:
    """w = 1 for every row.

    Examples:
        >>> from winnow import BC, toy, train
        >>> data = toy.imbalanced(2_000, share=0.1)
        >>> (run,) = train(data, BC(hidden=(8,)), "uniform", weighter=NoWeights(), steps=300, progress=False)
        >>> round(run.weights().share(data.source == 1), 1)  # of a batch's weight; 0.1 of the rows are good
        0.1
    """

    def init(self, key: Array, spec: Spec) -> tuple[()]:
        return ()

    def update(self, state: tuple[()], batch: Batch, key: Array) -> tuple[tuple[()], Weights, Metrics]:
        weight = jnp.full(batch.reward.shape, 1 / batch.reward.shape[0])
        return state, Weights(weight, weight), diagnose(weight, batch)

    def log_weight(self, state: tuple[()], batch: Batch) -> Array:
        return jnp.zeros(batch.reward.shape)
