"""Real kills: SIGKILL at a random moment for a process, or for it and all of its children."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from helpers.faults.cases import Case, behind

POLL_SECONDS = 0.003
"""Time between two looks at a folder."""

Target = Literal["command", "family", "child"]
"""What is killed: the command's own process; it and all of its children, as in a power cut; or one child."""


@dataclass(frozen=True)
class Timeline:
    """Changes and times of a command that nothing disturbs."""

    changes: int
    """Changes seen in its folder."""
    starting: float
    """Seconds until the first change."""
    working: float
    """Seconds from the first change to the end."""


@dataclass(frozen=True)
class Moment:
    """When to kill: after this many changes, and then this many seconds."""

    changes: int
    seconds: float


@dataclass(frozen=True)
class Kill:
    """The effect of a kill."""

    target: Target
    hit: bool
    """False if the command ended before it."""
    behind: int = 0
    """Updates that have to be done again."""
    orphans: int = 0
    """Children that outlived the command and ended by themselves."""
    again: bool = True
    """Whether the command has to be run again."""


class ChangeCounter:
    """Counts the changes in a folder: files that appear, grow or disappear."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.changes = 0
        self._last = self._now()

    def count(self) -> int:
        now = self._now()
        self.changes += len(now.items() ^ self._last.items())
        self._last = now
        return self.changes

    def _now(self) -> dict[str, tuple[int, int]]:
        files = {}
        for path, _, names in os.walk(self.folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    stat = os.stat(os.path.join(path, name))
                    files[os.path.join(path, name)] = stat.st_size, stat.st_mtime_ns
        return files


def run_undisturbed(case: Case, out: Path) -> Timeline:
    """Run the command, which must succeed, and watch its folder."""
    out.mkdir(parents=True, exist_ok=True)
    counter = ChangeCounter(out)
    began = time.monotonic()
    first = None
    child = case.begin(out)
    while child.poll() is None:
        time.sleep(POLL_SECONDS)
        if counter.count() and first is None:
            first = time.monotonic()
    errors = child.communicate()[1]
    assert child.returncode == 0, errors
    first = first or time.monotonic()
    return Timeline(max(1, counter.changes), first - began, time.monotonic() - first)


def any_moment(timeline: Timeline, rng: random.Random) -> Moment:
    """Usually close to a change in the folder, where a kill could do harm; sometimes before the first change."""
    changes = rng.randrange(timeline.changes)
    if not changes:
        return Moment(0, rng.uniform(0, timeline.starting))
    return Moment(changes, rng.choice([0, 1]) * rng.uniform(0, 2 * timeline.working / timeline.changes))


def kill_at(case: Case, out: Path, moment: Moment, target: Target, rng: random.Random) -> Kill:
    """Start the command, kill it at this moment, and wait until its orphaned children have ended."""
    out.mkdir(parents=True, exist_ok=True)
    counter = ChangeCounter(out)
    child = case.begin(out)
    with child:
        while child.poll() is None and counter.count() < moment.changes:
            time.sleep(POLL_SECONDS)
        until = time.monotonic() + moment.seconds
        while child.poll() is None and (time.monotonic() < until or (target == "child" and not family(child.pid))):
            time.sleep(POLL_SECONDS)
        own = family(child.pid)
        if child.poll() is not None:
            errors = child.communicate()[1]
            assert child.returncode == 0, errors
            return Kill(target, hit=False, again=False)
        if target == "child":
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(own), signal.SIGKILL)
            errors = child.communicate(timeout=300)[1]
            assert child.returncode in (0, 2), errors
            assert "Traceback" not in errors
            return Kill(target, hit=True, again=child.returncode == 2)
        for process in [child.pid, *(own if target == "family" else [])]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        child.communicate(timeout=60)
    orphans = [process for process in own if target == "command" and alive(process)]
    deadline = time.monotonic() + 30
    while any(map(alive, orphans)):
        assert time.monotonic() < deadline, "a child outlives its command by 30 s"
        time.sleep(0.05)
    return Kill(target, hit=True, behind=behind(out), orphans=len(orphans))


def family(process: int) -> list[int]:
    """All descendants of a process."""
    processes = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text().split()):
                processes += [child, *family(child)]
    return processes


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def jumping_clock(folder: Path) -> str | None:
    """A library for LD_PRELOAD that makes the wall clock jump by days at every read; None without a compiler."""
    compiler = shutil.which("cc")
    made = folder / "jumping_clock.so"
    if compiler:
        source = Path(__file__).with_name("jumping_clock.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"], check=True)
    return str(made) if compiler else None
