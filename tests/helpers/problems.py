"""Small datasets and batches, tiny plug-ins, and comparisons of trees, shared by tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import compiler

from winnow.algorithms import ALGORITHMS, CQL, FQL, IQL, TD3BC, ReBRAC
from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.packs.precision import if_known
from winnow.types import Array, Batch, Spec, Weights, action_kind_of
from winnow.weighters import WEIGHTERS, Density, Dual, Fixed, OptiDICE

OBS = 3
ACTION = 2
ROWS = 40
SPEC = Spec(OBS, ACTION, ROWS)
SMALL = {"hidden": (16,), "samples": 3}


def tiny(kind: type, **settings: Any) -> Any:
    """A plug-in with small networks and few sampled actions."""
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in SMALL.items() if name in known} | settings)


PLAIN = ("none", "decoupled", "fixed")
"""Weighters that learn nothing."""

ALGORITHM_CASES: dict[str, Any] = {name: tiny(kind) for name, kind in ALGORITHMS.items()} | {
    "iql-dropout": tiny(IQL, dropout=0.5),
    "cql-plain-sum": tiny(CQL, importance=False),
    "cql-max-backup": tiny(CQL, max_backup=3),
    "cql-literal": tiny(CQL, reg_only="literal"),
    "cql-strict": tiny(CQL, reg_only="strict"),
    "td3bc-every-update": tiny(TD3BC, actor_every=1),
    "rebrac-every-update": tiny(ReBRAC, actor_every=1, normalise_actor=True),
    "fql-normalised": tiny(FQL, normalise_q=True, target="min", normalise_actor=True),
}
"""Every registered algorithm, and the variants whose program differs."""

LEARNED_CASES: dict[str, Any] = {name: tiny(WEIGHTERS[name]) for name in WEIGHTERS if name not in PLAIN} | {
    "density-paper": tiny(Density, form="paper"),
    "density-td3bc": tiny(Density, form="code-td3bc", state_weight="marginal"),
    "density-mask": tiny(Density, terminal="mask"),
    "density-marginal": tiny(Density, state_weight="marginal"),
    "optidice-kl": tiny(OptiDICE, divergence="kl"),
    "optidice-marginal": tiny(OptiDICE, state_weight="marginal"),
    "optidice-reset": tiny(OptiDICE, terminal="reset"),
    "dual-temperature": tiny(Dual, control="temperature"),
    "dual-mask": tiny(Dual, terminal="mask"),
    "dual-discount": tiny(Dual, discount=0.9),
    "dual-marginal": tiny(Dual, state_weight="marginal"),
    "dual-trajectory": tiny(Dual, average="trajectory"),
}
"""Every registered weighter that learns, and the variants whose program differs."""

WEIGHTER_NAMES = [*PLAIN, *LEARNED_CASES]


def weighter_case(name: str, folder: Path) -> Any:
    """A weighter by the name of its case. `fixed` reads ROWS weights, one of them 0, from a file in the folder."""
    if name != "fixed":
        return LEARNED_CASES[name] if name in LEARNED_CASES else tiny(WEIGHTERS[name])
    weight = np.random.default_rng(0).exponential(size=ROWS)
    weight[3] = 0
    np.save(folder / "weight.npy", weight)
    return Fixed(path=str(folder / "weight.npy"))


# ---------------------------------------------------------------------------------------------------- data


def is_discrete(algorithm: Any) -> bool:
    return action_kind_of(algorithm) == "discrete"


def spec_for(algorithm: Any) -> Spec:
    """The toy data's, with as many choices as there are columns of continuous actions."""
    return SPEC._replace(action_kind=action_kind_of(algorithm))


def batch_for(algorithm: Any, seed: int = 0, size: int = 8) -> Batch:
    """`toy_batch` with actions that the algorithm can read."""
    batch = toy_batch(seed, size)
    return batch._replace(action=jnp.eye(ACTION)[batch.action.argmax(axis=-1)]) if is_discrete(algorithm) else batch


def toy_dataset(rows: int = ROWS, seed: int = 0, longest: int = 8, choices: int = 0, **options: Any) -> Dataset:
    """Random walks of 1 to `longest` steps; about half of them end in a terminal, the others in a timeout. With
    `choices` actions are discrete."""
    rng = np.random.default_rng(seed)
    length = rng.integers(1, longest + 1, rows)
    end = np.isin(np.arange(rows), np.cumsum(length) - 1)
    end[-1] = True
    terminal = end & (rng.random(rows) < 0.5)
    obs = rng.normal(size=(rows, OBS))
    following = np.where(end[:, None], rng.normal(size=(rows, OBS)), np.roll(obs, -1, axis=0))
    if options.get("kind") == "bag":
        following = rng.normal(size=(rows, OBS))
    if options.get("kind") == "continuing":
        terminal = None
        end = None
        following = np.concatenate([obs[1:], rng.normal(size=(1, OBS))])
    action = rng.uniform(-1, 1, (rows, ACTION))
    reward = rng.normal(size=rows)
    if choices:
        action = rng.integers(choices, size=rows)
        options = options | {"action_choices": choices}
    timeout = None if end is None or terminal is None else end & ~terminal
    return from_arrays(obs, action, reward, terminal, timeout, following, **options)


