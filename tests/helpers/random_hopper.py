"""Random data of Hopper's shape, and runs on it that train quickly. Their policies fall within a few steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from winnow.algorithms import BC
from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.packs.run import Run
from winnow.training.planning import plan

OPTIONS: dict[str, Any] = {"steps": 60, "chunk": 20, "batch_size": 16, "progress": False}


def dataset(rows: int = 400, environment: str | None = "hopper", obs_dim: int = 11, action_dim: int = 3) -> Dataset:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(rows + 1, obs_dim))
    end = np.arange(rows) % 40 == 39
    return from_arrays(
        obs[:-1],
        rng.uniform(-1, 1, (rows, action_dim)),
        rng.random(rows),
        end,
        np.zeros(rows, bool),
        obs[1:],
        name="hops",
        environment=environment,
        action_bounds=([-1.0] * action_dim, [1.0] * action_dim),
    )


def runs(data: Dataset | None = None, seeds: int = 2) -> list[Run]:
    return plan(data or dataset(), BC(hidden=(8, 8)), "uniform", seeds=seeds)
