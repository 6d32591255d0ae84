"""Small datasets and files for the tests of `winnow.data` and its commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset

Columns = dict[str, Any]


def columns(
    lengths: tuple[int, ...] = (4, 1, 3), terminated: tuple[bool, ...] = (True, False, False), seed: int = 0
) -> Columns:
    """Columns of whole episodes under D4RL's names. Only the last next observation of an episode is not repeated."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    paths = [rng.normal(size=(length + 1, 3)).astype(np.float32) for length in lengths]
    last = np.cumsum(lengths) - 1
    terminals, timeouts = np.zeros((2, n), bool)
    terminals[last] = terminated
    timeouts[last] = ~np.array(terminated)
    return {
        "observations": np.concatenate([path[:-1] for path in paths]),
        "actions": rng.uniform(-1, 1, (n, 2)).astype(np.float32),
        "rewards": rng.normal(size=n).astype(np.float32),
        "next_observations": np.concatenate([path[1:] for path in paths]),
        "terminals": terminals,
        "timeouts": timeouts,
    }


def dataset(
    lengths: tuple[int, ...] = (4, 1, 3),
    terminated: tuple[bool, ...] = (True, False, False),
    seed: int = 0,
    **more: Any,
) -> Dataset:
    return from_arrays(**columns(lengths, terminated, seed), **more)


def source(reward: float, episodes: int = 20, length: int = 60, seed: int = 0, **more: Any) -> Dataset:
    """Episodes of one behaviour policy: every second one ends in a terminal; each step has about this reward."""
    made = columns((length,) * episodes, tuple(i % 2 == 0 for i in range(episodes)), seed)
    made["rewards"] = made["rewards"] * np.float32(0.01) + np.float32(reward)
    return from_arrays(**made, **more)


def write_hdf5(path: Path, arrays: dict[str, Any]) -> Path:
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


def same_episodes(a: Dataset, b: Dataset) -> bool:
    """Whether all columns of the episode tables are equal, except where the rows are stored."""
    mine = a.episodes.columns
    theirs = b.episodes.columns
    return all(np.array_equal(mine[name], theirs[name]) for name in mine if name not in ("arena", "slot"))


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def record(
    identity: str, episodes: list[dict[str, Any]], observation: Any = None, action: Any = None, **more: Any
) -> None:
    """A real Minari dataset, written by Minari."""
    import warnings

    import minari
    from gymnasium.spaces import Box
    from minari.data_collector import EpisodeBuffer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari warns about every description that is left out
        minari.create_dataset_from_buffers(
            identity,
            [EpisodeBuffer(**episode) for episode in episodes],
            observation_space=observation or Box(-np.inf, np.inf, (3,), np.float64),
            action_space=action or Box(-1, 1, (2,), np.float32),
            **more,
        )


def episode(length: int, ends: str = "terminal", number: int = 0, seed: int | None = None) -> dict[str, Any]:
    """Every value says which episode and step it belongs to."""
    steps = np.arange(length + 1)
    last = np.arange(length) == length - 1
    return {
        "seed": seed,
        "observations": np.stack([np.full(length + 1, number), steps, 100 * number + steps], axis=1).astype(np.float64),
        "actions": np.stack([np.full(length, number / 20), steps[:-1] / 10], axis=1).astype(np.float32),
        "rewards": 100.0 * number + steps[:-1],
        "terminations": last & (ends == "terminal"),
        "truncations": last & (ends == "timeout"),
    }
