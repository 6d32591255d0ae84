"""Unusual but valid data, and training on it: every run ends with finite numbers or with a recorded failure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from winnow.cli import main
from winnow.data import store
from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.methods import METHODS
from winnow.system.checkpoint import read_record
from winnow.training.trained import Trained

OBS = 3
ACTION = 2
CHEAP = [name for name in METHODS if name != "odpr-a"]
"""Methods whose sampler fits no network before training."""
EXPLODING = "exploding"
"""The dataset on which losses may overflow."""


def columns(rows: int, length: int, terminal: bool = True) -> dict[str, Any]:
    """Random walks of one length that end in terminals or in timeouts."""
    rng = np.random.default_rng(0)
    end = np.arange(rows) % length == length - 1
    obs = rng.normal(size=(rows + 1, OBS))
    return {
        "observations": obs[:-1],
        "actions": rng.uniform(-1, 1, (rows, ACTION)),
        "rewards": rng.random(rows),
        "terminals": end & terminal,
        "timeouts": end & (not terminal),
        "next_observations": obs[1:],
        "action_bounds": ([-1.0] * ACTION, [1.0] * ACTION),
    }


def odd() -> dict[str, Dataset]:
    usual = columns(120, 20)
    rows = 120
    made = {
        "constant-rewards": usual | {"rewards": np.full(rows, 0.5)},
        "no-rewards": usual | {"rewards": np.zeros(rows)},
        "one-episode": columns(60, 60),
        "one-row": columns(1, 1),
        "one-timed-out-row": columns(1, 1, terminal=False),
        "still": usual | {"observations": np.ones((rows, OBS)), "next_observations": np.ones((rows, OBS))},
        "one-step-episodes": columns(100_000, 1),
        "all-timed-out": columns(rows, 20, terminal=False),
        "all-terminal": columns(rows, 1),
        EXPLODING: usual | {"rewards": np.linspace(-1e30, 1e30, rows)},
    }
    return {name: from_arrays(**given, name=name) for name, given in made.items()}


def save(folder: Path) -> list[Path]:
    files = {folder / f"{name}.safetensors": data for name, data in odd().items()}
    for path, data in files.items():
        store.save(data, path)
    return list(files)


def train(files: Sequence[Path], algorithm: str, methods: Sequence[str], out: Path) -> dict[str, int]:
    """Train on all files with one command; counts of runs with finite numbers and of failed runs."""
    options = f"--algorithm {algorithm} --method {','.join(methods)} --seeds 1 --steps 40 --chunk 20 --batch-size 16"
    small = ["--algorithm.hidden", "8"]
    weighters = sorted({METHODS[name][1] for name in methods})
    for weighter in (name for name in weighters if name != "none"):
        small += [f"--weighter.{weighter}.hidden" if len(weighters) > 1 else "--weighter.hidden", "8"]
    assert main(["train", *map(str, files), "--out", str(out), "--no-evaluate", *options.split(), *small]) == 0
    count = {"trained": 0, "failed": 0}
    for path, method in itertools.product(files, methods):
        run = out / f"{path.stem}.{algorithm}.{method}.seed0.safetensors"
        if read_record(run)["failure"]:
            assert path.stem == EXPLODING, run
            count["failed"] += 1
            continue
        assert all(np.isfinite(array).all() for array in load_file(run).values()), run
        count["trained"] += 1
        if method == methods[-1]:
            assert np.isfinite(Trained.load(run).weights().weight).all(), run
    return count
