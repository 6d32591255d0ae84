"""winnow on an accelerator: run-steps per second of packs, their share of the chip's peak, and the speed of one run
against a plain JAX loop and, if it is installed, d3rlpy.

python benchmarks/accelerator.py [--json FILE] [--rows 1000000] [--seconds 6]

WINNOW_PRECISION=float32 or default measures the reference or the device's own matrix products instead of the fused
kernels. benchmarks/growth.py measures how the cost grows with runs, rows, observations and width.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxprs_in_params
from peers import d3rlpy_loops, plain_loop
from shapes import BATCH, hopper_like, pack, rates, stepper, table

from winnow.bench.costs import pace
from winnow.errors import run_script
from winnow.packs.pack import Pack
from winnow.packs.step import update

PLAN: tuple[tuple[str, str, int, int], ...] = (
    ("iql", "dw-aw", 256, 256),
    ("iql", "dw-aw", 512, 256),
    ("iql", "dw-aw", 128, 256),
    ("cql", "dw-aw", 64, 256),
    ("td3bc", "dw-aw", 128, 256),
    ("iql", "dw-aw", 64, 256),
    ("iql", "dw-aw", 32, 256),
    ("cql", "dw-aw", 128, 256),
    ("iql", "uniform", 128, 256),
    ("iql", "dual-aw", 128, 256),
    ("iql", "dw-aw", 16, 256),
    ("iql", "dw-aw", 1, 256),
    ("td3bc", "dw-aw", 1, 256),
    ("cql", "dw-aw", 1, 256),
)
"""Algorithm, method, runs, width; the most important first, since --limit may end the list early."""


def ready(make: Callable[[], Pack], turn: int) -> tuple[Pack, dict[str, Any]]:
    """A compiled pack that has made two turns of `turn` steps, and the times that took."""
    began = time.perf_counter()
    packed = make()
    go = stepper(packed)
    jax.block_until_ready(packed.learners)
    made = time.perf_counter() - began
    began = time.perf_counter()
    go(turn)
    first = time.perf_counter() - began
    go(turn)
    return packed, {"precision": packed.precision, "set-up, s": made, "first turn, s": first, "turn": turn}


def measure(packed: Pack, turn: int, seconds: float) -> dict[str, float]:
    """Step for about this many seconds in turns of a fixed length."""
    rate = pace(packed, turn, seconds)
    return {"steps/s": rate, "run-steps/s": len(packed.runs) * rate}


# ------------------------------------------------------------------------------------------------ ceilings


def flops(packed: Pack) -> float:
    """Floating-point operations of the matrix products in one update of one run, counted in its plain program."""
    lane, learner = packed.lane(0)
    step = jnp.zeros((), int)
    traced = jax.make_jaxpr(update, static_argnums=5)(packed.tables, lane, learner, step, jnp.zeros(()), BATCH)
    return _products(traced.jaxpr)


def _products(jaxpr: Any) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (over, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2 * equation.outvars[0].aval.size * _size(shape[axis] for axis in over)
        counts = [_products(inner) for inner in jaxprs_in_params(equation.params)]
        total += max(counts, default=0) if equation.primitive.name == "cond" else sum(counts)
    return total


def _size(shape: Any) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def least_bytes(packed: Pack) -> float:
    """The least bytes that one update of one run must move: its parameters and moments, read and written once."""
    _, learner = packed.lane(0)
    return 2.0 * sum(leaf.nbytes for leaf in jax.tree.leaves((learner.weighter, learner.algorithm)))


def ceilings() -> dict[str, float]:
    """The chip's peak: bytes per second of a long copy, and flop/s of large matrix products in half floats (on a CPU,
    where those are not faster, in floats)."""

    def best(work: Any, given: Any, times: int = 10) -> float:
        loop = jax.jit(lambda x: jax.lax.fori_loop(0, times, lambda _, y: work(y), x))
        jax.block_until_ready(loop(given))
        spent = []
        for _ in range(3):
            began = time.perf_counter()
            jax.block_until_ready(loop(given))
            spent.append((time.perf_counter() - began) / times)
        return min(spent)

    small = jax.default_backend() == "cpu"
    long = jnp.arange(2**26 if small else 2**30, dtype=jnp.float32)
    side = 1024 if small else 8192
    number = jnp.float32 if small else jnp.float16
    square = jax.random.normal(jax.random.key(0), (side, side), number) / side**0.5  # keeps its size
    return {
        "bytes/s": 2 * long.nbytes / best(lambda x: x + 1, long),
        "flop/s": 2 * side**3 / best(lambda x: x @ square, square),
    }


# --------------------------------------------------------------------------------------------------- peers


def beside_peers(datasets: list[Any], turn: int) -> dict[str, float]:
    """Steps per second of one run of each contender, which take turns."""
    loops = {"plain scan, iql uniform": (plain_loop(), turn)}
    for algorithm, method in (("iql", "uniform"), ("iql", "dw-aw"), ("td3bc", "uniform"), ("cql", "uniform")):
        loops[f"winnow, {algorithm} {method}"] = (stepper(pack(datasets, algorithm, method, 1)), turn)
    if importlib.util.find_spec("d3rlpy"):
        device = "cpu" if jax.default_backend() == "cpu" else "cuda:0"
        for algorithm, loop in d3rlpy_loops(("iql", "td3bc", "cql"), device).items():
            loops[f"d3rlpy, {algorithm} uniform"] = (loop, max(40, turn // 10))
    else:
        print("d3rlpy is not installed and is left out", flush=True)
    return rates(loops, rounds=3)


# -------------------------------------------------------------------------------------------------- report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="also write every number to this file")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--mixtures", type=int, default=8, help="datasets that share these rows")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--largest", type=int, default=512, help="runs in a pack")
    parser.add_argument(
        "--limit", type=float, default=float("inf"), help="start no measurement after this many seconds"
    )
    args = parser.parse_args()
    began = time.perf_counter()
    # A fresh folder: programs are compiled, and can then be taken from it once to see what that saves.
    jax.config.update("jax_compilation_cache_dir", tempfile.mkdtemp())
    top = ceilings()
    numbers: dict[str, Any] = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "rows": args.rows}
    numbers |= {"mixtures": args.mixtures, "ceilings": top}
    print(numbers, flush=True)
    lines = [("", "runs", "run-steps/s", "of flop/s", "of bytes/s", "first turn, s", "precision")]

    def keep() -> None:
        if args.json:
            Path(args.json).write_text(json.dumps(numbers, indent=1) + "\n")

    def measure_point(name: str, datasets: list[Any], algorithm: str, method: str, count: int, width: int) -> None:
        if time.perf_counter() - began > args.limit or count > args.largest:
            return
        turn = 100 if algorithm == "cql" or count >= 256 else 300
        packed, got = ready(lambda: pack(datasets, algorithm, method, count, width=width), turn)
        got |= measure(packed, turn, args.seconds)
        got |= {"GFLOP a run-step": flops(packed) / 1e9, "least MB a run-step": least_bytes(packed) / 1e6}
        got["of flop/s"] = got["run-steps/s"] * got["GFLOP a run-step"] * 1e9 / top["flop/s"]
        got["of bytes/s"] = got["run-steps/s"] * got["least MB a run-step"] * 1e6 / top["bytes/s"]
        numbers[name] = got
        shares = f"{got['of flop/s']:.0%}", f"{got['of bytes/s']:.0%}"
        cells = f"{got['run-steps/s']:,.0f}", *shares, f"{got['first turn, s']:.1f}", got["precision"]
        lines.append((name.split(" ×")[0], str(count), *cells))
        print(*lines[-1], flush=True)
        keep()

    datasets = hopper_like(args.rows, args.mixtures)
    for what in PLAN:
        measure_point(f"{what[0]} {what[1]} × {what[2]}", datasets, *what)
    jax.clear_caches()
    measure_point(f"{PLAN[0][0]} {PLAN[0][1]} compiled before × {PLAN[0][2]}", datasets, *PLAN[0])
    table("2×256, batch 256", lines)
    if time.perf_counter() - began < args.limit:
        numbers["one run, steps/s"] = speed = beside_peers(datasets, 40 if jax.default_backend() == "cpu" else 2_000)
        base = speed["plain scan, iql uniform"]
        table("one run", [(name, f"{rate:,.0f} steps/s", f"{rate / base:.2f} ×") for name, rate in speed.items()])
        keep()


if __name__ == "__main__":
    run_script(main)
