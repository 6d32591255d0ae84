"""What the paper's grid and the studies take on one H200, from measured rates: an estimate, not a measurement.

python experiments/paper/hours.py        writes results/paper/hours.json

Runs are planned in packs as `winnow bench run` would. Rates are those that a dry run of the paper's 5,085 runs measured
(results/speed/dry-run-h200.json: its 66 packs; dry-run-h200.txt: what it said), times the part of it that a grid keeps
over a million updates (grid.json). How packs of other sizes are estimated: `winnow.bench.recorded.Rates`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from winnow.bench.plan import LARGEST, How, Planned, grid, shard
from winnow.bench.recorded import Rates
from winnow.bench.study_list import STUDIES
from winnow.bench.suites import ALGORITHMS, METHODS, entries
from winnow.data.names import suites
from winnow.plugins import record

RESULTS = Path(__file__).parents[2] / "results" / "paper"
SPEED = RESULTS.with_name("speed")


def main() -> None:
    rates = Rates()
    kept = json.loads((SPEED / "grid.json").read_text())["ratio at 1M steps"]

    def hours(runs: Sequence[Planned]) -> float:
        return sum(rates.seconds(pack) / kept for pack in shard(runs, 1, 1, LARGEST)) / 3600 if runs else 0.0

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
    (RESULTS / "hours.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, said in told.items():
        print(f"{name:<24} {said['runs']:>6} runs {said['hours']:>7} h   {list(said.values())[2:]}")


if __name__ == "__main__":
    main()
