"""What the paper's grid and the studies take on one H200, reckoned from measured rates: an estimate, not a measurement.

python results/paper/hours.py        writes results/paper/hours.json

Runs are planned in packs as `winnow bench run` would. A pack's rate is that of its algorithm in a large pack, with
weights or without (results/speed/dry-run-h200.txt), times four factors: how full its lanes make the chip and wider
observations (growth-h200.json), what running kernels side by side brings (side-by-side.json), and the part of it that a
grid keeps over a million updates (grid.json). Kitchen's CQL, with larger networks, has measured rates of its own
(seen.json). Where a factor was not measured for an algorithm, IQL's is taken; OptiDICE's and the dual's weights are
taken to be as fast as DW's, BC as IQL without weights. All rates are from before CQL's critics went in one pass,
and from before the way back took 128 units at a time for networks with more than 63 inputs: both are faster now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from winnow.bench.plan import LARGEST, How, Planned, grid, shard
from winnow.bench.studies import STUDIES
from winnow.bench.suites import ALGORITHMS, METHODS, entries
from winnow.data.names import suites
from winnow.methods import record

HERE = Path(__file__).parent
SPEED = HERE.parent / "speed"
BUSY = 4
"""Packs at the top of the dry run that were measured while others were compiled, and are left out here."""
PLAIN = ("none", "decoupled")
"""Weights that cost nothing."""


def large_packs() -> dict[tuple[str, bool], float]:
    """Run-steps a second by algorithm, with weights or without: the mean over the dry run's packs."""
    lines = (SPEED / "dry-run-h200.txt").read_text(encoding="utf-8").splitlines()
    found: dict[tuple[str, bool], list[float]] = {}
    for line in lines:
        if told := re.match(r" *(\d+) +(\d+) +(\w+) +(\w+) .* GB +([\d.]+) (min|h) *$", line):
            number, runs, algorithm, weights, time, unit = told.groups()
            if int(number) > BUSY:
                seconds = float(time) * (60 if unit == "min" else 3600)
                found.setdefault((algorithm, weights not in PLAIN), []).append(int(runs) * 1e6 / seconds)
    return {kind: float(np.mean(rates)) for kind, rates in found.items()}


class Rates:
    """Run-steps a second of any pack."""

    def __init__(self) -> None:
        points = json.loads((SPEED / "growth-h200.json").read_text())["points"]
        self.large = large_packs()
        self.points = [one for one in points if one["method"] == "dw-aw" and one["rows"] == 1_000_000]
        self.kept = json.loads((SPEED / "grid.json").read_text())["ratio at 1M steps"]
        both = json.loads((SPEED / "side-by-side.json").read_text())
        self.both = [one for one in both if one.get("width", 256) == 256]
        seen = json.loads((SPEED / "seen.json").read_text(encoding="utf-8"))
        large = seen["networks that no kernel takes, run-steps/s on an H200, 200,000 rows (trials.py larger)"]
        kitchen = {"dw-aw x 18": True, "uniform x 27": False}
        self.kitchen = {
            weights: large[f"cql {pack}, Kitchen's CQL, 3 x 512, products of winnow.halves"]
            for pack, weights in kitchen.items()
        }

    def best(self, **wanted: Any) -> float:
        """The faster precision of a point."""
        usual = {"algorithm": "iql", "obs": 11, "actions": 3, "width": 256} | wanted
        return max(one["run-steps/s"] for one in self.points if usual.items() <= one.items())

    def lanes(self, algorithm: str, count: int) -> float:
        """How fast so many lanes are, as a part of what many are."""
        name = algorithm if algorithm == "cql" else "iql"
        known = sorted({one["runs"] for one in self.points if one["algorithm"] == name and one["width"] == 256})
        rates = [self.best(algorithm=name, runs=runs) for runs in known]
        top = [rate for runs, rate in zip(known, rates, strict=True) if runs >= 64]
        return float(np.exp(np.interp(np.log(count), np.log(known), np.log(rates)))) / float(np.mean(top))

    def sizes(self, algorithm: str, inputs: int) -> float:
        """What more than 63 inputs leave of the rate."""
        if inputs <= 63:
            return 1.0
        if inputs > 100:
            return self.best(runs=64, obs=111) / self.best(runs=64)
        name = algorithm if algorithm == "cql" else "iql"
        wide = self.best(algorithm=name, runs=16, obs=45, actions=24)
        return wide / self.best(algorithm=name, runs=16)

    def beside(self, algorithm: str, count: int) -> float:
        """What running kernels side by side brings to so many lanes."""
        seen: dict[int, list[float]] = {}
        for one in self.both:
            if one["algorithm"] == algorithm:
                gain = one["side by side, run-steps/s"] / one["one after another, run-steps/s"]
                seen.setdefault(one["runs"], []).append(gain)
        known = sorted(seen)
        return float(np.interp(np.log(count), np.log(known), [np.mean(seen[runs]) for runs in known]))

    def seconds(self, pack: Sequence[Planned]) -> float:
        first = pack[0]
        kind, weights = (record(part)["name"] for part in (first.algorithm, first.weighter))
        algorithm = "iql" if kind == "bc" else kind
        learner: Any = first.algorithm
        if algorithm == "cql" and max(learner.hidden) > 256:
            rate = self.kitchen[weights not in PLAIN]
        else:
            rate = self.large[algorithm, weights not in PLAIN] * self.lanes(algorithm, len(pack))
            rate *= self.sizes(algorithm, sum(first.entry.sizes)) * self.beside(algorithm, len(pack))
        return sum(run.how.steps for run in pack) / (rate * self.kept)


def main() -> None:
    rates = Rates()

    def hours(runs: Sequence[Planned]) -> float:
        return sum(rates.seconds(pack) for pack in shard(runs, 1, 1, LARGEST)) / 3600 if runs else 0.0

    found = {}
    for name in (*suites(), "paper"):
        found[name] = grid(entries([name]), ALGORITHMS, METHODS, 3, How())
    five = [method for method in METHODS if method != "dual-aw"]
    found["paper, its five methods"] = grid(entries(["paper"]), ALGORITHMS, five, 3, How())
    for name, study in STUDIES.items():
        found[f"study:{name}"] = study.runs(study.entries(), 3, How())
    done = {run.id for name in ("mixed", "diverse", "small") for run in found[name]}
    told = {
        name: {
            "runs": len(runs),
            "hours": round(hours(runs), 1),
            "by algorithm": {
                kind: round(hours([run for run in runs if record(run.algorithm)["name"] == kind]), 1)
                for kind in dict.fromkeys(record(run.algorithm)["name"] for run in runs)
            },
            "runs that mixed, diverse and small have not": len([run for run in runs if run.id not in done]),
            "hours of those": round(hours([run for run in runs if run.id not in done]), 1),
        }
        for name, runs in found.items()
    }
    (HERE / "hours.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, said in told.items():
        print(f"{name:<24} {said['runs']:>6} runs {said['hours']:>7} h   {list(said.values())[2:]}")


if __name__ == "__main__":
    main()
