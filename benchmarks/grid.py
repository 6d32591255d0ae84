"""A grid against its limit: the same runs as one bare pack, and through `winnow.bench` with evaluation and checkpoints.

python benchmarks/grid.py [--runs 208] [--steps 100000] [--rows 100000] [--method dw-aw] [--json FILE]

The grid's rate is measured inside one grid, from the times at which steps were counted: from the end of the first chunk
after a fifth of the steps (at least the second chunk, when training is compiled) to the last step. Meanwhile
checkpoints are written and policies are played. Time beyond that rate is paid once per pack: before training (sizes,
tables, compiling, with no cache on disk) and after it (the last round of evaluation, results). The published protocol
has 20 rounds in a million steps; here there is one in 50,000. (If the time after training is longer than 50,000 steps,
evaluation does not keep up with training, and the ratio at a million steps is too high.) Datasets are Hopper's
mixtures, from pools of `rows` rows that are made before anything is timed. It needs neither tyro nor minari.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
from shapes import table

from winnow.bench import plan, run_local, suites
from winnow.bench.costs import pace
from winnow.bench.datasets import OpenDatasets, make_ready
from winnow.bench.plan import How, Planned
from winnow.errors import run_script
from winnow.evaluation.settings import Evaluation
from winnow.packs.pack import Pack
from winnow.packs.run import Run
from winnow.system import checkpoint
from winnow.system.progress import Progress

GOAL = 0.85
EVERY = 50_000
"""Steps to a round of evaluation."""


def planned(args: argparse.Namespace) -> list[Planned]:
    """Runs over Hopper's eight mixtures, with as many seeds as are needed."""
    early = max(0, round(args.steps / EVERY) - 1)
    evaluation = Evaluation(episodes=args.episodes, rounds=1, curve=early)
    how = How(args.steps, args.batch_size, args.chunk, evaluation)
    entries = suites.chosen(suites.entries(["mixed"], rows=args.rows), ["hopper"])
    sweeps = [f"algorithm.hidden={args.hidden}"]
    runs = plan.grid(entries, [args.algorithm], [args.method], -(-args.runs // len(entries)), how, sweeps)
    return runs[: args.runs]


def bare(runs: list[Planned], seconds: float) -> dict[str, float]:
    """A pack that only steps: seconds to its first steps, its rate after that, and the cost of one checkpoint."""
    with OpenDatasets().opened(runs) as datasets:
        began = time.perf_counter()
        pack = Pack(
            [
                Run(datasets[run.entry.text], run.algorithm, run.sampler, run.weighter, run.seed, run.name)
                for run in runs
            ],
            runs[0].how.steps,
            runs[0].how.batch_size,
        )
        turn = min(1_000, runs[0].how.chunk)
        pack.advance(turn)
        pack.wait()
        first = time.perf_counter() - began
        rate = len(runs) * pace(pack, turn, seconds)
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.save(Path(folder) / "pack.safetensors", pack.learners[:2], {})
            size = (Path(folder) / "pack.safetensors").stat().st_size
    numbers = {"first steps, s": first, "run-steps/s": rate}
    return numbers | {"checkpoint, s": time.perf_counter() - began, "checkpoint, GB": size / 1e9}


class Clock(Progress):
    """A progress bar that records the time of each count, for runs that are one pack."""

    def __init__(self, runs: list[Planned]) -> None:
        super().__init__(sum(run.how.steps for run in runs), shown=True)
        self.runs = len(runs)
        self.steps = [0]
        self.at = [time.perf_counter()]

    def describe(self, title: str) -> None:
        if not title.startswith("pack 1 of 1:"):
            raise SystemExit(f"{self.runs} runs do not fit the device as one pack; give fewer --runs")
        super().describe(title)

    def count(self, steps: int) -> None:
        super().count(steps)
        self.at.append(time.perf_counter())
        self.steps.append(self.steps[-1] + steps // self.runs)


def through_the_grid(runs: list[Planned]) -> dict[str, float]:
    """Run a whole grid: run-steps per second of its training, and the seconds before and after it."""
    jax.clear_caches()
    how = runs[0].how
    steady = how.chunk * max(2, -(-how.steps // (5 * how.chunk)))
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock(runs)
        done = run_local.run(plan.packs(runs, len(runs)), Path(folder), devices=jax.local_devices()[:1], progress=clock)
        ended = time.perf_counter()
    failed = [result.name for result in done.results if result.failure]
    if failed or len(done.results) != len(runs):
        raise SystemExit(f"{len(done.results)} of {len(runs)} runs are done, {len(failed)} failed: {failed[:3]}")
    first = clock.steps.index(steady)
    last = clock.steps.index(how.steps)
    speed = (how.steps - steady) / (clock.at[last] - clock.at[first])
    return {
        "run-steps/s": len(runs) * speed,
        "steps of it": how.steps - steady,
        "before, s": clock.at[first] - clock.at[0] - steady / speed,
        "after, s": ended - clock.at[last],
        "all, s": ended - clock.at[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=208)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--algorithm", default="iql")
    parser.add_argument("--method", default="dw-aw")
    parser.add_argument("--hidden", default="256x256")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--chunk", type=int, default=How().chunk)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--json", help="also write every number to this file")
    args = parser.parse_args()
    if args.steps < 3 * args.chunk:
        parser.error(f"--steps must be at least three times --chunk, {3 * args.chunk:,}")
    jax.config.update("jax_enable_compilation_cache", False)
    numbers: dict[str, Any] = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, **vars(args)}
    print(numbers["device"], "jax", jax.__version__, flush=True)
    runs = planned(args)
    make_ready(runs, say=print)
    numbers["bare"] = limit = bare(runs, args.seconds)
    numbers["grid"] = grid = through_the_grid(runs)
    rate = grid["run-steps/s"]
    once = grid["before, s"] + grid["after, s"]

    def ratio(steps: int) -> float:
        """The ratio of a whole grid, with the costs that are paid once."""
        whole = args.runs * steps
        return whole / limit["run-steps/s"] / (once + whole / rate)

    numbers |= {"once a pack, s": once, "ratio": rate / limit["run-steps/s"]}
    numbers |= {f"ratio at {steps} steps": ratio(steps) for steps in (args.steps, 1_000_000)}
    lines = [
        (
            "bare pack",
            f"{limit['run-steps/s']:,.0f} run-steps/s",
            f"{limit['first steps, s']:.1f} s to the first steps",
        ),
        ("grid", f"{rate:,.0f} run-steps/s", f"over its last {grid['steps of it']:,} steps"),
        ("once a pack", f"{once:.1f} s", f"{grid['before, s']:.1f} s before and {grid['after, s']:.1f} s after"),
        (
            "a checkpoint",
            f"{limit['checkpoint, GB']:.2f} GB",
            f"{limit['checkpoint, s']:.1f} s, twice every {args.chunk:,} steps",
        ),
        ("ratio", f"{numbers['ratio']:.2f}", f"while it trains; goal {GOAL}"),
        *((f"at {steps:,} steps", f"{ratio(steps):.2f}", "with once a pack") for steps in (args.steps, 1_000_000)),
    ]
    table(f"{args.runs} runs of {args.algorithm} {args.method}, {args.hidden}, batch {args.batch_size}", lines)
    if args.json:
        Path(args.json).write_text(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    run_script(main)
