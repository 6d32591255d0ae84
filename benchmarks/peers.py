"""The code that winnow is compared with: a plain JAX loop, and d3rlpy if it is installed."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from shapes import ACTION, BATCH, OBS, arrays

from winnow.algorithms import IQL
from winnow.types import Batch, Spec, Weights


def plain_loop() -> Callable[[int], None]:
    """IQL in plain JAX: one scan, uniform samples from arrays, no packs, no tables, no weights."""
    data = {name: jnp.asarray(column, jnp.float32) for name, column in arrays(100_000, 500, 0).items()}
    algorithm = IQL()
    key = jax.random.key(0)
    state = jax.jit(lambda key: algorithm.init(key, Spec(OBS, ACTION, 100_000)))(key)
    uniform = jnp.full(BATCH, 1 / BATCH)

    @partial(jax.jit, static_argnames="count", donate_argnames="state")
    def steps(state: Any, key: Any, data: dict[str, Any], count: int) -> Any:
        def step(carry: Any, i: Any) -> tuple[Any, None]:
            state, key = carry
            key, k_draw, k_learn = jax.random.split(key, 3)
            row = jax.random.randint(k_draw, (BATCH,), 0, len(data["rewards"]))
            names = ("observations", "actions", "rewards", "next_observations", "terminals")
            obs, action, reward, following, terminal = (data[name][row] for name in names)
            batch = Batch(obs, action, reward, following, terminal, reward, obs, row, i, i / 1e6)
            return (algorithm.update(state, batch, Weights(uniform, uniform), k_learn)[0], key), None

        return jax.lax.scan(step, (state, key), jnp.arange(count))[0]

    carried = [state, key]

    def go(count: int) -> None:
        carried[:] = jax.block_until_ready(steps(carried[0], carried[1], data, count))

    return go


def d3rlpy_loops(names: tuple[str, ...], device: str = "cpu") -> dict[str, Callable[[int], None]]:
    """d3rlpy's own training loop on the same data, batch and sizes (its defaults: 2×256, batch 256)."""
    import structlog  # pyright: ignore[reportMissingImports]

    warnings.filterwarnings("ignore")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    import d3rlpy  # pyright: ignore[reportMissingImports]  # there only for benchmarks: see the Makefile

    columns = arrays(100_000, 500, 0)
    data = d3rlpy.dataset.MDPDataset(**{n: columns[n] for n in ("observations", "actions", "rewards", "terminals")})
    made = {
        "iql": d3rlpy.algos.IQLConfig(batch_size=BATCH),
        "td3bc": d3rlpy.algos.TD3PlusBCConfig(batch_size=BATCH),
        "cql": d3rlpy.algos.CQLConfig(batch_size=BATCH),
    }

    def loop(config: Any) -> Callable[[int], None]:
        algorithm = config.create(device=device)
        algorithm.build_with_dataset(data)

        def go(count: int) -> None:
            algorithm.fit(
                data,
                n_steps=count,
                n_steps_per_epoch=count,
                show_progress=False,
                save_interval=10**9,
                logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
            )

        return go

    return {name: loop(made[name]) for name in names}
