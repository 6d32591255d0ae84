"""Pieces of episodes that go on from good ones, or into them: what the sampler `followed` adds to those that lead
somewhere good.

Returns continued past a piece's end leave out what a good policy does last: a fall, and the steps that lead to it. They
are few, and values learnt without them know of no falls. They also leave out some of the pieces that it begins with,
since a slow start is worth less. So a piece is drawn as well if it begins where most of what passes is drawn, whatever
becomes of it, or if it ends where nearly all is. How much of what passes is drawn is fitted to observations, and asked
of the first and of the last quarter of every piece. What is added is drawn from then on, so that the next pass goes on
from there, to the end of the episode.

A piece of bad data that begins where good data does is not added as long as bad data is the majority there: at the
start of an episode it is.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.scaling import standardise
from winnow.nets import twins_init
from winnow.samplers.fits.cache import KEPT_ROWS, kept
from winnow.samplers.fits.continued import FORMAT as RETURNS
from winnow.samplers.fits.values import cut, fitted, judged
from winnow.system.progress import Progress

if TYPE_CHECKING:
    from winnow.samplers import Followed

FORMAT = "followed-1"
"""Part of the name that a result is kept under: changed when the same settings would give another one."""
HEAT = 0.02
"""How soft both thresholds are: where 0.4 is drawn and 0.5 is asked for, a piece is added with a weight of 0.007."""
SETTLED = 1e-3
"""A pass that adds less than this part of what is drawn is the last."""


def with_followers(dataset: Dataset, drawn: np.ndarray, settings: Followed) -> np.ndarray:
    """[episodes] how likely a row of each is drawn, 1 at the most, from how likely it is by where it leads."""
    form, facts = f"{FORMAT} of {RETURNS}", dataclasses.asdict(settings)
    return kept(form, dataset, facts, lambda: _followed(dataset, drawn, settings), len(dataset.episodes))


def _followed(dataset: Dataset, drawn: np.ndarray, settings: Followed) -> np.ndarray:
    length, number, steps = dataset.episodes.length, dataset.episode, cut(settings.steps, len(dataset))
    obs = jnp.asarray(standardise(dataset.rows().obs, *dataset.obs_moments))
    place, quarter = np.arange(len(dataset)) - dataset.episodes.start[number], np.maximum(length // 4, 1)[number]
    early, late = place < quarter, place >= length[number] - quarter
    rng = np.random.default_rng(settings.seed)
    params = {"value": twins_init(jax.random.key(settings.seed), (obs.shape[1], *settings.hidden, 1))}
    with Progress(settings.passes * steps, shown=len(dataset) >= KEPT_ROWS, unit="updates") as bar:
        bar.describe(f"{dataset.meta.name}: what follows good pieces")
        for _ in range(settings.passes):
            params = fitted(params, obs, np.repeat(drawn, length), steps, rng, bar)
            around = judged(params, obs)
            begins, ends = (np.bincount(number, around * part) / np.bincount(number, part) for part in (early, late))
            above = np.maximum(begins - settings.begins, ends - settings.ends) / HEAT
            more = np.maximum(drawn, 1 / (1 + np.exp(-above)))
            added, drawn = length @ (more - drawn), more
            if added <= SETTLED * (length @ drawn):
                break
    return drawn
