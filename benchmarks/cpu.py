"""winnow on the CPU: the cost of packing, weights, many rows and starting, against d3rlpy and a plain JAX loop, and the
share of the chip's peak that is reached. All results are ratios measured in one run.

python benchmarks/cpu.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from accelerator import ceilings, flops
from peers import d3rlpy_loops, plain_loop
from shapes import hopper_like, pack, rates, stepper, table, walk

from winnow.errors import run_script

METHODS = {"pack of one, IQL": "uniform", "pack of one, IQL + DW": "dw-aw", "pack of one, IQL + dual": "dual-aw"}
MEMORY = """
import sys
sys.path.insert(0, {folder!r})
from shapes import hopper_like, pack, stepper
packed = pack(hopper_like(1_000_000, mixtures=8), "iql", "dw-aw", 8, width=64)
stepper(packed)(50)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) / 2**20)
"""


def opening(rows: int) -> float:
    """Seconds to open a dataset file and to make the tables that AW draws from."""
    from winnow.data import store
    from winnow.data.sources import open_dataset
    from winnow.samplers import AW, alias_table

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.safetensors"
        store.save(walk(rows), file)
        began = time.perf_counter()
        alias_table(AW().probabilities(open_dataset(file)))
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="shorter turns: less precise numbers in a third of the time"
    )
    parser.add_argument("--json", help="also write every number to this file")
    args = parser.parse_args()
    scale = 1 if args.quick else 3
    numbers: dict[str, Any] = {}

    data = hopper_like(100_000)
    top = ceilings()
    numbers["ceilings"] = top
    packs = {name: pack(data, "iql", method, 1) for name, method in METHODS.items()}
    loops = {"plain scan, IQL": plain_loop()} | {name: stepper(packed) for name, packed in packs.items()}
    speed = rates({name: (loop, 60 * scale) for name, loop in loops.items()}, rounds=15)
    base = speed["plain scan, IQL"]
    lines = []
    for name, rate in speed.items():
        share = rate * flops(packs.get(name, packs["pack of one, IQL"])) / top["flop/s"]
        lines.append((name, f"{rate:.0f} steps/s", f"{base / rate:.2f} × the time of the plain scan", f"{share:.0%}"))
        numbers.setdefault("of flop/s", {})[name] = share
    table(
        f"one run, 2×256, batch 256, and its share of {top['flop/s'] / 1e9:.0f} GFLOP/s (products of 1024×1024)", lines
    )
    weighted = speed["pack of one, IQL"] / speed["pack of one, IQL + DW"]
    print(f"  adding DW costs {weighted:.2f} × (goal: at most 1.6)")
    numbers["one run"] = speed | {"cost of DW": weighted}

    small = {
        f"{n} runs": (stepper(pack(data, "iql", "uniform", n, width=64)), 300 * scale // n) for n in (1, 2, 4, 8, 16)
    }
    speed = rates(small)
    lines = [
        (name, f"{int(name.split()[0]) * rate:.0f} run-steps/s", f"{speed['1 runs'] / rate:.1f} × the time of one")
        for name, rate in speed.items()
    ]  # fmt: skip
    table("packing small runs, IQL 2×64", lines)
    numbers["packing"] = speed

    names = ("iql", "td3bc", "cql")
    turns = {"iql": 60 * scale, "td3bc": 60 * scale, "cql": 8 * scale}
    peers = d3rlpy_loops(names)
    lines = []
    for name in names:
        pair = {"winnow": (stepper(pack(data, name, "uniform", 1)), turns[name]), "d3rlpy": (peers[name], turns[name])}
        speed = rates(pair, rounds=3)
        ratio = speed["winnow"] / speed["d3rlpy"]
        goal = 1.2 if name == "cql" else 2.5
        lines.append(
            (name, f"winnow {speed['winnow']:.0f}", f"d3rlpy {speed['d3rlpy']:.0f}", f"{ratio:.1f} × (goal: {goal})")
        )
        numbers[f"against d3rlpy, {name}"] = speed | {"ratio": ratio}
    table("against d3rlpy, steps/s", lines)

    script = MEMORY.format(folder=str(Path(__file__).parent))
    peak = float(subprocess.check_output([sys.executable, "-c", script], text=True))
    table("memory, 1M rows with 8 mixtures of them in one pack", [("peak", f"{peak:.2f} GB", "goal: under 1.5")])
    numbers["memory"] = {"peak, GB": peak}

    start = {}
    for name, code in (
        ("import winnow", "import winnow"),
        ("winnow --help", "from winnow.cli import main; main(['--help'])"),
    ):
        took = []
        for _ in range(5):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
            took.append(time.perf_counter() - began)
        start[name] = sorted(took)[2]
    lines = [(name, f"{seconds:.2f} s", "goal: under 0.5") for name, seconds in start.items()]
    start["1M rows"] = sorted(opening(1_000_000) for _ in range(3))[1]
    table(
        "starting", [*lines, ("a million rows opened, AW's tables made", f"{start['1M rows']:.2f} s", "goal: under 2")]
    )
    numbers["starting"] = start

    if args.json:
        Path(args.json).write_text(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    run_script(main)
