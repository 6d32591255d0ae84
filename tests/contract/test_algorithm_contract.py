"""What every registered algorithm keeps to."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import (
    ACTION,
    ALGORITHM_CASES,
    OBS,
    assert_same,
    bandit,
    batch_for,
    choosing_bandit,
    differ,
    is_discrete,
    put,
    quick_compiles,
    spec_for,
    take,
    tiny,
    toy_batch,
    toy_weights,
)

from winnow.algorithms import ALGORITHMS, BC, FQL, TD3BC, ReBRAC
from winnow.packs.pack import Pack
from winnow.packs.run import Run
from winnow.samplers import AW, Uniform
from winnow.types import Batch, Weights
from winnow.weighters import NoWeights

KEY = jax.random.key(7)
UPDATE = jax.jit(lambda algorithm, state, batch, weights, key: algorithm.update(state, batch, weights, key))

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHM_CASES.values(), ids=ALGORITHM_CASES)
# The regulariser-only variants of CQL leave some losses unweighted: that is what they are for.
fully_weighted = {name: case for name, case in ALGORITHM_CASES.items() if getattr(case, "reg_only", "none") == "none"}
bootstrapping = {name: case for name, case in ALGORITHM_CASES.items() if hasattr(case, "discount")}


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with quick_compiles():
        yield


def make_rows_draw_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random draws become the same for every row of a batch [..., B, N], so that two copies of a row are two copies."""

    def alike(draw: Any) -> Any:
        def one(key: Any, *arguments: Any, **bounds: Any) -> Any:
            *before, shape = arguments
            return jnp.broadcast_to(draw(key, *before, (*shape[:-2], 1, shape[-1]), **bounds), shape)

        return one

    for name in ("normal", "uniform", "bernoulli"):
        monkeypatch.setattr(jax.random, name, alike(getattr(jax.random, name)))


@functools.cache
def init(algorithm: Any) -> Any:
    return algorithm.init(KEY, spec_for(algorithm))


def twice(algorithm: Any, batch: Batch, weights: Weights) -> Any:
    """States and metrics of two updates on the same rows; the algorithm takes both for an even step."""
    first = UPDATE(algorithm, init(algorithm), batch, weights, KEY)
    return first, UPDATE(algorithm, first[0], batch, weights, jax.random.key(8))


# ------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("algorithm", fully_weighted.values(), ids=fully_weighted)
def test_a_row_with_weight_zero_changes_nothing(algorithm: Any) -> None:
    """Except where a plain mean of |Q(s, π(s))| over the batch's states sets the scale of Q: there the state stays."""
    batch = batch_for(algorithm)
    pair, state = (put(side, 2, 0.0) for side in toy_weights()[:2])
    weights = Weights(pair / pair.sum(), state / state.sum())
    other = batch_for(algorithm, seed=1)
    columns = {
        name: put(getattr(batch, name), 2, 5 * getattr(other, name)[2]) for name in ("reward", "next_obs", "obs")
    }
    if isinstance(algorithm, (TD3BC, ReBRAC)) or getattr(algorithm, "normalise_q", False):
        del columns["obs"]
    changed = batch._replace(
        action=put(batch.action, 2, other.action[2]), terminal=put(batch.terminal, 2, 1), **columns
    )
    assert_same(twice(algorithm, changed, weights), twice(algorithm, batch, weights))


