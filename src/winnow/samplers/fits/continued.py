"""Returns of episodes as if each had gone on after its last row: what the sampler `continued` samples by.

A fragment of an episode says little by its own return: one from the start of a good episode earns no more than one from
a bad episode, and a long fragment more than a short one. What tells them apart is where they lead. With V fitted to the
dataset, a fragment that is followed for t rows is worth Σ γᵏ r_k + γᵗ V(s_t), and nothing follows a terminal; its
continued return is the mean of that over the second half of the fragment, so that one state which V knows badly does
not decide.

V is fitted in rounds: targets of all rows from the V of the round before, then a few thousand updates. A round carries
values back over a whole fragment, so a few rounds do what temporal differences of single rows need many updates for;
and so few rounds give errors no time to grow.

The V of a fragment's states comes from a network that was trained without the fragment (`values.Folds`). If it were
trained on the fragment, a last state that no other fragment comes near would get an arbitrary value, this value would
be the target of all rows before it, and so on: on a log of a plant one of the worst episodes got all samples that way.

Every random number is drawn on the host from one seed; only rounding differs between devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from winnow.data.dataset import Dataset
from winnow.samplers.fits.cache import kept
from winnow.samplers.fits.values import Folds, cut, fit_progress, network_inputs, scale_of, to_the_end

if TYPE_CHECKING:
    from winnow.samplers import Continued

FORMAT = "continued-2"
"""Part of the cache key: changed whenever the same settings would give another result."""


def continued_returns(dataset: Dataset, settings: Continued) -> np.ndarray:
    """[episodes] float64, discounted; 1 is the largest reward of the data in every step for ever."""
    fit = {name: getattr(settings, name) for name in ("discount", "rounds", "steps", "hidden", "seed")}
    return kept(FORMAT, dataset, fit, lambda: _returns(dataset, settings), len(dataset.episodes))


def _returns(dataset: Dataset, settings: Continued) -> np.ndarray:
    discount = settings.discount
    rows = dataset.rows()
    length = dataset.episodes.length
    first = dataset.episodes.start
    number = dataset.episode
    row = np.arange(len(dataset))
    last = first + length - 1
    reward = scale_of(rows.reward, discount) * rows.reward.astype(np.float64)
    stored = to_the_end(reward, length, discount)
    goes_on = 1.0 - rows.terminal
    bootstrap = discount ** (last[number] - row + 1) * goes_on[last][number]
    obs, following = network_inputs(dataset)
    folds = Folds.of(dataset, settings.seed)
    inputs = jnp.asarray(obs)
    rng = np.random.default_rng(settings.seed)
    fitted = folds.init(settings.seed, (obs.shape[1], *settings.hidden, 1))
    target = stored  # nothing follows, in the first round
    steps = cut(settings.steps, len(dataset))
    with fit_progress(dataset, "continued", "values", settings.rounds * steps) as bar:
        for _ in range(settings.rounds):
            fitted = folds.fit(fitted, inputs, target, steps, rng, bar)
            target = stored + bootstrap * folds.predict(fitted, following[last], last)[number]
    followed = row - first[number] + 1
    later = discount**followed * np.append(stored[1:], 0.0) * (row < last[number])
    value = folds.predict(fitted, following, row)
    worth = stored[first][number] - later + discount**followed * goes_on * value
    late = followed > length[number] / 2
    return np.bincount(number, worth * late) / np.bincount(number, late)
