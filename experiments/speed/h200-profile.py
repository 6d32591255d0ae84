"""Where a packed update spends its time: the kernels of one update, their number and their microseconds.

python experiments/speed/h200-profile.py [ALGORITHM] [RUNS]   (on a GPU; WINNOW_PRECISION=default for the plain program)
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from shapes import hopper_like, pack, stepper  # pyright: ignore

from winnow.errors import run_script

STEPS = 100


def kernels(folder: str) -> tuple[collections.Counter[str], collections.Counter[str]]:
    """Nanoseconds and launches of each kernel in a trace."""
    spent = collections.Counter[str]()
    count = collections.Counter[str]()
    path = sorted(Path(folder).rglob("*.xplane.pb"))[-1]
    for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
        for line in plane.lines if "GPU" in plane.name else ():
            for event in line.events if line.name.startswith("Stream") else ():
                spent[event.name] += int(event.duration_ns)
                count[event.name] += 1
    return spent, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", nargs="?", default="iql")
    parser.add_argument("runs", nargs="?", type=int, default=128)
    args = parser.parse_args()
    packed = pack(hopper_like(200_000, 2), args.algorithm, "dw-aw", args.runs)
    go = stepper(packed)
    folder = tempfile.mkdtemp()
    go(STEPS)
    with jax.profiler.trace(folder):
        go(STEPS)
    spent, count = kernels(folder)
    each = count.total() / STEPS
    title = f"{args.algorithm} dw-aw × {args.runs}, {packed.precision}"
    print(f"{title}: {spent.total() / STEPS / 1e3:.0f} µs, {each:.0f} kernels")
    for name, nanoseconds in spent.most_common(60):
        print(f"{nanoseconds / STEPS / 1e3:9.1f} µs {count[name] / STEPS:6.2f} ×  {name[:100]}")


if __name__ == "__main__":
    run_script(main)
