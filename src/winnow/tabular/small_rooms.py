"""Four small rooms, a grid whose exact weights are known, and winnow's own weighters trained on its data.

The start is in one corner, the goal in the opposite one, and there are four moves. A step costs 0.02 and the goal pays
1, so the scaled reward is 1 at the goal and 0 elsewhere, and fast episodes have higher returns. The goal is terminal
and the next episode begins at the start: a policy's average scaled reward is 1 / (its mean number of steps).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from winnow.packs.pack import Pack
from winnow.packs.run import Run
from winnow.samplers import Sampler, Uniform
from winnow.tabular import judge as judging
from winnow.tabular.data import Data
from winnow.tabular.data import collect as collect_from
from winnow.tabular.density import STAGES
from winnow.tabular.grid import Grid
from winnow.tabular.judge import Judged
from winnow.types import Array, Batch, Metrics, Spec, Weights, plugin

# fmt: off
ROOMS = ("S..#...",
         ".......",
         "...#...",
         "#.###.#",
         "...#...",
         ".......",
         "...#..G")
# fmt: on


def small_rooms(slip: float = 0.0) -> Grid:
    """39 states (the goal is not one of them), at least 12 steps from the start to the goal."""
    return Grid(slip, ROOMS, pays="entering")


def collect(grid: Grid, seed: int = 0) -> Data:
    """400 episodes of a policy whose moves are random with probability 0.75; the shortest episodes are left out."""
    return collect_from(grid, seed, episodes=400, random=0.75, limit=100)


def judge(data: Data, log_weight: np.ndarray, sampler: Sampler | None = None) -> Judged:
    """What log weights [rows] do to the data."""
    return judging.judge(data, judging.from_rows(data, log_weight, sampler))


def edge_log_weights(data: Data, log_weight: np.ndarray) -> np.ndarray:
    """[edges] log w with E_D[w] = 1, from log w by row."""
    out = np.zeros(len(data.share))
    out[data.edge] = log_weight
    return out - np.asarray(logsumexp(out, b=data.share))


@plugin
class Idle:
    """An algorithm that learns nothing, so that a pack trains its weighters alone."""

    standardise: bool = True
    reward_scaling: str = "none"

    def init(self, key: Array, spec: Spec) -> tuple[()]:
        return ()

    def update(self, state: tuple[()], batch: Batch, weights: Weights, key: Array) -> tuple[tuple[()], Metrics]:
        return state, {}

    def act(self, state: tuple[()], obs: Array) -> Array:
        return jnp.zeros((*obs.shape[:-1], 1))


RATES = ("learning_rate", "temperature_rate")


def train(
    runs: Iterable[tuple[Data, Any, int]], stages: Sequence[tuple[float, int]] = STAGES, batch_size: int = 2048
) -> Pack:
    """Train a pack of (data, weighter, seed) in stages of (factor of the learning rates, steps).

    The rates fall from stage to stage so that weights converge: at λ = 0.01 an error of 0.001 in ν changes w by 10 %.
    """
    pack = Pack(
        [Run(data.tables, Idle(), Uniform(), weighter, seed) for data, weighter, seed in runs],
        sum(steps for _, steps in stages),
        batch_size,
    )
    first = pack.lanes.weighter
    for factor, steps in stages:
        slower = {name: factor * getattr(first, name) for name in RATES if hasattr(first, name)}
        pack.lanes = pack.lanes._replace(weighter=dataclasses.replace(first, **slower))
        pack.advance(steps)
    pack.wait()
    return pack


def table_of_nu(pack: Pack, number: int, data: Data) -> np.ndarray:
    """[S] ν of every state, from the linear network of `Dual(hidden=())` on standardised one-hot observations."""
    mean, std = (np.float64(moment) for moment in data.tables.obs_moments)
    (layer,) = jax.tree.map(np.float64, pack.lane(number)[1].weighter.params["nu"])
    return ((np.eye(data.grid.states) - mean) / std @ layer["w"] + layer["b"])[:, 0]
