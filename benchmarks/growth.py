"""How the cost of training grows with runs, rows, observations and width, and what methods and precisions cost.

python benchmarks/growth.py [--json FILE] [--after FILE] [--limit 150] [--seconds 1.5] [--rows 1000000] [--toy]

One point is one pack: it is compiled, then stepped for a while. The most important points come first and each is saved
as soon as it is measured, so --limit may end the run anywhere. A CPU has smaller points than an accelerator. On an
accelerator several packs are compiled at the same time (the first one alone) and then stepped one after another. The
tables are printed at the end; `python experiments/speed/picture.py` draws the figure from the file of --json. This
script needs neither tyro, gymnasium, minari nor pyarrow.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
from accelerator import measure, ready
from shapes import ACTION, OBS, pack, table, walk

from winnow.errors import run_script
from winnow.packs.pack import Pack
from winnow.packs.precision import Precision
from winnow.system.cores import cores_here

TOGETHER = 8
"""Packs that are compiled at the same time for an accelerator, if the host has as many cores."""
BOTH: tuple[Precision, ...] = ("half", "default")
Kept = dict[str, Any]
AXES = {"runs": "runs in a pack", "rows": "rows", "obs": "numbers in an observation", "width": "width of both layers"}


class Point(NamedTuple):
    """A pack. `rows` is a multiple of --rows; with `precision` None winnow chooses it."""

    runs: int
    algorithm: str = "iql"
    method: str = "dw-aw"
    rows: float = 1.0
    obs: int = OBS
    width: int = 256
    precision: Precision | None = None
    actions: int = ACTION


def accelerator_plan() -> list[Point]:
    return [
        *(Point(runs) for runs in (256, 512, 128, 64, 32, 8, 1)),
        Point(256, "td3bc"),
        Point(256, method="dual-aw"),
        Point(256, method="uniform"),
        Point(64, "cql"),
        *(Point(runs, precision=how) for runs in (64, 32) for how in BOTH),
        *(Point(64, rows=rows) for rows in (10, 0.1)),
        *(Point(32, width=width) for width in (1024, 64, 512)),
        *(Point(64, obs=obs) for obs in (111, 27, 17)),
        *(Point(runs, name, precision=how) for runs in (16, 8) for name in ("iql", "cql") for how in BOTH),
        *(Point(16, name, obs=45, actions=24, precision=how) for name in ("iql", "cql") for how in BOTH),
    ]


def cpu_plan() -> list[Point]:
    """A CPU steps the runs of a pack one by one, as many at a time as it has cores."""
    return [
        *(Point(runs) for runs in (1, 2, 4, 8)),
        *(Point(1, rows=rows) for rows in (10, 0.1)),
        *(Point(1, width=width) for width in (64, 128, 512, 1024)),
        *(Point(1, obs=obs) for obs in (17, 27, 111)),
        Point(1, method="uniform"),
        Point(1, method="dual-aw"),
        Point(1, "td3bc"),
        Point(1, "cql"),
    ]


def toy_plan() -> list[Point]:
    """Every axis once, in seconds, to see whether the script works."""
    small = Point(1, width=16)
    return [
        small,
        small._replace(runs=2),
        small._replace(rows=10),
        small._replace(obs=17),
        small._replace(width=32),
        small._replace(algorithm="td3bc"),
    ]


def turn(point: Point, cpu: bool) -> int:
    """Steps in one call, enough to hide its overhead. A different number would compile a different program."""
    if cpu:
        return 5 if point.algorithm == "cql" or point.width > 256 else 20
    return 100 if point.algorithm == "cql" or point.runs >= 256 else 300


def groups(plan: list[Point], cpu: bool) -> Iterator[list[Point]]:
    """Points that are compiled at the same time; the first alone, so that its times are those of a single pack."""
    yield plan[:1]
    size = 1 if cpu else TOGETHER
    for low in range(1, len(plan), size):
        yield plan[low : low + size]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="keep every number in this file")
    parser.add_argument("--after", type=Path, help="keep the points of this file and measure only the others")
    parser.add_argument("--limit", type=float, default=float("inf"), help="begin no point after this many seconds")
    parser.add_argument("--seconds", type=float, default=1.5, help="step each point for at least this long")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--toy", action="store_true", help="tiny points, to see whether the script works")
    args = parser.parse_args()
    began = time.perf_counter()
    cpu = jax.default_backend() == "cpu"
    plan = toy_plan() if args.toy else cpu_plan() if cpu else accelerator_plan()
    numbers: dict[str, Any] = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "points": []}
    numbers |= {"cores": cores_here(), "load before": os.getloadavg()[0]}
    if args.after:
        kept = json.loads(args.after.read_text(encoding="utf-8"))["points"]
        numbers["points"] = [{"actions": ACTION} | point for point in kept]
    print(numbers["device"], "jax", numbers["jax"], flush=True)
    data = functools.lru_cache(4)(walk)

    def rows(point: Point) -> int:
        return round(args.rows * point.rows)

    def begin(point: Point) -> tuple[Pack, dict[str, Any]]:
        what = [data(rows(point), point.obs, point.actions)], point.algorithm, point.method, point.runs
        how = {"width": point.width, "precision": point.precision}
        return ready(lambda: pack(*what, **how), turn(point, cpu))

    plan = [point for point in plan if not measured(point, rows(point), numbers["points"])]
    left = len(plan)
    for group in groups(plan, cpu):
        if time.perf_counter() - began > args.limit:
            print(f"stopped after {args.limit:.0f} s; {left} points are left", flush=True)
            break
        left -= len(group)
        group = [point for point in group if not measured(point, rows(point), numbers["points"])]
        for point in group:
            data(rows(point), point.obs, point.actions)
        with ThreadPoolExecutor(min(TOGETHER, cores_here())) as threads:
            packs = list(threads.map(begin, group))
        for point in group:
            packed, kept = packs.pop(0)
            kept |= measure(packed, kept["turn"], args.seconds)
            del packed
            numbers["points"].append(point._asdict() | {"rows": rows(point), "chosen": point.precision is None} | kept)
            print(line(time.perf_counter() - began, numbers["points"][-1]), flush=True)
            if args.json:
                args.json.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    tables(numbers["points"])


def line(seconds: float, kept: Kept) -> str:
    sizes = f"{kept['rows']:,} rows of {kept['obs']} and {kept['actions']}, 2×{kept['width']}"
    what = f"{kept['runs']} × {kept['algorithm']} {kept['method']}, {sizes}"
    before = f"{kept['set-up, s']:.1f} and {kept['first turn, s']:.1f} s before"
    return f"{seconds:5.0f} s: {what}, {kept['precision']}: {kept['run-steps/s']:,.0f} run-steps/s ({before})"


# -------------------------------------------------------------------------------------------------- tables


def measured(point: Point, rows: int, points: list[Kept]) -> bool:
    """Whether a point is among these. A point that names its precision also matches if winnow chose the same."""
    wanted = point._asdict() | {"rows": rows}
    if point.precision is None:
        wanted = {name: value for name, value in wanted.items() if name != "precision"} | {"chosen": True}
    return any(wanted.items() <= known.items() for known in points)


def along(points: list[Kept], axis: str) -> list[Kept]:
    """Points of IQL with DW that differ along one axis alone, sorted along it."""
    plain = [p for p in points if p["chosen"] and (p["algorithm"], p["method"]) == ("iql", "dw-aw")]
    if not plain:
        return []
    usual = plain[0] if axis == "runs" else next((p for p in plain if p[axis] != plain[0][axis]), plain[0])
    fixed = [name for name in AXES if name != axis]
    return sorted((p for p in plain if all(p[name] == usual[name] for name in fixed)), key=lambda p: p[axis])


def tables(points: list[Kept]) -> None:
    for axis, title in AXES.items():
        line = along(points, axis)
        unit = "steps/s" if axis == "runs" else "run-steps/s"
        heads = title, "run-steps/s", "time of a step of all runs" if axis == "runs" else "time of a run-step"
        cells = [
            (f"{p[axis]:,}", f"{p['run-steps/s']:,.0f}", f"{line[0][unit] / p[unit]:.2f} ×", p["precision"])
            for p in line
        ]
        if len(line) > 1:
            fixed = "" if axis == "runs" else f", {line[0]['runs']} runs"
            table(f"iql dw-aw{fixed}", [(*heads, "precision"), *cells])
    usual = [p for p in points if all(p[name] == points[0][name] for name in AXES if name != "runs")]
    cells = [
        (f"{p['algorithm']} {p['method']}", str(p["runs"]), f"{p['run-steps/s']:,.0f}", p["precision"])
        for p in sorted(usual, key=lambda p: (p["algorithm"], p["method"], p["runs"], p["precision"]))
    ]
    table("the usual sizes", [("", "runs", "run-steps/s", "precision"), *cells])


if __name__ == "__main__":
    run_script(main)
