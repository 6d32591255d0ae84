"""Several processes that train on one machine: whether together they are as fast as one process alone.

python benchmarks/sharing.py [--steps 100] [--runs 4] [--rounds 3] [--json FILE]

Each process trains a pack of IQL with DW (2×256), compiles it first, and waits for the others. Prints run-steps/s of
all processes together as a ratio to one process that has the machine to itself (1: nothing is lost), and the processor
time per run-step, which grows if threads spin while they wait for each other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any, NamedTuple

from shapes import table

from winnow.errors import run_script
from winnow.system.cores import cores_here

CHILD = """
import os, sys, time
folder, runs, steps, pinned = sys.argv[1:]
if pinned:
    os.sched_setaffinity(0, map(int, pinned.split(",")))
sys.path.insert(0, folder)
from shapes import hopper_like, pack, stepper
go = stepper(pack(hopper_like(50_000), "iql", "dw-aw", int(runs)))
go(5)
print("ready", flush=True)
for line in sys.stdin:
    began = time.process_time()
    go(int(steps))
    print(time.process_time() - began, flush=True)
"""


class Setting(NamedTuple):
    name: str
    processes: int
    cores: str = ""
    """$WINNOW_CORES of each."""
    pinned: bool = False
    """Each process may use one core only, a different one for each."""


def settings() -> list[Setting]:
    many = cores_here()
    return [
        Setting("one process", 1),
        Setting("one process, WINNOW_CORES=1", 1, "1"),
        Setting("one process on one core", 1, pinned=True),
        Setting("two processes", 2),
        Setting(f"two processes, WINNOW_CORES={max(1, many // 2)}", 2, str(max(1, many // 2))),
        Setting("two processes, each on its core", 2, pinned=True),
        Setting("four processes", 4),
        Setting("four processes, WINNOW_CORES=1", 4, "1"),
    ]


class ProcessGroup:
    """The processes of a setting, compiled and waiting."""

    def __init__(self, setting: Setting, runs: int, steps: int, programs: str) -> None:
        cores = sorted(os.sched_getaffinity(0))
        more = {"JAX_COMPILATION_CACHE_DIR": programs, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        more |= {"WINNOW_CORES": setting.cores} if setting.cores else {}
        environment = {
            key: value for key, value in os.environ.items() if key not in ("WINNOW_CORES", "PJRT_NPROC")
        } | more
        self.processes = []
        for number in range(setting.processes):
            core = str(cores[number % len(cores)]) if setting.pinned else ""
            command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(runs), str(steps), core]
            self.processes.append(
                subprocess.Popen(command, env=environment, stdin=PIPE, stdout=PIPE, text=True, bufsize=1)
            )
        self._answers()

    def _answers(self) -> list[str]:
        answers = []
        for process in self.processes:
            assert process.stdout
            answers.append(process.stdout.readline().strip())
        if not all(answers):
            raise SystemExit("a training process died; its error is printed above")
        return answers

    def go(self) -> tuple[float, float]:
        """Wall-clock seconds until all have done their steps, and their processor seconds."""
        began = time.perf_counter()
        for process in self.processes:
            assert process.stdin
            process.stdin.write("go\n")
        spent = sum(map(float, self._answers()))
        return time.perf_counter() - began, spent

    def end(self) -> None:
        for process in self.processes:
            process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write every number to this file")
    args = parser.parse_args()
    numbers: dict[str, Any] = {"cores": cores_here(), "runs": args.runs, "steps": args.steps}
    plan = settings()
    lines = [("", "run-steps/s of all", "against one process", "processor, ms a run-step")]
    rates: dict[str, list[tuple[float, float]]] = {setting.name: [] for setting in plan}
    programs = tempfile.mkdtemp()  # compiled once for all
    groups = [ProcessGroup(setting, args.runs, args.steps, programs) for setting in plan]  # they wait while others work
    print("compiled", flush=True)
    for _ in range(args.rounds):
        for setting, group in zip(plan, groups, strict=True):
            done = setting.processes * args.runs * args.steps
            seconds, processor = group.go()
            rates[setting.name].append((done / seconds, 1000 * processor / done))
    for group in groups:
        group.end()
    for name, seen in rates.items():
        rate, processor = map(statistics.median, zip(*seen, strict=True))
        base = numbers[plan[0].name]["run-steps/s"] if lines[1:] else rate
        numbers[name] = {"run-steps/s": rate, "ratio": rate / base, "processor, ms": processor}
        lines.append((name, f"{rate:.0f}", f"{rate / base:.2f}", f"{processor:.1f}"))
    table(f"packs of {args.runs} runs of IQL with DW on {cores_here()} cores", lines)
    if args.json:
        args.json.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_script(main)
