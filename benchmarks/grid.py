"""A grid against its limit: the same runs as one bare pack, and through `winnow.bench` with evaluation and checkpoints.

python benchmarks/grid.py [--runs 208] [--steps 10000 60000] [--rows 100000] [--method dw-aw] [--json FILE]

The grid is done twice, with fewer and with more steps. What the second one takes longer is the price of steps; what is
left of the first is paid once a pack (compiling, tables, results, a round of evaluation). The published protocol has 20
rounds in a million steps: here the longer grid has one more for every 50,000. Datasets are Hopper's mixtures, from
pools of `rows` rows that are played before anything is timed. It needs neither tyro nor minari.
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

from winnow import checkpoint
from winnow.bench import local, plan, suites
from winnow.bench.costs import pace
from winnow.bench.plan import How, Planned
from winnow.bench.shelf import Shelf, make_ready
from winnow.evaluation import Evaluation
from winnow.pack import Pack
from winnow.runs import Run

GOAL = 0.85
EVERY = 50_000
"""Steps to a round of evaluation."""


def planned(words: argparse.Namespace, steps: int) -> list[Planned]:
    """Hopper's eight mixtures, each with as many seeds as make up the runs."""
    rounds = 1 + round((steps - min(words.steps)) / EVERY)
    how = How(
        steps,
        words.batch_size,
        words.chunk,
        Evaluation(episodes=words.episodes, rounds=1, spacing=1_000, curve=rounds - 1),
    )
    entries = suites.chosen(suites.entries(["mixed"], rows=words.rows), ["hopper"])
    sweeps = [f"algorithm.hidden={words.hidden}"]
    runs = plan.grid(entries, [words.algorithm], [words.method], -(-words.runs // len(entries)), how, sweeps)
    return runs[: words.runs]


def bare(runs: list[Planned], seconds: float) -> dict[str, float]:
    """A pack that does nothing but step: seconds to its first steps and steps after that; then one checkpoint."""
    with Shelf().opened(runs) as datasets:
        began = time.perf_counter()
        pack = Pack(
            [
                Run(datasets[one.entry.text], one.algorithm, one.sampler, one.weighter, one.seed, one.name)
                for one in runs
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
    found = {"first steps, s": first, "run-steps/s": rate}
    return found | {"checkpoint, s": time.perf_counter() - began, "checkpoint, GB": size / 1e9}


def through_the_grid(runs: list[Planned]) -> float:
    """Seconds from a plan to results."""
    jax.clear_caches()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        done = local.run(plan.packs(runs, len(runs)), Path(folder))
        spent = time.perf_counter() - began
    failed = [result.name for result in done.results if result.failure]
    if failed or len(done.results) != len(runs):
        raise SystemExit(f"{len(done.results)} of {len(runs)} runs are done, {len(failed)} failed: {failed[:3]}")
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=208)
    parser.add_argument("--steps", type=int, nargs=2, default=(10_000, 60_000))
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--algorithm", default="iql")
    parser.add_argument("--method", default="dw-aw")
    parser.add_argument("--hidden", default="256x256")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--chunk", type=int, default=How().chunk)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--json", help="also write every number to this file")
    words = parser.parse_args()
    found: dict[str, Any] = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, **vars(words)}
    print(found["device"], "jax", jax.__version__, flush=True)
    few, many = (planned(words, steps) for steps in words.steps)
    make_ready(few, say=print)
    found["bare"] = limit = bare(few, words.seconds)
    short, long = found["grid, s"] = [through_the_grid(runs) for runs in (few, many)]
    rate = words.runs * (words.steps[1] - words.steps[0]) / (long - short)
    once = short - words.runs * words.steps[0] / rate
    million = words.runs * 1_000_000
    found |= {"run-steps/s": rate, "once a pack, s": once, "ratio": rate / limit["run-steps/s"]}
    found["ratio at 1M steps"] = million / limit["run-steps/s"] / (once + million / rate)
    lines = [
        (
            "bare pack",
            f"{limit['run-steps/s']:,.0f} run-steps/s",
            f"{limit['first steps, s']:.1f} s to the first steps",
        ),
        ("grid", f"{rate:,.0f} run-steps/s", f"{once:.1f} s once a pack"),
        (
            "a checkpoint",
            f"{limit['checkpoint, GB']:.2f} GB",
            f"{limit['checkpoint, s']:.1f} s every {words.chunk:,} steps",
        ),
        ("ratio", f"{found['ratio']:.2f}", f"goal {GOAL}"),
        ("ratio at 1M steps", f"{found['ratio at 1M steps']:.2f}", "with what is paid once"),
    ]
    table(f"{words.runs} runs of {words.algorithm} {words.method}, {words.hidden}, batch {words.batch_size}", lines)
    if words.json:
        Path(words.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
