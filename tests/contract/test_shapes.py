"""Shapes and types at the seam, checked by jaxtyping while every plug-in is traced: one batch size through all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import pytest
from beartype import beartype
from helpers.problems import (
    ALGORITHM_CASES,
    SPEC,
    WEIGHTER_NAMES,
    batch_for,
    spec_for,
    toy_batch,
    toy_weights,
    weighter_case,
)
from jaxtyping import Array, Float, jaxtyped

KEY = jax.random.key(0)
Rows = Float[Array, " rows"]
Scalars = dict[str, Float[Array, ""]]


@jaxtyped(typechecker=beartype)
def weigh(
    weighter: Any, reward: Rows, obs: Float[Array, "rows obs"], action: Float[Array, "rows action"]
) -> tuple[Rows, Rows, Rows, Scalars]:
    batch = toy_batch()._replace(reward=reward, obs=obs, action=action)
    state = weighter.init(KEY, SPEC)
    _, weights, metrics = weighter.update(state, batch, KEY)
    return weights.sa, weights.s, weighter.log_weight(state, batch), metrics


@jaxtyped(typechecker=beartype)
def learn(
    algorithm: Any, obs: Float[Array, "rows obs"], action: Float[Array, "rows action"]
) -> tuple[Float[Array, "rows action"], Float[Array, "2 3 action"], Scalars]:
    state = algorithm.init(KEY, spec_for(algorithm))
    state, metrics = algorithm.update(state, batch_for(algorithm), toy_weights(), KEY)
    return algorithm.act(state, obs), algorithm.act(state, obs[:6].reshape(2, 3, -1)), metrics


@pytest.mark.parametrize("name", WEIGHTER_NAMES)
def test_a_weighter_gives_a_number_a_row(name: str, tmp_path: Path) -> None:
    weighter, batch = weighter_case(name, tmp_path), toy_batch()
    jax.eval_shape(lambda *columns: weigh(weighter, *columns), batch.reward, batch.obs, batch.action)


@pytest.mark.parametrize("algorithm", ALGORITHM_CASES.values(), ids=ALGORITHM_CASES)
def test_an_algorithm_gives_an_action_a_row(algorithm: Any) -> None:
    batch = batch_for(algorithm)
    jax.eval_shape(lambda *columns: learn(algorithm, *columns), batch.obs, batch.action)


def test_a_wrong_shape_is_caught() -> None:
    batch = toy_batch()

    class Sums:
        def init(self, key: Any, spec: Any) -> Any:
            return ()

        def update(self, state: Any, batch: Any, key: Any) -> Any:
            from winnow.types import Weights

            return state, Weights(batch.reward.sum(), batch.reward), {}

        def log_weight(self, state: Any, batch: Any) -> Any:
            return batch.reward

    with pytest.raises(Exception, match="return"):
        weigh(Sums(), batch.reward, batch.obs, batch.action)
