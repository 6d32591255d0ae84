"""Faults by the dozen, each counted: `make soak`. The tests beside it inject a few of the same.

Kills at random moments of every command, on this machine and on a Ray cluster; children that die; disks of random
sizes that fill up; folders that can't be written to; clocks that jump; two processes at once; odd data through every
algorithm and method. After each fault the same command must leave what it leaves undisturbed, bit for bit (results of
grids: but for the times they took). A line for each kind is printed and written to results/trust/soak.json.

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
from helpers.faults.company import Company
from helpers.faults.injuries import Blow, Target, jumping_clock
from helpers.faults.scenes import CHUNK
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
"""Methods with each of the weighters that there are."""
ALONE, BOTH, CHILD = list[Target](["command"]), list[Target](["command", "family"]), list[Target](["child"])
LIVES = 3
"""Faults in one folder, at the most, before the command is let go to its end."""


@dataclass
class Line:
    """Faults of one kind in one command."""

    command: str
    fault: str
    injected: int = 0
    again: int = 0
    """How often the command had to be given again."""
    redone: int = 0
    """Updates that were reported and had to be done again, at the most."""
    orphans: int = 0
    """Children that outlived their command for a moment, and then went."""
    notes: str = ""
    broken: list[str] = field(default_factory=list)
    """Faults after which something was lost or wrong."""

    def count(self, blow: Blow) -> None:
        self.injected += 1
        self.again += blow.again
        self.redone = max(self.redone, blow.behind)
        self.orphans += blow.orphans


class Soak:
    def __init__(self, place: Path, seed: int, times: int, only: str | None) -> None:
        self.place, self.seed, self.times, self.only = place, seed, times, only
        self.company = Company(place / "stage")
        self.lines: list[Line] = []
        self.number = 0

    def folder(self) -> Path:
        self.number += 1
        return self.place / f"{self.number:04d}"

    def go(self) -> None:
        for name, count in self.asked(KILLS).items():
            if name.endswith("ray"):
                with self.clustered(name):
                    self.strikes(name, "kill -9", ALONE * count * self.times)
            else:
                self.strikes(name, "kill -9", BOTH * (count * self.times // 2))
        for name, count in self.asked(DEATHS).items():
            self.strikes(name, "child killed", CHILD * count * self.times)
        names = [name for name in self.company.scenes if self.only in (None, name)]
        if disks.can_mount():
            for name, count in self.asked(FULL).items():
                self.full_disks(name, count * self.times)
            for name in names:
                self.one(name, "read-only folder", self.read_only)
        clock = jumping_clock(self.place)
        if clock:
            for name in names:
                self.one(name, "clock jumps", lambda name: self.jumps(name, clock))
        for name in names:
            self.one(name, "two at once", self.two)
        for algorithm in ALGORITHMS if self.only is None else ():
            methods = odd_data.CHEAP if algorithm == "bc" else WEIGHED
            self.one(f"train ({algorithm})", "odd data", lambda _, a=algorithm, m=methods: self.odd_data(a, m))

    # ------------------------------------------------------------------------------------------------ kinds

    def strikes(self, name: str, fault: str, targets: Sequence[Target]) -> None:
        """Faults in one folder after another."""
        rng, line, out = random.Random(f"{self.seed} {name} {fault}"), self.line(name, fault), self.folder()
        for number, target in enumerate(targets, 1):
            whole = len(line.broken)
            with self.noted(line):
                line.count(self.company.injure(name, out, target, rng))
                if number % LIVES == 0 or number == len(targets):
                    self.company.finish(name, out)
                    shutil.rmtree(out, ignore_errors=True)
            if len(line.broken) > whole:
                out = self.folder()  # what is wrong is not gone on with
        show(line)

    def full_disks(self, name: str, count: int) -> None:
        """Disks of random sizes, up to what the command needs."""
        rng, line = random.Random(f"{self.seed} {name} full"), self.line(name, "disk full")
        left = self.company.base / name.replace(" ", "-")
        self.company.expected(name)
        pages = sum(-(-path.stat().st_size // 4096) for path in left.rglob("*") if path.is_file())
        for _ in range(count):
            with self.noted(line):
                place = self.folder()
                size = 4096 * rng.randrange(1, pages)
                tried = disks.full(self.company.scene(name), place, size)
                assert tried.code in (0, 2), tried.said
                assert "Traceback" not in tried.said, tried.said
                self.company.check(name, tried.first, done=tried.code == 0)
                assert tried.then == 0, tried.said
                self.company.check(name, tried.last, done=True)
                line.injected += tried.code == 2
                line.again += tried.code == 2
                shutil.rmtree(place)
        show(line)

    def one(self, name: str, fault: str, inject: Callable[[str], tuple[int, int, str]]) -> None:
        """Faults that need no random moment: how many there were, how often the command was given again, and a note."""
        line = self.line(name, fault)
        with self.noted(line):
            line.injected, line.again, line.notes = inject(name)
        show(line)

    def read_only(self, name: str) -> tuple[int, int, str]:
        tried = disks.read_only(self.company.scene(name), self.folder())
        assert tried.code == 2, tried.said
        assert "can't be written (Read-only file system)" in tried.said, tried.said
        assert not list(tried.first.iterdir())
        return 1, 1, "refused in a line, nothing was written"

    def jumps(self, name: str, clock: str) -> tuple[int, int, str]:
        out = self.folder()
        self.company.scene(name).run(out, LD_PRELOAD=clock)
        self.company.check(name, out, done=True)
        return 1, 0, "by days, whenever it is looked at"

    def two(self, name: str) -> tuple[int, int, str]:
        out, scene = self.folder(), self.company.scene(name)
        pair = [scene.begin(out) for _ in range(2)]
        said = [child.communicate(timeout=300)[1] for child in pair]
        codes = sorted(child.returncode for child in pair)
        assert codes in ([0, 0], [0, 2]), said
        assert codes == [0, 0] or any("locked by process" in words for words in said), said
        self.company.check(name, out, done=True)
        return 1, codes.count(2), "one was refused" if 2 in codes else "both ended well"

    def odd_data(self, algorithm: str, methods: Sequence[str]) -> tuple[int, int, str]:
        place = self.folder()
        place.mkdir(parents=True)
        files = odd_data.save(place)
        with quick_compiles(), contextlib.redirect_stdout(sys.stderr):
            count = odd_data.train(files, algorithm, methods, place / "out")
        runs = sum(count.values())
        return runs, 0, f"{len(files)} datasets × {len(methods)} methods; {count['failed']} exploded and are named"

    # ---------------------------------------------------------------------------------------------- details

    @contextlib.contextmanager
    def clustered(self, name: str) -> Iterator[None]:
        """A Ray cluster of one node, and a scene on it that must leave what the one on this machine does."""
        from ray.cluster_utils import Cluster

        scene, expected = self.company.scenes["bench run"], self.company.expected("bench run")
        os.environ.update(scene.environment(self.place) | {"RAY_USAGE_STATS_ENABLED": "0"})
        size = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80_000_000, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=size)
        try:
            words = f"{scene.words} --on ray --ray-address {cluster.address} --ray-shared"
            self.company.scenes[name] = dataclasses.replace(scene, name=name, words=words)
            assert self.company.expected(name) == expected
            yield
        finally:
            self.company.scenes.pop(name, None)
            cluster.shutdown()

    def asked(self, counts: dict[str, int]) -> dict[str, int]:
        return {name: count for name, count in counts.items() if self.only in (None, name)}

    def line(self, name: str, fault: str) -> Line:
        self.lines.append(Line(name, fault))
        return self.lines[-1]

    @contextlib.contextmanager
    def noted(self, line: Line) -> Iterator[None]:
        """A fault that broke something is written down, and the others go on."""
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
    parser.add_argument("--seed", type=int, default=0, help="other seeds have other moments")
    parser.add_argument("--times", type=int, default=1, help="so many times as many faults")
    parser.add_argument("--only", choices=KILLS, help="faults in this command alone")
    parser.add_argument("--out", type=Path, help="a file for the counts")
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="winnow-soak-", ignore_cleanup_errors=True) as place:
        soak = Soak(Path(place), asked.seed, asked.times, asked.only)
        print("command            fault             injected  again  redone  orphans  broken", flush=True)
        soak.go()
    told = soak.record(time.monotonic() - began)
    print(f"{told['faults']} faults ({told['kills']} kills), {told['odd_runs']} runs on odd data, {told['seconds']} s")
    print(
        f"something lost or wrong: {told['broken']} times; redone: reported updates, of chunks of {CHUNK}, at the most"
    )
    if asked.out:
        write_text(asked.out, json.dumps(told, indent=1) + "\n")
    return 1 if told["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
