"""Faults, injected for real: a signal that can't be caught, at a random moment, for a process or all of its family."""

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

from helpers.faults.scenes import Scene, behind

LOOK = 0.003
"""Seconds between two looks at a folder."""

Target = Literal["command", "family", "child"]
"""Who is killed: the command's own process; it and all of its children, as when power is cut; one of its children."""


@dataclass(frozen=True)
class Course:
    """How a command goes that nobody disturbs."""

    changes: int
    """Changes in its folder that were seen."""
    starting: float
    """Seconds until the first of them."""
    working: float
    """Seconds from there to the end."""


@dataclass(frozen=True)
class Moment:
    """When to strike: so many changes after the start, and then so many seconds."""

    changes: int
    seconds: float


@dataclass(frozen=True)
class Blow:
    """What a fault has done."""

    target: Target
    hit: bool
    """False where the command was done before."""
    behind: int = 0
    """Updates that have to be done again."""
    orphans: int = 0
    """Children that had to go by themselves, and did."""
    again: bool = True
    """Whether the command has to be given again."""


class Seen:
    """Counts the changes in a folder: files that come, grow or go."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.changes = folder, 0
        self._held = self._now()

    def look(self) -> int:
        now = self._now()
        self.changes += len(now.items() ^ self._held.items())
        self._held = now
        return self.changes

    def _now(self) -> dict[str, tuple[int, int]]:
        found = {}
        for path, _, names in os.walk(self.folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    told = os.stat(os.path.join(path, name))
                    found[os.path.join(path, name)] = told.st_size, told.st_mtime_ns
        return found


def undisturbed(scene: Scene, out: Path) -> Course:
    """Run the command, which must be good, and watch it."""
    out.mkdir(parents=True, exist_ok=True)
    seen, began, first = Seen(out), time.monotonic(), None
    child = scene.begin(out)
    while child.poll() is None:
        time.sleep(LOOK)
        if seen.look() and first is None:
            first = time.monotonic()
    said = child.communicate()[1]
    assert child.returncode == 0, said
    first = first or time.monotonic()
    return Course(max(1, seen.changes), first - began, time.monotonic() - first)


def any_moment(course: Course, rng: random.Random) -> Moment:
    """Mostly close to a change in the folder, where a kill could hurt; at times before the first one."""
    changes = rng.randrange(course.changes)
    if not changes:
        return Moment(0, rng.uniform(0, course.starting))
    return Moment(changes, rng.choice([0, 1]) * rng.uniform(0, 2 * course.working / course.changes))


def strike(scene: Scene, out: Path, moment: Moment, target: Target, rng: random.Random) -> Blow:
    """Begin the command, kill at the moment, and see that nothing is left of it but what is whole."""
    out.mkdir(parents=True, exist_ok=True)
    seen, child = Seen(out), scene.begin(out)
    with child:
        while child.poll() is None and seen.look() < moment.changes:
            time.sleep(LOOK)
        until = time.monotonic() + moment.seconds
        while child.poll() is None and (time.monotonic() < until or (target == "child" and not family(child.pid))):
            time.sleep(LOOK)
        own = family(child.pid)
        if child.poll() is not None:
            said = child.communicate()[1]
            assert child.returncode == 0, said
            return Blow(target, hit=False, again=False)
        if target == "child":
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(own), signal.SIGKILL)
            said = child.communicate(timeout=300)[1]
            assert child.returncode in (0, 2), said
            assert "Traceback" not in said
            return Blow(target, hit=True, again=child.returncode == 2)
        for process in [child.pid, *(own if target == "family" else [])]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        child.communicate(timeout=60)
    orphans = [process for process in own if target == "command" and alive(process)]
    gone = time.monotonic() + 30
    while any(map(alive, orphans)):
        assert time.monotonic() < gone, "a child outlives its command"
        time.sleep(0.05)
    return Blow(target, hit=True, behind=behind(out), orphans=len(orphans))


def family(process: int) -> list[int]:
    """All processes below one."""
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text().split()):
                found += [child, *family(child)]
    return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def jumping_clock(folder: Path) -> str | None:
    """A library to load first, under which the wall clock jumps by days at every look; None without a compiler."""
    compiler, made = shutil.which("cc"), folder / "jumping_clock.so"
    if compiler:
        source = Path(__file__).with_name("jumping_clock.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"], check=True)
    return str(made) if compiler else None
