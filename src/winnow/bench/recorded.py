"""What packs will take by rates that were recorded before: of the same grid's own results, or on one H200.

`winnow bench run --dry-run` answers in seconds with these; `--measure` measures this machine instead.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib import resources
from typing import NamedTuple

import numpy as np

from winnow.bench.plan import Planned
from winnow.bench.results import Result
from winnow.plugins import record

NO_COST = ("none", "decoupled")
"""Weighters that take no time."""
H200 = "NVIDIA H200"
SOURCE = "rates recorded on one NVIDIA H200, in winnow's bench/recorded_h200.csv"


class Point(NamedTuple):
    """The measured rate of one pack."""

    environment: str
    algorithm: str
    weights: str
    runs: int
    rate: float
    """Run-steps a second of the whole pack."""


class Rates:
    """Run-steps a second of any pack on an H200, from those of the paper's 66 packs.

    A pack of another size lies between those on a curve of rates by number of runs, times how far its environment was
    off that curve. Small packs were measured on environments with many inputs alone, so that theirs are rather too
    slow. OptiDICE's and the dual's weights are taken to be as fast as DW's, BC as IQL without weights.
    """

    @cached_property
    def points(self) -> list[Point]:
        text = (resources.files("winnow.bench") / "recorded_h200.csv").read_text(encoding="utf-8")
        lines = csv.reader(line for line in text.splitlines()[1:] if not line.startswith("#"))
        _, *rows = lines
        return [
            Point(environment, algorithm, weights, int(runs), float(rate))
            for environment, algorithm, weights, runs, rate in rows
        ]

    def curve(self, algorithm: str, weights: str, runs: int) -> float:
        """The rate by the number of runs alone: the mean over environments, without Kitchen's larger CQL networks."""
        rates: dict[int, list[float]] = {}
        for point in self._of(algorithm, weights):
            if not (algorithm == "cql" and point.environment.startswith("kitchen")):
                rates.setdefault(point.runs, []).append(point.rate)
        known = sorted(rates)
        means = [np.log(np.mean(rates[count])) for count in known]
        return float(np.exp(np.interp(np.log(runs), np.log(known), means))) * min(1.0, runs / known[0])

    def _of(self, algorithm: str, weights: str) -> list[Point]:
        return [point for point in self.points if (point.algorithm, point.weights) == (algorithm, weights)]

    def knows(self, pack: Sequence[Planned]) -> bool:
        """Whether there are rates for packs like this one."""
        return bool(self._of(*_kinds(pack[0])))

    def rate(self, pack: Sequence[Planned]) -> float:
        """Run-steps a second of a pack."""
        algorithm, weights = _kinds(pack[0])
        rate = self.curve(algorithm, weights, len(pack))
        for point in self._of(algorithm, weights):
            if point.environment == pack[0].entry.environment:
                rate *= point.rate / self.curve(algorithm, weights, point.runs)
        return rate

    def seconds(self, pack: Sequence[Planned]) -> float:
        """How long a pack trains."""
        return sum(run.how.steps for run in pack) / self.rate(pack)


def _kinds(run: Planned) -> tuple[str, str]:
    """The algorithm and the weights that a run's rate is looked up by."""
    algorithm = record(run.algorithm)["name"]
    weighter = record(run.weighter)["name"]
    return "iql" if algorithm == "bc" else algorithm, "none" if weighter in NO_COST else "density"


class Estimate(NamedTuple):
    """What the packs of a grid will take, and how that is known."""

    seconds: list[float | None]
    """Of each pack; None where nothing like it was recorded."""
    source: str

    @property
    def total(self) -> float:
        return sum(each for each in self.seconds if each is not None)


def estimate(packs: Sequence[Sequence[Planned]], results: Iterable[Result]) -> Estimate:
    """The time of packs, one after another: from finished runs of the same kinds where every pack has some, or else
    from the rates on an H200."""
    speeds: dict[tuple[str, ...], list[float]] = {}
    devices: dict[str, int] = {}
    for result in results:
        if result.failure is None and result.seconds > 0:
            config = result.config
            key = (str(config["environment"]), config["algorithm"]["name"], config["weighter"]["name"])
            speeds.setdefault(key, []).append(result.seconds / result.steps)
            device = str(result.made_with.get("device", "an unknown device"))
            devices[device] = devices.get(device, 0) + 1
    keys = [_key(pack[0]) for pack in packs]
    if speeds and all(key in speeds for key in keys):
        own: list[float | None] = [
            float(np.median(speeds[key])) * sum(run.how.steps for run in pack)
            for key, pack in zip(keys, packs, strict=True)
        ]
        return Estimate(own, f"the {sum(devices.values()):,} finished runs there, made on {', '.join(devices)}")
    rates = Rates()
    return Estimate([rates.seconds(pack) if rates.knows(pack) else None for pack in packs], SOURCE)


def _key(run: Planned) -> tuple[str, ...]:
    return run.entry.environment, record(run.algorithm)["name"], record(run.weighter)["name"]
