"""Returns of episodes as if each had gone on after its last row: what the sampler `continued` draws by.

A piece of an episode says little by its own return: one from the start of a good episode earns no more than one from
a bad episode, and a long piece more than a short one. What tells them apart is where they lead. With V fitted to the
dataset, a piece that is followed for t rows is worth Σ γᵏ r_k + γᵗ V(s_t), and nothing follows a terminal; its
continued return is the mean of that over the second half of the piece, so that one state which V knows badly does not
decide.

V is fitted in rounds: targets of all rows from the V of the round before, then a few thousand updates. A round carries
values back over a whole piece, so a few of them do what temporal differences of single rows need many updates for; and
so few of them give errors no time to feed on themselves. Every random number is drawn on the host from one seed; only
rounding differs between devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from winnow.data.dataset import Dataset
from winnow.kept import KEPT_ROWS, kept
from winnow.nets import adam_init, adam_step, cosine, twins, twins_init
from winnow.progress import Progress

if TYPE_CHECKING:
    from winnow.samplers import Continued

FORMAT = "continued-1"
"""Part of the name that a result is kept under: changed when the same settings would give another one."""
BATCH, CHUNK, BLOCK = 256, 1_000, 65_536
"""Rows of an update, updates between two looks at the clock, rows that are judged at a time."""
LEARNING_RATE = 1e-3
PASSES = 100
"""Updates of a round are cut to so many passes over the dataset: a few rows need no more."""


def continued_returns(dataset: Dataset, settings: Continued) -> np.ndarray:
    """[episodes] float64, discounted, in units of the largest reward that goes on for ever."""
    fit = {name: getattr(settings, name) for name in ("discount", "rounds", "steps", "hidden", "seed")}
    return kept(FORMAT, dataset, fit, lambda: _returns(dataset, settings), len(dataset.episodes))


def _returns(dataset: Dataset, settings: Continued) -> np.ndarray:
    rows, length, discount = dataset.rows(), dataset.episodes.length, settings.discount
    last = np.cumsum(length) - 1
    first = last - length + 1
    row = np.arange(len(dataset))
    # This scale keeps values within ±1, where a network learns quickly.
    reward = (1 - discount) / max(float(np.abs(rows.reward).max()), 1e-12) * rows.reward.astype(np.float64)
    stored = _to_the_end(reward, length, discount)
    goes_on = 1.0 - rows.terminal
    bootstrap = discount ** (np.repeat(last, length) - row + 1) * np.repeat(goes_on[last], length)
    mean, std = dataset.obs_moments
    obs, following = jnp.asarray((rows.obs - mean) / std), (rows.next_obs - mean) / std
    rng = np.random.default_rng(settings.seed)
    params = {"value": twins_init(jax.random.key(settings.seed), (obs.shape[1], *settings.hidden, 1))}
    target = stored  # nothing follows, in the first round
    steps = min(settings.steps, PASSES * -(-len(dataset) // BATCH))
    with Progress(settings.rounds * steps, shown=len(dataset) >= KEPT_ROWS, unit="updates") as bar:
        bar.describe(f"{dataset.meta.name}: values for continued returns")
        for _ in range(settings.rounds):
            learner, aim = (params, adam_init(params)), jnp.asarray(target, jnp.float32)
            for low in range(0, steps, CHUNK):
                size = min(CHUNK, steps - low)
                drawn = rng.integers(0, len(dataset), (size, BATCH)).astype(np.int32)
                progress = ((low + np.arange(size)) / steps).astype(np.float32)
                learner = jax.block_until_ready(_fit(learner, obs, aim, drawn, progress))
                bar.count(size)
            params = learner[0]
            target = stored + bootstrap * np.repeat(_values(params, following[last]), length)
    followed = row - np.repeat(first, length) + 1
    later = discount**followed * np.append(stored[1:], 0.0) * (row < np.repeat(last, length))
    worth = np.repeat(stored[first], length) - later + discount**followed * goes_on * _values(params, following)
    late = followed > np.repeat(length, length) / 2
    return np.bincount(dataset.episode, worth * late) / np.bincount(dataset.episode, late)


def _to_the_end(reward: np.ndarray, length: np.ndarray, discount: float) -> np.ndarray:
    """[rows] discounted sums of the reward from each row to the last of its episode."""
    found, total = np.empty_like(reward), np.zeros(len(length))
    last = np.cumsum(length) - 1
    order = np.argsort(-length, kind="stable")
    count = np.searchsorted(np.sort(-length), -np.arange(1, length.max() + 1), side="right")  # episodes so long
    for back in range(int(length.max())):
        longer = order[: count[back]]
        total[longer] = reward[last[longer] - back] + discount * total[longer]
        found[last[longer] - back] = total[longer]
    return found


@jax.jit
def _fit(learner: Any, obs: Any, target: Any, rows: Any, progress: Any) -> Any:
    """One update of both networks for each line of `rows`."""

    def update(learner: Any, now: Any) -> tuple[Any, None]:
        params, adam = learner
        row, done = now

        def loss(params: Any) -> Any:
            return jnp.mean(jnp.sum((twins(params["value"], obs[row]) - target[row]) ** 2, axis=0))

        return adam_step(params, jax.grad(loss)(params), adam, LEARNING_RATE * cosine(done)), None

    return jax.lax.scan(update, learner, (rows, progress))[0]


def _values(params: Any, obs: np.ndarray) -> np.ndarray:
    """V of every observation, the mean of both networks, within what rewards can add up to."""
    parts = [_judge(params, obs[low : low + BLOCK]) for low in range(0, len(obs), BLOCK)]
    return np.clip(np.concatenate([np.asarray(part, np.float64) for part in parts]), -1, 1)


@jax.jit
def _judge(params: Any, obs: Any) -> Any:
    return twins(params["value"], obs).mean(axis=0)
