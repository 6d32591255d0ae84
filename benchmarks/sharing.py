"""Several processes that train on one machine: whether together they get done what one alone would.

python benchmarks/sharing.py [--steps 100] [--runs 4] [--rounds 3] [--json FILE]

Each process trains a pack of IQL with DW (2×256), compiles it first, and waits for the others. Prints run-steps/s of
all of them together against one process that has the machine to itself (1 is nothing lost), and the processor time of
a run-step, which grows where threads wait for each other by spinning.
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
from typing import Any, NamedTuple

from shapes import table

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
    """Each process may run on one core alone, of its own."""


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


class Crew:
    """The processes of a setting, compiled and waiting."""

    def __init__(self, setting: Setting, runs: int, steps: int, programs: str) -> None:
        there = sorted(os.sched_getaffinity(0))
        more = {"JAX_COMPILATION_CACHE_DIR": programs, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        more |= {"WINNOW_CORES": setting.cores} if setting.cores else {}
        around = {key: value for key, value in os.environ.items() if key not in ("WINNOW_CORES", "PJRT_NPROC")} | more
        self.processes = []
        for number in range(setting.processes):
            core = str(there[number % len(there)]) if setting.pinned else ""
            words = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(runs), str(steps), core]
            self.processes.append(
                subprocess.Popen(words, env=around, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
            )
        self._answers()

    def _answers(self) -> list[str]:
        said = []
        for process in self.processes:
            assert process.stdout
            said.append(process.stdout.readline().strip())
        if not all(said):
            raise SystemExit("a process has died")
        return said

    def go(self) -> tuple[float, float]:
        """Seconds until all have done their steps, and of processors."""
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
    words = parser.parse_args()
    found: dict[str, Any] = {"cores": cores_here(), "runs": words.runs, "steps": words.steps}
    plan = settings()
    lines = [("", "run-steps/s of all", "against one process", "processor, ms a run-step")]
    rates: dict[str, list[tuple[float, float]]] = {setting.name: [] for setting in plan}
    programs = tempfile.mkdtemp()  # compiled once for all
    crews = [Crew(setting, words.runs, words.steps, programs) for setting in plan]  # they wait while others work
    print("compiled", flush=True)
    for _ in range(words.rounds):
        for setting, crew in zip(plan, crews, strict=True):
            done, (seconds, processor) = setting.processes * words.runs * words.steps, crew.go()
            rates[setting.name].append((done / seconds, 1000 * processor / done))
    for crew in crews:
        crew.end()
    for name, seen in rates.items():
        rate, processor = map(statistics.median, zip(*seen, strict=True))
        base = found[plan[0].name]["run-steps/s"] if lines[1:] else rate
        found[name] = {"run-steps/s": rate, "ratio": rate / base, "processor, ms": processor}
        lines.append((name, f"{rate:.0f}", f"{rate / base:.2f}", f"{processor:.1f}"))
    table(f"packs of {words.runs} runs of IQL with DW on {cores_here()} cores", lines)
    if words.json:
        words.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
