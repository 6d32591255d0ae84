"""Hours of the paper's grid and the studies on one H200, estimated from measured rates.

python experiments/paper/hours.py        writes results/paper/hours.json

Runs are planned in packs as `winnow bench run` would. Rates are those that a dry run of the paper's 5,085 runs measured
(results/speed/dry-run-h200.json: its 66 packs; dry-run-h200.txt: its output), times the ratio that a grid reaches over
a million updates (grid.json). `winnow.bench.recorded.Rates` estimates packs of other sizes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from winnow.bench.plan import LARGEST, How, Planned, grid, shard
from winnow.bench.recorded import Rates
from winnow.bench.study_list import STUDIES
from winnow.bench.suites import ALGORITHMS, METHODS, entries
from winnow.data.names import suites
from winnow.errors import run_script
from winnow.plugins import record

RESULTS = Path(__file__).parents[2] / "results" / "paper"
SPEED = RESULTS.with_name("speed")


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    rates = Rates()
    kept = json.loads((SPEED / "grid.json").read_text())["ratio at 1M steps"]

    def hours(runs: Sequence[Planned]) -> float:
        return sum(rates.seconds(pack) / kept for pack in shard(runs, 1, 1, LARGEST)) / 3600 if runs else 0.0

    plans = {}
    for name in (*suites(), "paper"):
        plans[name] = grid(entries([name]), ALGORITHMS, METHODS, 3, How())
    five = [method for method in METHODS if method != "dual-aw"]
    plans["paper, its five methods"] = grid(entries(["paper"]), ALGORITHMS, five, 3, How())
    for name, study in STUDIES.items():
        plans[f"study:{name}"] = study.runs(study.entries(), 3, How())
    done = {run.id for name in ("mixed", "diverse", "small") for run in plans[name]}
    summary = {
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
        for name, runs in plans.items()
    }
    (RESULTS / "hours.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, entry in summary.items():
        print(f"{name:<24} {entry['runs']:>6} runs {entry['hours']:>7} h   {list(entry.values())[2:]}")


if __name__ == "__main__":
    run_script(main)
