"""Priorities of single rows from the advantages of a fitted value function: what the sampler ODPR-A draws by.

A few thousand updates of a small network before a training begins, so the result is kept
(`winnow.samplers.fits.cache`). Every random number is drawn on the host from one seed; only rounding differs between
devices.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.scaling import standardise
from winnow.nets import adam_init, adam_step, cosine, track, twins, twins_init
from winnow.samplers.fits.cache import kept
from winnow.samplers.fits.values import BATCH, cut, fit_progress, in_blocks, scale_of, squared, turns
from winnow.system.progress import Progress

if TYPE_CHECKING:
    from winnow.samplers import ODPRA

FORMAT = "odpr-a-1"
"""Part of the name that a result is kept under: changed when the same settings would give another one."""
LEARNING_RATE, TARGET_RATE = 3e-4, 0.005


def priorities(dataset: Dataset, settings: ODPRA) -> np.ndarray:
    """[rows] float64 with mean 1: priorities of every fit, multiplied over its iterations, in the mean over fits."""
    return kept(FORMAT, dataset, dataclasses.asdict(settings), lambda: _fit_all(dataset, settings), len(dataset))


def _fit_all(dataset: Dataset, settings: ODPRA) -> np.ndarray:
    rows = dataset.rows()
    mean, std = dataset.obs_moments
    scale = scale_of(rows.reward, settings.discount)  # priorities do not depend on it
    table = (
        jnp.asarray(standardise(rows.obs, mean, std)),
        jnp.asarray(standardise(rows.next_obs, mean, std)),
        jnp.asarray(scale * rows.reward),
        jnp.asarray(1.0 - rows.terminal, jnp.float32),
    )
    steps = cut(settings.steps, len(dataset))
    total = np.zeros(len(dataset))
    with fit_progress(dataset, "odpr-a", "advantages", settings.fits * settings.iterations * steps) as bar:
        for fit in range(settings.fits):
            total += _fit(table, settings, steps, np.random.default_rng([settings.seed, fit]), bar)
    return total / settings.fits


def _fit(table: Any, settings: ODPRA, steps: int, rng: np.random.Generator, bar: Progress) -> np.ndarray:
    """Fit V to rows drawn by priority, multiply priorities by its advantages, and again."""
    count, obs_dim = table[0].shape
    key = jax.random.key(int(rng.integers(2**31)))
    value = twins_init(key, (obs_dim, *settings.hidden, 1))
    target = value
    weight = np.ones(count)
    for _ in range(settings.iterations):
        learner = (value, target, adam_init({"value": value}))
        for size, progress in turns(steps):
            row = rng.choice(count, (size, BATCH), p=weight / weight.sum())
            learner = _learn(table, learner, row.astype(np.int32), progress, settings.discount)
            jax.block_until_ready(learner[0])
            bar.count(size)
        value, target, _ = learner
        weight *= multiplier(_advantages(table, value, settings.discount))
        weight /= weight.mean()
    return weight


def multiplier(advantage: np.ndarray) -> np.ndarray:
    """A − min A in units of its mean; 1 for all rows where there is no advantage but rounding."""
    above = advantage - advantage.min()
    return above / above.mean() if above.max() > 1e-9 else np.ones_like(above)


@jax.jit
def _learn(table: Any, learner: Any, rows: Any, progress: Any, discount: float) -> Any:
    """One update for each line of `rows`: TD(0) towards the lesser of two slow copies."""
    obs, following, reward, goes_on = table

    def update(learner: Any, now: Any) -> tuple[Any, None]:
        value, target, adam = learner
        row, done = now
        backup = reward[row] + discount * goes_on[row] * twins(target, following[row]).min(axis=0)
        loss = partial(squared, obs=obs[row], target=backup)
        params, adam = adam_step({"value": value}, jax.grad(loss)({"value": value}), adam, LEARNING_RATE * cosine(done))
        return (params["value"], track(target, params["value"], TARGET_RATE), adam), None

    return jax.lax.scan(update, learner, (rows, progress))[0]


def _advantages(table: Any, value: Any, discount: float) -> np.ndarray:
    """r + γ V(s') − V(s) of every row, V the lesser of the two networks."""
    return in_blocks(lambda *columns: _judge(columns, value, discount), table)


@jax.jit
def _judge(table: Any, value: Any, discount: float) -> Any:
    obs, following, reward, goes_on = table
    return reward + discount * goes_on * twins(value, following).min(axis=0) - twins(value, obs).min(axis=0)


def spread(weight: np.ndarray, deviation: float, least: float) -> np.ndarray:
    """Weights stretched about their mean of 1 to a standard deviation, none below `least`; sums to 1."""
    unit = weight - weight.min()
    if unit.max() <= 1e-9 * max(1.0, math.fabs(weight.max())):
        return np.full(len(weight), 1 / len(weight))
    unit /= unit.mean()
    unit = np.maximum(1 + deviation / unit.std() * (unit - 1), least)
    return unit / unit.sum()