@every_algorithm
def test_a_duplicated_row_equals_a_doubled_weight(algorithm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients are compared through Adam's moments: its step itself turns round where a gradient rounds about 0."""
    algorithm = dataclasses.replace(algorithm, learning_rate=1e-7)
    weights, twins = toy_weights(), take(batch_for(algorithm), [*range(8), *range(8)])
    shared = Weights(*(jnp.concatenate([side / 3, 2 * side / 3]) for side in weights[:2]))
    doubled = Weights(*(jnp.concatenate([side, 0 * side]) for side in weights[:2]))
    start = init(algorithm)
    make_rows_draw_alike(monkeypatch)
    update = jax.jit(lambda weights: algorithm.update(start, twins, weights, KEY))
    assert_same(update(shared), update(doubled), rtol=1e-4, atol=1e-6)


@every_algorithm
def test_weights_matter(algorithm: Any) -> None:
    batch, weights = batch_for(algorithm), toy_weights()
    uniform = Weights(jnp.full(8, 1 / 8), jnp.full(8, 1 / 8))
    _, weighed = UPDATE(algorithm, init(algorithm), batch, weights, KEY)
    _, plain = UPDATE(algorithm, init(algorithm), batch, uniform, KEY)
    assert differ(weighed, plain)


# ------------------------------------------------------------------------------------------------ learning


@every_algorithm
def test_every_parameter_changes_with_each_update(algorithm: Any) -> None:
    """Except targets that follow the parameters of before the update, which in the first one are their own."""
    begin = init(algorithm)
    (first, _), (second, _) = twice(algorithm, batch_for(algorithm), toy_weights())
    for before, after in ((begin, first), (first, second)):
        moved = jax.tree.map(lambda a, b: bool((a != b).any()), before, after)
        still = [jax.tree_util.keystr(p) for p, change in jax.tree_util.tree_leaves_with_path(moved) if not change]
        if before is begin:
            late = {ReBRAC: ".target['actor']", FQL: ".target_critic"}.get(type(algorithm), "none")
            still = [name for name in still if not name.startswith(late)]
        assert not still


def test_td3bc_leaves_actor_and_targets_alone_on_odd_steps() -> None:
    algorithm = ALGORITHM_CASES["td3bc"]
    begin = init(algorithm)
    odd = toy_batch()._replace(step=jnp.ones((), int))
    state, _ = UPDATE(algorithm, begin, odd, toy_weights(), KEY)
    assert_same((state.params["actor"], state.target), (begin.params["actor"], begin.target))
    assert differ(state.params["critic"], begin.params["critic"])


@every_algorithm
def test_an_update_is_determined_by_its_key(algorithm: Any) -> None:
    batch, weights = batch_for(algorithm), toy_weights()
    assert_same(twice(algorithm, batch, weights), twice(algorithm, batch, weights))


@every_algorithm
def test_states_and_metrics_stay_finite(algorithm: Any) -> None:
    """Also with actions at their bounds, which a tanh policy can't reach."""
    batch = batch_for(algorithm)
    batch = batch._replace(action=jnp.sign(batch.action))
    for leaf in jax.tree.leaves(twice(algorithm, batch, toy_weights())):
        assert np.isfinite(leaf).all()


@pytest.mark.parametrize("algorithm", bootstrapping.values(), ids=bootstrapping)
def test_a_timed_out_row_bootstraps_and_a_terminal_one_does_not(algorithm: Any) -> None:
    """CQL's penalty also draws from π(s'), of any row: it is left out here."""
    if hasattr(algorithm, "penalty"):
        algorithm = dataclasses.replace(algorithm, penalty=0.0)
    batch, weights = batch_for(algorithm), toy_weights()

    def learnt(row: int) -> Any:
        elsewhere = batch._replace(next_obs=put(batch.next_obs, row, [3.0, -2.0, 1.0]))
        return UPDATE(algorithm, init(algorithm), elsewhere, weights, KEY)[0]

    plain, _ = UPDATE(algorithm, init(algorithm), batch, weights, KEY)
    assert differ(learnt(row=0), plain)
    assert_same(learnt(row=1), plain)


# ------------------------------------------------------------------------------------------------- acting


@every_algorithm
@pytest.mark.parametrize("leading", [(), (5,), (2, 3)])
def test_actions_keep_any_leading_shape_and_their_bounds(algorithm: Any, leading: tuple[int, ...]) -> None:
    obs = 100 * jax.random.normal(KEY, (*leading, OBS))
    action = algorithm.act(init(algorithm), obs)
    assert action.shape == (*leading, ACTION)
    assert is_discrete(algorithm) or jnp.abs(action).max() <= 1


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_bandit_is_ordered_right(name: str) -> None:
    """One state, evenly spread actions, the best one at 0.5, or choice 3 of 5. Plain imitation would stay at 0, or find
    all choices alike, so BC is given AW."""
    settings: dict[str, Any] = {"learning_rate": 3e-3, "reward_scaling": "none", "hidden": (16,)}
    algorithm = tiny(ALGORITHMS[name], **settings)
    data = choosing_bandit() if is_discrete(algorithm) else bandit()
    sampler = AW() if name.endswith("bc") and name != "td3bc" else Uniform()
    pack = Pack([Run(data, algorithm, sampler, NoWeights())], steps=1500, batch_size=64)
    pack.advance(1500)
    lane, learner = pack.lane(0)
    action = algorithm.act(learner.algorithm, (jnp.ones(1) - lane.shift) / lane.scale)
    assert action.argmax() == 3 if is_discrete(algorithm) else abs(float(action[0]) - 0.5) < 0.25


def test_imitation_without_weights_takes_the_mean_action() -> None:
    """What the others must do better than in the bandit."""
    algorithm = tiny(BC, learning_rate=3e-3, hidden=(16,))
    pack = Pack([Run(bandit(), algorithm, Uniform(), NoWeights())], steps=1500, batch_size=64)
    pack.advance(1500)
    assert abs(float(algorithm.act(pack.lane(0)[1].algorithm, jnp.zeros(1))[0])) < 0.2
