"""The programs of a pack: initial states, updates, passes over whole datasets, and diagnostics.

Pure functions of a pack's tables and lanes (see `winnow.packs.tables`). This module knows no plug-in by name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from winnow.data.scaling import standardise
from winnow.nets import with_copies, without_copies
from winnow.packs.precision import Precision
from winnow.packs.tables import PROBE, Lane, Tables, draw, gather, scaled, start_of
from winnow.types import Array, Batch, Metrics, Spec, State, expect

LIKELIHOODS = ("nll", "error")
"""Entries of an algorithm's `inspect` that say how well its policy fits a row: computed on held-out rows too."""


class Learner(NamedTuple):
    """What training changes: the two states, and the sums of the metrics since the last report."""

    weighter: State
    algorithm: State
    sums: Metrics


def start_learners(tables: Tables, lanes: Lane, spec: Spec, batch_size: int, stamp: Hashable = None) -> Learner:
    """Initial states and empty sums for every lane. `stamp`: cache key for files that `init` reads."""

    def start(lane: Lane) -> Learner:
        k_weighter, k_algorithm = jax.random.split(jax.random.fold_in(lane.key, 2**31 - 1))
        return Learner(lane.weighter.init(k_weighter, spec), lane.algorithm.init(k_algorithm, spec), {})

    learners = jax.vmap(start)(lanes)
    update_lane = partial(update, step=jnp.zeros((), int), progress=jnp.zeros(()), batch_size=batch_size)
    shapes = jax.eval_shape(jax.vmap(update_lane, (None, 0, 0)), tables, lanes, learners)
    return learners._replace(sums=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes.sums))


def update(tables: Tables, lane: Lane, learner: Learner, step: Array, progress: Array, batch_size: int) -> Learner:
    """One update of one run: sample, weigh, learn. The algorithm gets the weights from before the weighter's update."""
    k_draw, k_weighter, k_algorithm = jax.random.split(jax.random.fold_in(lane.key, step), 3)
    batch = draw(tables, lane, k_draw, batch_size, step, progress)
    weighter, weights, weighed = lane.weighter.update(learner.weighter, scaled(batch, lane.mean, lane.std), k_weighter)
    algorithm, learnt = lane.algorithm.update(
        learner.algorithm, scaled(batch, lane.shift, lane.scale), weights, k_algorithm
    )
    sums = jax.tree.map(jnp.add, learner.sums, weighed | learnt) if learner.sums else weighed | learnt
    return Learner(weighter, algorithm, sums)


def advance(
    tables: Tables,
    lanes: Lane,
    learners: Learner,
    first: Array,
    total: Array,
    count: int | Array,
    *,
    batch_size: int,
    precision: Precision = "default",
) -> Learner:
    """`count` updates of every lane, starting with number `first`."""
    alone = lanes.rows.shape[0] == 1  # a single run is a plain loop, without batched products

    def step_all(i: Array, learners: Learner) -> Learner:
        step = first + i
        update_lane = partial(update, step=step, progress=step / total, batch_size=batch_size)
        if alone:
            return update_lane(tables, lanes, learners)
        return jax.vmap(update_lane, (None, 0, 0))(tables, lanes, learners)

    if alone:
        lanes, learners = (jax.tree.map(lambda leaf: leaf[0], tree) for tree in (lanes, learners))
    if precision == "half":
        learners = with_copies(learners)
    with jax.default_matmul_precision("float32") if precision == "float32" else contextlib.nullcontext():
        learners = without_copies(jax.lax.fori_loop(0, count, step_all, learners))
    return jax.tree.map(lambda leaf: leaf[None], learners) if alone else learners


def refresh(tables: Tables, lanes: Lane, learners: Learner, rows: int) -> Learner:
    """Pass every lane's whole dataset to its weighter (padded to `rows` rows; the padding has episode `rows`)."""

    def refresh_lane(lane: Lane, learner: Learner) -> Learner:
        index = jnp.arange(rows)
        inside = index < lane.rows
        episode = jnp.where(inside, tables.episode[lane.first_row + jnp.minimum(index, lane.rows - 1)], rows)
        return learner._replace(weighter=lane.weighter.refresh(learner.weighter, _fetcher(tables, lane), episode))

    return jax.lax.map(lambda pair: refresh_lane(*pair), (lanes, learners))


def inspect(tables: Tables, lanes: Lane, learners: Learner) -> Metrics:
    """Diagnostics of every lane's algorithm on some rows: see `Algorithm.inspect`.

    Likelihoods and errors: the mean under the run's weights, on training rows and on held-out rows. Values: mean,
    minimum and maximum on training rows.
    """

    def inspect_lane(lane: Lane, learner: Learner) -> Metrics:
        fetch = _fetcher(tables, lane, scale=False)
        metrics = {}
        for where in (0, 1):
            row = jax.lax.dynamic_slice(tables.probe, (lane.first_probe + where * PROBE,), (PROBE,))
            batch = fetch(row)
            score = lane.weighter.log_weight(learner.weighter, scaled(batch, lane.mean, lane.std))
            weight = jax.nn.softmax(jnp.where(jnp.isfinite(score), score, -1e30))
            values = lane.algorithm.inspect(learner.algorithm, scaled(batch, lane.shift, lane.scale))
            for name, value in values.items():
                if name in LIKELIHOODS:
                    metrics[f"{name}/{('drawn', 'held_out')[where]}"] = expect(weight, value)
                elif where == 0:
                    metrics |= {f"{name}/mean": value.mean(), f"{name}/min": value.min(), f"{name}/max": value.max()}
        return metrics

    return jax.lax.map(lambda pair: inspect_lane(*pair), (lanes, learners))


def score(tables: Tables, lane: Lane, weighter: State, row: Array) -> Array:
    """log w of the rows with these numbers."""
    return lane.weighter.log_weight(weighter, _fetcher(tables, lane)(row))


def _fetcher(tables: Tables, lane: Lane, scale: bool = True) -> Any:
    """A function that reads rows by number, as the weighter reads them or with raw observations. A row has the same
    initial state in every call."""

    def fetch(row: Array) -> Batch:
        row = jnp.minimum(row, lane.rows - 1)
        start = start_of(row, lane.starts.astype(jnp.uint32)).astype(jnp.int32)
        zero = jnp.zeros((), int)
        batch = gather(tables, lane, row, start, zero, jnp.zeros(()))
        return scaled(batch, lane.mean, lane.std) if scale else batch

    return fetch


def weigh(weighter: Any, state: State, batch: Batch, block: int | None = None) -> np.ndarray:
    """log w of the rows of a batch outside of training (`winnow.packs.tables.read` makes such a batch): all rows at
    once, or so many at a time."""
    size = block or len(batch.row)

    def part(low: int) -> Batch:
        return jax.tree.map(lambda column: column[low : low + size] if np.ndim(column) else column, batch)

    each = [np.asarray(_log_weight(weighter, state, part(low))) for low in range(0, len(batch.row), size)]
    return np.concatenate(each)


@jax.jit
def _log_weight(weighter: Any, state: State, batch: Batch) -> Array:
    return weighter.log_weight(state, batch)


def act(lane: Any, state: State, obs: Array) -> Array:
    """The policy's mean action in the environment's units, for raw observations [..., O]; a score for each choice
    [..., K] where actions are discrete (centre 0 and half width 1 leave it as it is).

    `lane` is a lane or anything else with an algorithm and these four scalings.
    """
    unit = lane.algorithm.act(state, standardise(obs, lane.shift, lane.scale))
    return lane.action_centre + lane.action_half * unit
