"""Dozens of faults, each counted: `make soak`. The tests in this folder inject a few of the same.

Kills at random moments of every command, on this machine and on a Ray cluster; children that die; disks of random
sizes that fill up; folders that can't be written to; clocks that jump; two processes at once; odd data for every
algorithm and method. After each fault the same command, run again, must leave the same files as an undisturbed run,
bit for bit (results of grids may differ in the seconds they took). One line per kind is printed and written to
results/trust/soak.json.

    python tests/faults/soak.py --seed 0 --times 1 --out results/trust/soak.json
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.faults import disks, odd_data
from helpers.faults.cases import CHUNK
from helpers.faults.injector import FaultInjector
from helpers.faults.kills import Kill, Target, jumping_clock
from helpers.problems import quick_compiles

from winnow import __version__
from winnow.algorithms import ALGORITHMS
from winnow.system.files import write_text

KILLS = {
    "data import": 8,
    "data make": 8,
    "train": 12,
    "evaluate": 6,
    "tune": 8,
    "bench run": 10,
    "report": 6,
    "bench run on ray": 6,
}
DEATHS = {"data make": 4, "train": 4, "evaluate": 4, "bench run": 4}
FULL = {"data import": 3, "data make": 3, "train": 4, "tune": 3, "bench run": 4, "report": 3}
WEIGHED = ["aw", "dw-aw", "dual-aw", "optidice-w"]
"""One method for each weighter."""
ALONE = list[Target](["command"])
BOTH = list[Target](["command", "family"])
CHILD = list[Target](["child"])
FAULTS_PER_FOLDER = 3
"""After this many faults in one folder the command may run to its end."""


@dataclass
class Line:
    """Faults of one kind in one command."""

    command: str
    fault: str
    injected: int = 0
    again: int = 0
    """How often the command had to be run again."""
    redone: int = 0
    """The largest number of reported updates that had to be done again."""
    orphans: int = 0
    """Child processes that outlived their command for a moment and then ended."""
    notes: str = ""
    broken: list[str] = field(default_factory=list)
    """Tracebacks of faults after which something was lost or wrong."""

    def count(self, kill: Kill) -> None:
        self.injected += 1
        self.again += kill.again
        self.redone = max(self.redone, kill.behind)
        self.orphans += kill.orphans


class Soak:
    def __init__(self, folder: Path, seed: int, times: int, only: str | None) -> None:
        self.base, self.seed, self.times, self.only = folder, seed, times, only
        self.injector = FaultInjector(folder / "cases")
        self.lines: list[Line] = []
        self.number = 0

    def folder(self) -> Path:
        self.number += 1
        return self.base / f"{self.number:04d}"

    def go(self) -> None:
        for name, count in self.asked(KILLS).items():
            if name.endswith("ray"):
                with self.clustered(name):
                    self.strikes(name, "kill -9", ALONE * count * self.times)
            else:
                self.strikes(name, "kill -9", BOTH * (count * self.times // 2))
        for name, count in self.asked(DEATHS).items():
            self.strikes(name, "child killed", CHILD * count * self.times)
        names = [name for name in self.injector.cases if self.only in (None, name)]
        if disks.can_mount():
            for name, count in self.asked(FULL).items():
                self.full_disks(name, count * self.times)
            for name in names:
                self.once(name, "read-only folder", self.read_only)
        clock = jumping_clock(self.base)
        if clock:
            for name in names:
                self.once(name, "clock jumps", lambda name: self.jumps(name, clock))
        for name in names:
            self.once(name, "two at once", self.two)
        for algorithm in ALGORITHMS if self.only is None else ():
            methods = odd_data.CHEAP if algorithm == "bc" else WEIGHED
            self.once(f"train ({algorithm})", "odd data", lambda _, a=algorithm, m=methods: self.odd_data(a, m))

    # ------------------------------------------------------------------------------------------------ kinds

    def strikes(self, name: str, fault: str, targets: Sequence[Target]) -> None:
        """Kill processes of the command, a few times in each folder."""
        rng, line, out = random.Random(f"{self.seed} {name} {fault}"), self.line(name, fault), self.folder()
        for number, target in enumerate(targets, 1):
            whole = len(line.broken)
            with self.noted(line):
                line.count(self.injector.kill_once(name, out, target, rng))
                if number % FAULTS_PER_FOLDER == 0 or number == len(targets):
                    self.injector.finish(name, out)
                    shutil.rmtree(out, ignore_errors=True)
            if len(line.broken) > whole:
                out = self.folder()  # do not resume a broken folder
        show(line)

    def full_disks(self, name: str, count: int) -> None:
        """Disks of random sizes, up to what the command needs."""
        rng, line = random.Random(f"{self.seed} {name} full"), self.line(name, "disk full")
        left = self.injector.base / name.replace(" ", "-")
        self.injector.expected(name)
        pages = sum(-(-path.stat().st_size // 4096) for path in left.rglob("*") if path.is_file())
        for _ in range(count):
            with self.noted(line):
                folder = self.folder()
                size = 4096 * rng.randrange(1, pages)
                outcome = disks.full(self.injector.case(name), folder, size)
                assert outcome.code in (0, 2), outcome.output
                assert "Traceback" not in outcome.output, outcome.output
                self.injector.check(name, outcome.first, done=outcome.code == 0)
                assert outcome.code_after == 0, outcome.output
                self.injector.check(name, outcome.last, done=True)
                line.injected += outcome.code == 2
                line.again += outcome.code == 2
                shutil.rmtree(folder)
        show(line)

    def once(self, name: str, fault: str, inject: Callable[[str], tuple[int, int, str]]) -> None:
        """Inject a fault that needs no random moment; `inject` returns (faults, repeated commands, note)."""
        line = self.line(name, fault)
        with self.noted(line):
            line.injected, line.again, line.notes = inject(name)
        show(line)

    def read_only(self, name: str) -> tuple[int, int, str]:
        outcome = disks.read_only(self.injector.case(name), self.folder())
        assert outcome.code == 2, outcome.output
        assert "can't be written (Read-only file system)" in outcome.output, outcome.output
        assert not list(outcome.first.iterdir())
        return 1, 1, "refused in a line, nothing was written"

    def jumps(self, name: str, clock: str) -> tuple[int, int, str]:
        out = self.folder()
        self.injector.case(name).run(out, LD_PRELOAD=clock)
        self.injector.check(name, out, done=True)
        return 1, 0, "by days, each time it is read"

    def two(self, name: str) -> tuple[int, int, str]:
        out, case = self.folder(), self.injector.case(name)
        pair = [case.begin(out) for _ in range(2)]
        errors = [child.communicate(timeout=300)[1] for child in pair]
        codes = sorted(child.returncode for child in pair)
        assert codes in ([0, 0], [0, 2]), errors
        assert codes == [0, 0] or any("locked by process" in text for text in errors), errors
        self.injector.check(name, out, done=True)
        return 1, codes.count(2), "one was refused" if 2 in codes else "both ended well"

    def odd_data(self, algorithm: str, methods: Sequence[str]) -> tuple[int, int, str]:
        folder = self.folder()
        folder.mkdir(parents=True)
        files = odd_data.save(folder)
        with quick_compiles(), contextlib.redirect_stdout(sys.stderr):
            count = odd_data.train(files, algorithm, methods, folder / "out")
        runs = sum(count.values())
        return runs, 0, f"{len(files)} datasets × {len(methods)} methods; {count['failed']} exploded and are named"

    # ---------------------------------------------------------------------------------------------- details

    @contextlib.contextmanager
    def clustered(self, name: str) -> Iterator[None]:
        """A Ray cluster of one node, and a case on it that must leave the same files as on this machine."""
        from ray.cluster_utils import Cluster

        case, expected = self.injector.cases["bench run"], self.injector.expected("bench run")
        os.environ.update(case.environment(self.base) | {"RAY_USAGE_STATS_ENABLED": "0"})
        size = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80_000_000, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=size)
        try:
            arguments = f"{case.arguments} --on ray --ray-address {cluster.address} --ray-shared"
            self.injector.cases[name] = dataclasses.replace(case, name=name, arguments=arguments)
            assert self.injector.expected(name) == expected
            yield
        finally:
            self.injector.cases.pop(name, None)
            cluster.shutdown()

    def asked(self, counts: dict[str, int]) -> dict[str, int]:
        return {name: count for name, count in counts.items() if self.only in (None, name)}

    def line(self, name: str, fault: str) -> Line:
        self.lines.append(Line(name, fault))
        return self.lines[-1]

    @contextlib.contextmanager
    def noted(self, line: Line) -> Iterator[None]:
        """Record a fault that broke something, and go on with the others."""
        try:
            yield
        except Exception:
            line.broken.append(traceback.format_exc(limit=-2)[-2000:])

    def record(self, seconds: float) -> dict[str, Any]:
        return {
            "command": f"python tests/faults/soak.py --seed {self.seed} --times {self.times}"
            + (f" --only '{self.only}'" if self.only else ""),
            "made_with": {"winnow": __version__, "jax": jax.__version__, "python": platform.python_version()},
            "cores": os.cpu_count(),
            "seconds": round(seconds),
            "chunk": CHUNK,
            "faults": sum(line.injected for line in self.lines if line.fault != "odd data"),
            "kills": sum(line.injected for line in self.lines if "kill" in line.fault),
            "odd_runs": sum(line.injected for line in self.lines if line.fault == "odd data"),
            "broken": sum(len(line.broken) for line in self.lines),
            "lines": [dataclasses.asdict(line) for line in self.lines],
        }


def show(line: Line) -> None:
    """A line of the table."""
    cells = f"{line.command:<18} {line.fault:<17} {line.injected:>8} {line.again:>6} {line.redone:>7} {line.orphans:>8}"
    print(f"{cells} {len(line.broken):>7}  {line.notes}", flush=True)
    for why in line.broken:
        print(why, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="another seed kills at other moments")
    parser.add_argument("--times", type=int, default=1, help="multiply the number of faults by this")
    parser.add_argument("--only", choices=KILLS, help="inject faults into this command only")
    parser.add_argument("--out", type=Path, help="a JSON file for the counts")
    args = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="winnow-soak-", ignore_cleanup_errors=True) as folder:
        soak = Soak(Path(folder), args.seed, args.times, args.only)
        print("command            fault             injected  again  redone  orphans  broken", flush=True)
        soak.go()
    record = soak.record(time.monotonic() - began)
    faults = f"{record['faults']} faults ({record['kills']} kills)"
    print(f"{faults}, {record['odd_runs']} runs on odd data, {record['seconds']} s")
    print(f"something lost or wrong: {record['broken']} times")
    print(f"redone: the largest number of reported updates that were done again; a chunk has {CHUNK}")
    if args.out:
        write_text(args.out, json.dumps(record, indent=1) + "\n")
    return 1 if record["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