def bandit(rows: int = 512, best: float = 0.5) -> Dataset:
    """One state, actions spread evenly over [−1, 1], a reward that peaks at `best`; every row ends its episode."""
    action = np.linspace(-1, 1, rows)[:, None]
    reward = 4 * np.exp(-(((action[:, 0] - best) / 0.3) ** 2))
    obs = np.ones((rows, 1))
    return from_arrays(obs, action, reward, np.ones(rows), next_observations=obs)


def choosing_bandit(rows: int = 512, choices: int = 5, best: int = 3) -> Dataset:
    """The same with choices: each is taken equally often, and one of them pays."""
    action = np.arange(rows) % choices
    obs = np.ones((rows, 1))
    reward = 4.0 * (action == best)
    return from_arrays(obs, action, reward, np.ones(rows), next_observations=obs, action_choices=choices)


def toy_batch(seed: int = 0, size: int = 8) -> Batch:
    """Random rows. Row 1 and every fourth after it is terminal; row 0 is not, but ends an episode too."""
    rng = np.random.default_rng(seed)
    obs, following, start = rng.normal(size=(3, size, OBS)).astype(np.float32)
    unit = rng.random(size).astype(np.float32)
    following_action = np.random.default_rng(1_000 + seed).uniform(-1, 1, (size, ACTION))
    following_action[np.arange(size) % 4 < 2] = np.nan
    return Batch(
        obs=jnp.asarray(obs),
        action=jnp.asarray(rng.uniform(-1, 1, (size, ACTION)).astype(np.float32)),
        reward=jnp.asarray(3 * unit - 1),
        next_obs=jnp.asarray(following),
        terminal=jnp.asarray((np.arange(size) % 4 == 1).astype(np.float32)),
        unit_reward=jnp.asarray(unit),
        next_action=jnp.asarray(following_action, jnp.float32),
        start_obs=jnp.asarray(start),
        row=jnp.asarray(np.resize(rng.permutation(ROWS), size)),
        step=jnp.zeros((), int),
        progress=jnp.asarray(0.25),
    )


def toy_weights(seed: int = 0, size: int = 8) -> Weights:
    """Weights for the pair that differ from those for the state."""
    pair, state = np.random.default_rng(seed).exponential(size=(2, size)) + 0.05
    return Weights(jnp.asarray(pair / pair.sum(), jnp.float32), jnp.asarray(state / state.sum(), jnp.float32))


def take(batch: Batch, index: Any) -> Batch:
    """These rows of a batch, in this order."""
    return jax.tree.map(lambda column: column[jnp.asarray(index)] if jnp.ndim(column) else column, batch)


def put(column: Array, row: int, value: Any) -> Array:
    """A column with one row replaced."""
    return column.at[row].set(jnp.asarray(value, column.dtype))


# ------------------------------------------------------------------------------------------------- running


def perturbed(tree: Any, seed: int, amount: float = 0.1) -> Any:
    """The tree with noise on every number, so that biases are not 0 and targets differ from their networks."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: leaf + amount * jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), tree)


def assert_same(actual: Any, expected: Any, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Assert that two trees of one structure have the same numbers, bit for bit unless a tolerance is given."""
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(
            np.asarray(a), np.asarray(b), rtol, atol, err_msg=jax.tree_util.keystr(path), equal_nan=True
        )


def differ(a: Any, b: Any) -> bool:
    """Whether any number of two trees of one structure differs."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return any(not np.array_equal(np.asarray(x), np.asarray(y)) for x, y in pairs)


@contextmanager
def quick_compiles() -> Iterator[None]:
    """Compile with few optimisations: most of the time of a test with tiny networks is spent compiling."""
    options = compiler.get_compile_options
    simple = if_known({"xla_cpu_use_fusion_emitters": False})  # half of the compile time on a CPU

    def quick(*args: Any, env_options_overrides: dict[str, Any] | None = None, **more: Any) -> Any:
        return options(*args, env_options_overrides=simple | (env_options_overrides or {}), **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "get_compile_options", quick)
        jax.config.update("jax_disable_most_optimizations", True)
        try:
            yield
        finally:
            jax.config.update("jax_disable_most_optimizations", False)
