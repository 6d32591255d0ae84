"""Disks that are full or can't be written to, for real: file systems of their own in a namespace of their own.

That needs Linux and no privileges: inside, a process may mount what it likes, and nobody outside sees it.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from helpers.faults.scenes import Scene

APART = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]


@cache
def can_mount() -> bool:
    if not shutil.which("unshare"):
        return False
    return subprocess.run([*APART, "mount -t tmpfs none /mnt"], capture_output=True).returncode == 0


@dataclass(frozen=True)
class Tried:
    """What a command did on a bad disk, and when the disk was good again."""

    code: int
    said: str
    first: Path
    """A copy of its folder as it was then."""
    then: int | None = None
    last: Path = Path()


def full(scene: Scene, place: Path, size: int) -> Tried:
    """The command on a disk of so many bytes, then the disk grows, and the same command again."""
    small, large = (f"mount -t tmpfs -o size={size} none $out", "mount -o remount,size=1g $out")
    _do(scene, place, [small, _command(scene, "first"), large, _command(scene, "last")])
    code, said = _told(place, "first")
    then, also = _told(place, "last")
    return Tried(code, said + also, place / "first", then, place / "last")


def read_only(scene: Scene, place: Path) -> Tried:
    """The command in a folder that can't be written to."""
    locked = "mount --bind $out $out && mount -o remount,ro,bind $out"
    _do(scene, place, [locked, _command(scene, "first")])
    return Tried(*_told(place, "first"), place / "first")


def _command(scene: Scene, name: str) -> str:
    """The command, and a copy of what it leaves."""
    run = f"(cd $out && {shlex.join(scene.command)} > /dev/null) 2> {name}.said; echo $? > {name}.code"
    return f"{{ {run}; cp -a $out/. {name}; }}"


def _told(place: Path, name: str) -> tuple[int, str]:
    return int((place / f"{name}.code").read_text()), (place / f"{name}.said").read_text()


def _do(scene: Scene, place: Path, steps: Sequence[str]) -> None:
    for name in ("out", "first", "last"):
        (place / name).mkdir(parents=True)
    script = f"out={shlex.quote(str(place / 'out'))} && {' && '.join(steps)}"
    surroundings = scene.environment(place / "out")
    done = subprocess.run([*APART, script], cwd=place, env=surroundings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
