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

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.scaling import standardise
from winnow.nets import twins_init
from winnow.samplers.fits.cache import KEPT_ROWS, kept
from winnow.samplers.fits.values import cut, fitted, judged, scale_of, to_the_end
from winnow.system.progress import Progress

if TYPE_CHECKING:
    from winnow.samplers import Continued

FORMAT = "continued-1"
"""Part of the name that a result is kept under: changed when the same settings would give another one."""


def continued_returns(dataset: Dataset, settings: Continued) -> np.ndarray:
    """[episodes] float64, discounted, in units of the largest reward that goes on for ever."""
    fit = {name: getattr(settings, name) for name in ("discount", "rounds", "steps", "hidden", "seed")}
    return kept(FORMAT, dataset, fit, lambda: _returns(dataset, settings), len(dataset.episodes))


def _returns(dataset: Dataset, settings: Continued) -> np.ndarray:
    rows, length, discount = dataset.rows(), dataset.episodes.length, settings.discount
    first, number, row = dataset.episodes.start, dataset.episode, np.arange(len(dataset))
    last = first + length - 1
    reward = scale_of(rows.reward, discount) * rows.reward.astype(np.float64)
    stored = to_the_end(reward, length, discount)
    goes_on = 1.0 - rows.terminal
    bootstrap = discount ** (last[number] - row + 1) * goes_on[last][number]
    mean, std = dataset.obs_moments
    obs = jnp.asarray(standardise(rows.obs, mean, std))
    following = standardise(rows.next_obs, mean, std)
    rng = np.random.default_rng(settings.seed)
    params = {"value": twins_init(jax.random.key(settings.seed), (obs.shape[1], *settings.hidden, 1))}
    target = stored  # nothing follows, in the first round
    steps = cut(settings.steps, len(dataset))
    with Progress(settings.rounds * steps, shown=len(dataset) >= KEPT_ROWS, unit="updates") as bar:
        bar.describe(f"{dataset.meta.name}: values for continued returns")
        for _ in range(settings.rounds):
            params = fitted(params, obs, target, steps, rng, bar)
            target = stored + bootstrap * judged(params, following[last])[number]
    followed = row - first[number] + 1
    later = discount**followed * np.append(stored[1:], 0.0) * (row < last[number])
    worth = stored[first][number] - later + discount**followed * goes_on * judged(params, following)
    late = followed > length[number] / 2
    return np.bincount(number, worth * late) / np.bincount(number, late)
