"""Weights of a set of Parquet files: rows per second, and memory against the size of the set.

python benchmarks/scoring.py [--rows 1000000] [--files 4] [--json FILE] [--ray]

The set is random rows of Hopper's and of Ant's size, with next observations, one row group per file; the weighter is
DW's (2×256). With --ray a Ray cluster of this machine's cores does the same work; starting the cluster is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from shapes import table, walk

from winnow.data import store
from winnow.data.dataset import Dataset
from winnow.data.export import export
from winnow.errors import run_script
from winnow.system.cores import cores_here

SIZES = {"hopper": (11, 3), "ant": (27, 8)}
CHILD = """
import json, sys, time
from pathlib import Path
from winnow.training.weigh_files import Scorer, score_all
from winnow.training.trained import Trained

run, few, many, out = map(Path, sys.argv[1:5])
ray = sys.argv[5] == "ray"
if ray:
    import ray
    ray.init("local", include_dashboard=False, log_to_driver=False, num_cpus=int(sys.argv[6]))
where = "auto" if ray else None
scorer = Scorer.of(Trained.load(run), run)
score_all(scorer, str(few), out / "few", address=where)  # compiled
def peak():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return 1024 * int(status["VmHWM"].split()[0])
before, began, processor = peak(), time.perf_counter(), time.process_time()
done = score_all(scorer, str(many), out / "many", address=where)
print(json.dumps({"rows": done.sums.rows, "seconds": time.perf_counter() - began,
    "processor, s": time.process_time() - processor, "peak, MB": peak() / 1e6, "grown, MB": (peak() - before) / 1e6}))
"""


def finished(path: Path, data: Dataset) -> None:
    """Save a run with DW that has made no update yet."""
    import jax

    from winnow.policy import Policy
    from winnow.training.planning import plan
    from winnow.training.trained import Trained

    run = plan(data, "bc", "dw-uniform")[0]
    learner, state = (part.init(jax.random.key(0), run.spec) for part in (run.algorithm, run.weighter))
    sizes = (data.obs_dim, data.obs_dim, data.action_dim, data.action_dim)
    Trained(run, 0, None, Policy(run.algorithm, learner, *(np.ones(size) for size in sizes)), state).save(path)


def measured(size: tuple[int, int], args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        each = args.rows // args.files
        store.save(walk(20_000, *size), folder / "train.safetensors")
        finished(folder / "run.safetensors", store.load(folder / "train.safetensors"))
        part = walk(each, *size)
        for number in range(args.files):
            export(part, folder / "many" / f"{number}.parquet")
        for number in range(cores_here()):
            export(part.select(np.arange(min(40, len(part.episodes)))), folder / "few" / f"{number}.parquet")
        places = [str(folder / name) for name in ("run.safetensors", "few", "many", "out")]
        how = ["ray" if args.ray else "local", str(cores_here())]
        child = [sys.executable, "-c", CHILD, *places, *how]
        got = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        got["set, MB"] = sum(file.stat().st_size for file in (folder / "many").iterdir()) / 1e6
    return got | {"rows/s": got["rows"] / got["seconds"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--json", type=Path, help="also write every number to this file")
    parser.add_argument("--ray", action="store_true")
    args = parser.parse_args()
    if args.files < 1 or args.rows < 500 * args.files:
        parser.error(f"--rows must be at least 500 for each of the --files, got {args.rows} for {args.files}")
    numbers: dict[str, Any] = {"cores": cores_here(), "load before": os.getloadavg()[0], "files": args.files}
    lines: list[tuple[str, ...]] = [("", "rows/s", "set, MB", "peak, MB", "grown over the set, MB")]
    for name, size in SIZES.items():
        got = numbers[name] = measured(size, args)
        cells = (got[key] for key in ("rows/s", "set, MB", "peak, MB", "grown, MB"))
        lines.append((name, *(f"{number:,.0f}" for number in cells)))
    where = "a Ray cluster with " if args.ray else ""
    table(f"{args.rows:,} rows in {args.files} files on {where}{cores_here()} cores", lines)
    if args.json:
        args.json.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_script(main)
