"""Shared by benchmarks: data of Hopper's shape, runs of the usual sizes, and timing that is fair to all contenders."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from winnow.data.arrays import from_arrays
from winnow.data.dataset import Arena, Dataset, Episodes, Meta
from winnow.data.recipes import mixed
from winnow.methods import make_algorithm, method, resized
from winnow.packs.pack import Pack
from winnow.packs.precision import Precision
from winnow.packs.run import Run

OBS = 11
ACTION = 3
BATCH = 256


def arrays(rows: int, length: int, seed: int) -> dict[str, Any]:
    """Random numbers in the shape of a Hopper recording with episodes of one length."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(rows + 1, OBS)).astype(np.float32)
    end = np.arange(rows) % length == length - 1
    return {
        "observations": obs[:-1],
        "actions": rng.uniform(-1, 1, (rows, ACTION)).astype(np.float32),
        "rewards": rng.random(rows).astype(np.float32),
        "terminals": end,
        "timeouts": np.zeros(rows, bool),
        "next_observations": obs[1:],
    }


def hopper_like(rows: int, mixtures: int = 1) -> list[Dataset]:
    """Mixtures of `rows` rows each. All share `rows` rows of two sources, one with short and one with long episodes."""
    half = rows // 2
    low = from_arrays(**arrays(half, 22, 0), name="low")
    high = from_arrays(**arrays(half, 500, 1), name="high")
    return [mixed(low, high, 0.05, rows, seed=seed, name=f"mixture{seed}") for seed in range(mixtures)]


def walk(rows: int, obs: int = OBS, actions: int = ACTION, length: int = 500) -> Dataset:
    """Random rows in episodes of one length, written directly to their slots: 10⁷ rows take seconds."""
    rng = np.random.default_rng(0)
    episodes = rows // length
    slot = np.arange(episodes) * (length + 1)
    slots = episodes * (length + 1)
    terminal = np.zeros(slots, bool)
    terminal[slot + length - 1] = True
    action = 2 * rng.random((slots, actions), np.float32) - 1
    arena = Arena(rng.standard_normal((slots, obs), np.float32), action, rng.random(slots, np.float32), terminal)
    table = Episodes.make(slot, np.full(episodes, length), np.ones(episodes, bool))
    return Dataset((arena,), table, Meta("walk", action_low=(-1.0,) * actions, action_high=(1.0,) * actions))


def runs(datasets: list[Dataset], algorithm: str, name: str, count: int, width: int = 256) -> list[Run]:
    """`count` runs over the datasets in turn, each with its own seed."""
    sampler, weighter = method(name, algorithm)
    learner, weighter = (resized(part, (width, width)) for part in (make_algorithm(algorithm), weighter))
    return [Run(datasets[i % len(datasets)], learner, sampler, weighter, i, f"run{i}") for i in range(count)]


def pack(*args: Any, precision: Precision | None = None, **kwargs: Any) -> Pack:
    return Pack(runs(*args, **kwargs), steps=1_000_000, batch_size=BATCH, precision=precision)


def stepper(packed: Pack) -> Callable[[int], None]:
    def go(count: int) -> None:
        packed.advance(count)
        packed.wait()

    return go


def rates(contenders: Mapping[str, tuple[Callable[[int], None], int]], rounds: int = 5) -> dict[str, float]:
    """Steps per second of each contender, the median over rounds. In a round they take turns, so that a busy moment of
    the machine affects all. Each comes with the number of steps of one turn and is warmed up first."""
    for go, count in contenders.values():
        go(count)
    seen: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, (go, count) in contenders.items():
            began = time.perf_counter()
            go(count)
            seen[name].append(count / (time.perf_counter() - began))
    return {name: float(np.median(values)) for name, values in seen.items()}


def table(title: str, lines: list[tuple[str, ...]]) -> None:
    """Print lines with aligned columns."""
    print(f"\n{title}", flush=True)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  " + "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)), flush=True)
