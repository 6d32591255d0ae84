"""The action that the data takes next, for algorithms that read it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import tiny, toy_dataset

from winnow import toy
from winnow.algorithms import IQL, ReBRAC
from winnow.data.dataset import Dataset
from winnow.data.recipes import diverse
from winnow.errors import BadInput
from winnow.packs.run import Run
from winnow.packs.tables import gather, lay_out
from winnow.samplers import Uniform
from winnow.types import Algorithm, Batch
from winnow.weighters import NoWeights


def fragments() -> Dataset:
    low = toy.make(toy.random, 300, seed=0)
    return diverse(low, toy.make(toy.expert, 300, seed=1), share=0.3, rows=800)


def every_row(data: Dataset, algorithm: Algorithm) -> Batch:
    """All rows of a dataset that is the second of two in a pack."""
    runs = [Run(other, algorithm, Uniform(), NoWeights()) for other in (toy.make(toy.random, 90, seed=3), data)]
    if data.obs_dim != runs[0].dataset.obs_dim:
        runs = runs[1:]
    tables, lanes = lay_out(runs, with_episodes=False)
    lane = jax.tree.map(lambda leaf: leaf[-1], lanes)
    row = jnp.arange(len(data))
    return gather(tables, lane, row, jnp.zeros_like(row), jnp.asarray(0), jnp.asarray(0.0))


@pytest.mark.parametrize("data", [toy_dataset(rows=200), fragments()], ids=["episodes", "fragments"])
def test_next_action_is_that_of_the_following_row_of_the_episode(data: Dataset) -> None:
    batch = every_row(data, tiny(ReBRAC))
    action = np.asarray(batch.action)
    follows = np.append(data.episode[1:] == data.episode[:-1], False)
    assert 0 < follows.mean() < 1
    assert batch.next_action is not None
    next_action = np.asarray(batch.next_action)
    np.testing.assert_array_equal(next_action[follows], action[1:][follows[:-1]])
    assert np.isnan(next_action[~follows]).all()


def test_next_action_is_not_gathered_for_others() -> None:
    assert every_row(fragments(), tiny(IQL)).next_action is None


def test_next_action_needs_an_order_of_rows() -> None:
    with pytest.raises(BadInput, match="ReBRAC reads the action that follows each row, and bag data has no order"):
        Run(toy_dataset(kind="bag"), tiny(ReBRAC), Uniform(), NoWeights())
