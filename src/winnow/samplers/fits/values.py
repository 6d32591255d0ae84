"""What fits of a value function to a dataset share: the scale of its rewards, sums of them, updates in turns.

Values are within ±1, where a network learns quickly, if a reward that goes on for ever is worth 1 at the most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winnow.nets import adam_init, adam_step, cosine, twins
from winnow.system.progress import Progress

BATCH, CHUNK, BLOCK = 256, 1_000, 65_536
"""Rows of an update, updates between two looks at the clock, rows that are judged at a time."""
LEARNING_RATE = 1e-3
"""Of `fitted`, at its beginning; it falls to 0."""
PASSES = 100
"""Updates are cut to so many passes over the dataset: a few rows need no more."""


def scale_of(reward: np.ndarray, discount: float) -> float:
    """What to multiply rewards by, so that values are within ±1."""
    return (1 - discount) / max(float(np.abs(reward).max()), 1e-12)


def to_the_end(reward: np.ndarray, length: np.ndarray, discount: float, tail: np.ndarray | float = 0.0) -> np.ndarray:
    """[rows] discounted sums of the reward from each row to the last of its episode, and the episode's tail."""
    found, total = np.empty_like(reward), np.broadcast_to(tail, length.shape).astype(np.float64)
    last = np.cumsum(length) - 1
    order = np.argsort(-length, kind="stable")
    count = np.searchsorted(np.sort(-length), -np.arange(1, length.max() + 1), side="right")  # episodes so long
    for back in range(int(length.max())):  # all episodes together, from their last rows
        longer = order[: count[back]]
        total[longer] = reward[last[longer] - back] + discount * total[longer]
        found[last[longer] - back] = total[longer]
    return found


def cut(steps: int, rows: int) -> int:
    return min(steps, PASSES * -(-rows // BATCH))


def turns(steps: int) -> Iterator[tuple[int, np.ndarray]]:
    """Updates a chunk at a time: how many, and how far each is on the way, from 0 to 1."""
    for low in range(0, steps, CHUNK):
        size = min(CHUNK, steps - low)
        yield size, ((low + np.arange(size)) / steps).astype(np.float32)


def squared(params: Any, obs: Any, target: Any) -> Any:
    """The loss of both networks, {"value": twins}."""
    return jnp.mean(jnp.sum((twins(params["value"], obs) - target) ** 2, axis=0))


def fitted(params: Any, obs: Any, target: np.ndarray, steps: int, rng: np.random.Generator, bar: Progress) -> Any:
    """Both networks, {"value": twins}, after so many updates towards the target of each row."""
    learner, aim = (params, adam_init(params)), jnp.asarray(target, jnp.float32)
    for size, progress in turns(steps):
        drawn = rng.integers(0, len(target), (size, BATCH)).astype(np.int32)
        learner = jax.block_until_ready(_fit(learner, obs, aim, drawn, progress))
        bar.count(size)
    return learner[0]


@jax.jit
def _fit(learner: Any, obs: Any, target: Any, rows: Any, progress: Any) -> Any:
    """One update of both networks for each line of `rows`."""

    def update(learner: Any, now: Any) -> tuple[Any, None]:
        params, adam = learner
        row, done = now
        grads = jax.grad(squared)(params, obs[row], target[row])
        return adam_step(params, grads, adam, LEARNING_RATE * cosine(done)), None

    return jax.lax.scan(update, learner, (rows, progress))[0]


def judged(params: Any, obs: Any) -> np.ndarray:
    """What they say of every observation: the mean of both networks, within ±1."""
    return np.clip(in_blocks(lambda block: _judge(params, block), [obs]), -1, 1)


@jax.jit
def _judge(params: Any, obs: Any) -> Any:
    return twins(params["value"], obs).mean(axis=0)


def in_blocks(judge: Callable[..., Any], columns: Sequence[Any]) -> np.ndarray:
    """`judge` of all rows of some columns, in float64."""
    parts = [judge(*(one[low : low + BLOCK] for one in columns)) for low in range(0, len(columns[0]), BLOCK)]
    return np.concatenate([np.asarray(part, np.float64) for part in parts])
