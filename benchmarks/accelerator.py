"""winnow on an accelerator: run-steps per second of packs, in one call.

python benchmarks/accelerator.py [--json FILE] [--rows 1000000] [--seconds 6]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
from shapes import hopper_like, pack, stepper, table

PLAN = (
    ("iql", "dw-aw", (1, 32, 128, 256, 512)),
    ("iql", "uniform", (1, 128, 256)),
    ("iql", "dual-aw", (128,)),
    ("td3bc", "dw-aw", (1, 128)),
    ("cql", "dw-aw", (1, 64, 128)),
)


def measure(datasets: list[Any], algorithm: str, method: str, count: int, seconds: float) -> dict[str, float]:
    """Compile, then steps for about so many seconds in turns of a fixed length."""
    began = time.perf_counter()
    packed = pack(datasets, algorithm, method, count)
    go, turn = stepper(packed), 100 if algorithm == "cql" else 500
    jax.block_until_ready(packed.learners)
    made = time.perf_counter() - began
    began = time.perf_counter()
    go(turn)
    first = time.perf_counter() - began
    go(turn)
    spent, done = 0.0, 0
    while spent < seconds:
        began = time.perf_counter()
        go(turn)
        spent, done = spent + time.perf_counter() - began, done + turn
    return {"set-up, s": made, "first turn, s": first, "steps/s": done / spent, "run-steps/s": count * done / spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="also write every number to this file")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--largest", type=int, default=512)
    words = parser.parse_args()
    print(jax.devices()[0].device_kind, "jax", jax.__version__, flush=True)
    datasets = hopper_like(words.rows, mixtures=8)
    found: dict[str, Any] = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "rows": words.rows}
    lines = []
    for algorithm, method, counts in PLAN:
        for count in (c for c in counts if c <= words.largest):
            one = measure(datasets, algorithm, method, count, words.seconds)
            found[f"{algorithm} {method} × {count}"] = one
            cells = (f"{one['run-steps/s']:,.0f} run-steps/s", f"first turn {one['first turn, s']:.1f} s")
            lines.append((f"{algorithm} {method}", f"{count} runs", *cells))
            print(*lines[-1], flush=True)
            if words.json:
                Path(words.json).write_text(json.dumps(found, indent=1))
    table("run-steps per second, 2×256, batch 256", lines)


if __name__ == "__main__":
    main()
