"""Fragments that begin or end among good ones: what the sampler `followed` adds to those of `continued`.

Returns continued past a fragment's end leave out what a good policy does last: a fall, and the steps that lead to it.
Such fragments are few, and values that are learned without them know of no falls. They also leave out some fragments
that good episodes begin with, since a slow start is worth less. So a fragment is added if most of the data near its
first states is selected, whatever becomes of it later, or if nearly all data near its last states is. The selected
fraction is fitted to observations, and read in the first and in the last quarter of every fragment. What a pass adds is
selected in the next one, which goes on from there, to the end of the episode.

A bad fragment that begins where good ones do is not added as long as bad data is the majority there: at the start of an
episode it is.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from winnow.data.dataset import Dataset
from winnow.samplers.fits.cache import kept
from winnow.samplers.fits.continued import FORMAT as RETURNS
from winnow.samplers.fits.values import Folds, cut, fit_progress, network_inputs

if TYPE_CHECKING:
    from winnow.samplers import Followed

FORMAT = "followed-2"
"""Part of the cache key: changed whenever the same settings would give another result."""
SOFTNESS = 0.02
"""How soft both thresholds are: at a fraction of 0.4 where 0.5 is asked for, a fragment gets a probability of 0.007."""
LEAST_ADDED = 1e-3
"""The passes end when one adds less than this fraction of what is selected."""


def with_followers(dataset: Dataset, selected: np.ndarray, settings: Followed) -> np.ndarray:
    """[episodes] how likely a row of each is sampled, 1 at the most, from how likely `continued` samples it."""
    facts = dataclasses.asdict(settings)
    size = len(dataset.episodes)
    return kept(f"{FORMAT} of {RETURNS}", dataset, facts, lambda: _followed(dataset, selected, settings), size)


def _followed(dataset: Dataset, selected: np.ndarray, settings: Followed) -> np.ndarray:
    length = dataset.episodes.length
    number = dataset.episode
    steps = cut(settings.steps, len(dataset))
    obs = network_inputs(dataset)[0]
    row = np.arange(len(dataset))
    folds = Folds.of(dataset, settings.seed)
    inputs = jnp.asarray(obs)
    step = row - dataset.episodes.start[number]
    quarter = np.maximum(length // 4, 1)[number]
    early = step < quarter
    late = step >= length[number] - quarter
    rng = np.random.default_rng(settings.seed)
    fitted = folds.init(settings.seed, (obs.shape[1], *settings.hidden, 1))
    with fit_progress(dataset, "followed", "what follows good fragments", settings.passes * steps) as bar:
        for _ in range(settings.passes):
            fitted = folds.fit(fitted, inputs, np.repeat(selected, length), steps, rng, bar)
            around = folds.predict(fitted, obs, row)
            begins, ends = (np.bincount(number, around * part) / np.bincount(number, part) for part in (early, late))
            above = np.maximum(begins - settings.begins, ends - settings.ends) / SOFTNESS
            extended = np.maximum(selected, 1 / (1 + np.exp(-above)))
            added = length @ (extended - selected)
            selected = extended
            if added <= LEAST_ADDED * (length @ selected):
                break
    return selected
