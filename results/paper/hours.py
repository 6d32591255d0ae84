"""What the paper's grid and the studies take on one H200, reckoned from measured rates: an estimate, not a measurement.

python results/paper/hours.py        writes results/paper/hours.json

A run is a million updates at the rate of its algorithm and weights in a large pack (results/speed/growth-h200.json), at
the part of it that a grid keeps over a million updates (results/speed/grid.json). Rates are of Hopper's sizes; other
environments take longer. What was not measured is taken to be as fast as what is nearest: CQL and TD3+BC without
weights as with them, OptiDICE's weights as the dual's, BC as IQL without weights.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from winnow.bench.plan import How, Planned, grid
from winnow.bench.studies import STUDIES
from winnow.bench.suites import ALGORITHMS, METHODS, entries
from winnow.data.names import suites
from winnow.methods import record

HERE = Path(__file__).parent
NEAREST = {
    ("iql", "none"): ("iql", "uniform"), ("iql", "decoupled"): ("iql", "uniform"), ("iql", "density"): ("iql", "dw-aw"),
    ("iql", ""): ("iql", "dual-aw"), ("cql", ""): ("cql", "dw-aw"), ("td3bc", ""): ("td3bc", "dw-aw"),
    ("bc", ""): ("iql", "uniform"),
}  # fmt: skip
"""Which measurement an algorithm and its weights are taken to be like."""


def main() -> None:
    points = json.loads((HERE.parent / "speed" / "growth-h200.json").read_text())["points"]
    # The first point of each is the usual size in the pack that it is measured with most.
    speed = {(one["algorithm"], one["method"]): one["run-steps/s"] for one in reversed(points)}
    kept = json.loads((HERE.parent / "speed" / "grid.json").read_text())["ratio at 1M steps"]

    def hours(runs: Sequence[Planned]) -> float:
        seconds = 0.0
        for run in runs:
            kind, weights = (record(part)["name"] for part in (run.algorithm, run.weighter))
            like = NEAREST.get((kind, weights)) or NEAREST[kind, ""]
            seconds += run.how.steps / speed[like] / kept
        return seconds / 3600

    found = {}
    for name in (*suites(), "paper"):
        found[name] = grid(entries([name]), ALGORITHMS, METHODS, 3, How())
    for name, study in STUDIES.items():
        found[f"study:{name}"] = study.runs(study.entries(), 3, How())
    done = {run.id for name in ("mixed", "diverse", "small") for run in found[name]}
    told = {
        name: {
            "runs": len(runs),
            "hours": round(hours(runs), 1),
            "runs that mixed, diverse and small have not": len([run for run in runs if run.id not in done]),
            "hours of those": round(hours([run for run in runs if run.id not in done]), 1),
        }
        for name, runs in found.items()
    }
    (HERE / "hours.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, said in told.items():
        print(f"{name:<20} {said['runs']:>6} runs {said['hours']:>7} h   {list(said.values())[2:]}")


if __name__ == "__main__":
    main()
