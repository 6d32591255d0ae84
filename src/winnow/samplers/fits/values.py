"""What fits of a value function to a dataset share: the scale of its rewards, sums of them, updates in turns.

Values are within ±1, where a network learns quickly, if a reward that goes on for ever is worth 1 at the most.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.scaling import standardise
from winnow.nets import adam_init, adam_step, cosine, mlp_init, scalar, twins
from winnow.system.progress import Progress

BATCH, CHUNK, BLOCK = 256, 1_000, 65_536
"""Rows of an update, updates between two looks at the clock, rows that are judged at a time."""
LEARNING_RATE = 1e-3
"""Of the fit, at its beginning; it falls to 0."""
FOLDS = 3
"""Parts that episodes are dealt into; the values of each come from the other parts."""
WIDEST = 5.0
"""Standardised observations are clipped to so many deviations."""
PASSES = 100
"""Updates are cut to so many passes over the dataset: a few rows need no more."""


def scale_of(reward: np.ndarray, discount: float) -> float:
    """What to multiply rewards by, so that values are within ±1."""
    return (1 - discount) / max(float(np.abs(reward).max()), 1e-12)


def to_the_end(reward: np.ndarray, length: np.ndarray, discount: float, tail: np.ndarray | float = 0.0) -> np.ndarray:
    """[rows] discounted sums of the reward from each row to the last of its episode, and the episode's tail."""
    sums = np.empty_like(reward)
    total = np.broadcast_to(tail, length.shape).astype(np.float64)
    last = np.cumsum(length) - 1
    order = np.argsort(-length, kind="stable")
    count = np.searchsorted(np.sort(-length), -np.arange(1, length.max() + 1), side="right")  # episodes so long
    for back in range(int(length.max())):  # all episodes together, from their last rows
        longer = order[: count[back]]
        total[longer] = reward[last[longer] - back] + discount * total[longer]
        sums[last[longer] - back] = total[longer]
    return sums


@contextlib.contextmanager
def fit_progress(dataset: Dataset, sampler: str, what: str, updates: int) -> Iterator[Progress]:
    """A bar for a sampler's own fit, which says that its updates are not those of the training that follows."""
    with Progress(updates, shown=True, unit="updates") as bar:
        bar.compiling(f"{dataset.meta.name}: {sampler} fits {what} before training ({updates:,} updates of its own)")
        yield bar


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


class Fitted(NamedTuple):
    """The networks of all folds, and the scale of what they were fitted to."""

    params: Any  # {"value": networks}, stacked
    mean: float
    std: float
    bounds: np.ndarray  # [2, networks] the lowest and the highest target that each was trained on


class Folds(NamedTuple):
    """Networks that are trained side by side, one for each fold of the episodes, on the rows of all other folds.

    So the value of an episode's states comes from a network that has not seen the episode: a state that only one
    episode reaches cannot raise its own target, round after round.
    """

    fold: np.ndarray  # [rows] the fold of each row's episode
    train: tuple[np.ndarray, ...]  # the rows that each network is trained on

    @classmethod
    def of(cls, dataset: Dataset, seed: int) -> Folds:
        """Whole episodes, dealt out at random."""
        episodes = len(dataset.episodes)
        count = min(FOLDS, episodes)
        dealt = np.random.default_rng([seed, episodes]).permutation(episodes) % count
        fold = np.repeat(dealt, dataset.episodes.length)
        rows = np.arange(len(dataset))
        return cls(fold, tuple(rows[fold != number] if count > 1 else rows for number in range(count)))

    def init(self, seed: int, sizes: Sequence[int]) -> Fitted:
        """Networks that have seen nothing."""
        keys = jax.random.split(jax.random.key(seed), len(self.train))
        return Fitted({"value": jax.vmap(lambda key: mlp_init(key, sizes))(keys)}, 0.0, 1.0, np.empty((2, 0)))

    def fit(
        self, before: Fitted, obs: Any, target: np.ndarray, steps: int, rng: np.random.Generator, bar: Progress
    ) -> Fitted:
        """All networks after so many updates towards the target of each row."""
        mean = float(target.mean())
        std = float(target.std()) or 1.0
        learner = (before.params, adam_init(before.params))
        aim = jnp.asarray((target - mean) / std, jnp.float32)
        for size, progress in turns(steps):
            rows = [train[rng.integers(0, len(train), (size, BATCH))] for train in self.train]
            learner = jax.block_until_ready(_fit(learner, obs, aim, np.stack(rows, 1).astype(np.int32), progress))
            bar.count(size)
        bounds = [(target[train].min(), target[train].max()) for train in self.train]
        return Fitted(learner[0], mean, std, np.array(bounds).T)

    def predict(self, fitted: Fitted, obs: Any, rows: np.ndarray) -> np.ndarray:
        """[rows] the value of one observation for each of these rows, by the network that has not seen its episode,
        within the targets that the network was fitted to."""
        fold = self.fold[rows]
        value = in_blocks(lambda block: _values(fitted.params, block), [obs])[np.arange(len(rows)), fold]
        low, high = fitted.bounds
        return np.clip(fitted.mean + fitted.std * value, low[fold], high[fold])


@jax.jit
def _fit(learner: Any, obs: Any, target: Any, rows: Any, progress: Any) -> Any:
    """One update of every network for each line of `rows` [updates, networks, BATCH]."""

    def update(learner: Any, now: Any) -> tuple[Any, None]:
        params, adam = learner
        row, done = now
        grads = jax.grad(_squared)(params, obs[row], target[row])
        return adam_step(params, grads, adam, LEARNING_RATE * cosine(done)), None

    return jax.lax.scan(update, learner, (rows, progress))[0]


def _squared(params: Any, obs: Any, target: Any) -> Any:
    """The sum of the networks' losses, each on a batch of its own."""
    return jnp.sum(jnp.mean((jax.vmap(scalar)(params["value"], obs) - target) ** 2, axis=1))


@jax.jit
def _values(params: Any, obs: Any) -> Any:
    """[rows, networks]"""
    return jax.vmap(lambda network: scalar(network, obs))(params["value"]).T


def network_inputs(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Observations and next observations, standardised and clipped: to `WIDEST` deviations, and to the range of the
    dataset's observations. A network says anything of a state that lies far outside of what it was trained on."""
    rows = dataset.rows()
    obs = standardise(rows.obs, *dataset.obs_moments)
    low = np.maximum(obs.min(axis=0), -WIDEST)
    high = np.minimum(obs.max(axis=0), WIDEST)
    return np.clip(obs, low, high), np.clip(standardise(rows.next_obs, *dataset.obs_moments), low, high)


def in_blocks(judge: Callable[..., Any], columns: Sequence[Any]) -> np.ndarray:
    """`judge` of all rows of some columns, in float64."""
    parts = [judge(*(column[low : low + BLOCK] for column in columns)) for low in range(0, len(columns[0]), BLOCK)]
    return np.concatenate([np.asarray(part, np.float64) for part in parts])
