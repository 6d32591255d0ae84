"""Real disks that are full or read-only: file systems mounted in a separate namespace.

This needs Linux but no privileges: inside the namespace a process may mount anything, invisibly to others.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from helpers.faults.cases import Case

IN_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]


@cache
def can_mount() -> bool:
    if not shutil.which("unshare"):
        return False
    return subprocess.run([*IN_NAMESPACE, "mount -t tmpfs none /mnt"], capture_output=True).returncode == 0


@dataclass(frozen=True)
class DiskOutcome:
    """What a command did on a bad disk, and again once the disk was good."""

    code: int
    output: str
    first: Path
    """A copy of its folder after the bad disk."""
    code_after: int | None = None
    last: Path = Path()


def full(case: Case, folder: Path, size: int) -> DiskOutcome:
    """Run the command on a disk of `size` bytes, enlarge the disk, and run the same command again."""
    small = f"mount -t tmpfs -o size={size} none $out"
    large = "mount -o remount,size=1g $out"
    _run(case, folder, [small, _command(case, "first"), large, _command(case, "last")])
    code, output = _read_outcome(folder, "first")
    code_after, output_after = _read_outcome(folder, "last")
    return DiskOutcome(code, output + output_after, folder / "first", code_after, folder / "last")


def read_only(case: Case, folder: Path) -> DiskOutcome:
    """Run the command in a read-only folder."""
    locked = "mount --bind $out $out && mount -o remount,ro,bind $out"
    _run(case, folder, [locked, _command(case, "first")])
    return DiskOutcome(*_read_outcome(folder, "first"), folder / "first")


def _command(case: Case, name: str) -> str:
    """Shell code that runs the command and copies what it leaves."""
    run = f"(cd $out && {shlex.join(case.command)} > /dev/null) 2> {name}.output; echo $? > {name}.code"
    return f"{{ {run}; cp -a $out/. {name}; }}"


def _read_outcome(folder: Path, name: str) -> tuple[int, str]:
    return int((folder / f"{name}.code").read_text()), (folder / f"{name}.output").read_text()


def _run(case: Case, folder: Path, steps: Sequence[str]) -> None:
    for name in ("out", "first", "last"):
        (folder / name).mkdir(parents=True)
    script = f"out={shlex.quote(str(folder / 'out'))} && {' && '.join(steps)}"
    environment = case.environment(folder / "out")
    done = subprocess.run(
        [*IN_NAMESPACE, script], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
