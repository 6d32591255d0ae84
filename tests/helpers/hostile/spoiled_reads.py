"""Gives corrupted files to winnow's readers, in a child process with limited memory and limited time per file.

A reader may read the file or raise a `BadInput` that names it. Anything else is a defect: another exception, a crash,
more than SECONDS of time or MEMORY bytes, or a half-written file that is left behind. Kind, seed and number identify an
input and are enough to make it again.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2]
SECONDS = 60.0
"""Limit for one input. The slowest good file takes 0.1 s; the rest allows for a busy machine."""
MEMORY = 3 << 30
"""Bytes that a child process may allocate, jax and all other libraries included."""
GROWTH = 1 << 30
"""Bytes that all inputs of a child together may add to its memory."""


@dataclass
class Tally:
    """Counts of the inputs of one kind, and their defects."""

    kind: str
    tried: int = 0
    refused: int = 0
    read: int = 0
    defects: list[dict[str, Any]] = field(default_factory=list)

    def __iadd__(self, other: Tally) -> Tally:
        self.tried, self.refused, self.read = (
            getattr(self, name) + getattr(other, name) for name in ("tried", "refused", "read")
        )
        self.defects = self.defects + other.defects
        return self


def spoil(kind: str, seed: int, number: int, goods: list[tuple[Path, bytes]]) -> tuple[Path, bytes]:
    """The input with this number: the good file that it replaces, and its bytes."""
    from helpers.hostile.corpus import KINDS
    from helpers.hostile.mutations import spoiled

    dice = random.Random(f"{kind} {seed} {number}")
    path, good = dice.choice(goods)
    warp = KINDS[kind].warp
    return path, warp(good, dice) if warp and dice.random() < 0.7 else spoiled(good, dice)


def answer(kind: str, path: Path, raw: bytes) -> str | None:
    """Give the input to its reader. Returns None if it was read or the refusal; raises an exception for a defect."""
    from helpers.hostile.corpus import KINDS, renamed

    from winnow.errors import BadInput

    path.write_bytes(raw)
    path = renamed(path) if kind == "result" else path
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            output = "\n".join(KINDS[kind].read(path))
        refusal = output if path.name in output else None
    except BadInput as error:
        refusal = str(error)
        names = (path.name, str(path.parent), str(path.parent.parent))  # Minari's datasets are folders
        assert any(name in refusal for name in names), f"the refusal does not name the file: {refusal}"
    finally:
        left = [path.name for path in path.parent.rglob("*") if ".winnow-tmp" in path.name]
        assert not left, f"was left half-written: {left}"
    return refusal


def child(job: dict[str, Any]) -> None:
    """Try inputs one after another and print the outcome of each at once."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    for number, (kind, first) in enumerate(job["left"]):
        _print_line(kind=kind)
        _inputs(kind, first, job, Path(job["folder"]) / str(number))
    _print_line(done=True)


def _inputs(kind: str, first: int, job: dict[str, Any], folder: Path) -> None:
    from helpers.hostile.corpus import KINDS

    good = folder / "good"
    work = folder / "work"
    for each in (good, work):
        each.mkdir(parents=True)
    goods = [(path.relative_to(good), path.read_bytes()) for path in KINDS[kind].make(good)]
    if any(answer(kind, path, path.read_bytes()) for path in KINDS[kind].make(work)):
        raise SystemExit(f"{kind}: a good file is refused")
    shutil.rmtree(work)
    shutil.copytree(good, work)
    before = _peak()
    whole = _files(good)
    for number in range(first, job["count"]):
        if time.monotonic() > job["until"]:
            break
        path, raw = spoil(kind, job["seed"], number, goods)
        _restore(work, good, whole)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            refused = answer(kind, work / path, raw)
            line: dict[str, Any] = {"refused": refused is not None}
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)
            inside = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in where if "winnow" in frame.filename]
            line = {"defect": f"{type(error).__name__}: {error}"[:300], "where": inside[-3:]}
        faulthandler.cancel_dump_traceback_later()
        if _peak() - before > GROWTH:
            line = {"defect": f"took {_peak() - before:,} bytes", "where": []}
            before = _peak()
        _print_line(number=number, **line)


def _files(folder: Path) -> set[str]:
    return {os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names}


def _restore(work: Path, good: Path, whole: set[str]) -> None:
    """Restore the folder to its state before the last input: all of it if files came or went, else changed files."""
    if _files(work) != whole:
        shutil.rmtree(work)
        shutil.copytree(good, work)
    for name in whole:
        if os.stat(work / name).st_mtime_ns != os.stat(good / name).st_mtime_ns:
            shutil.copy2(good / name, work / name)


def _print_line(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def tried(kinds: Sequence[str], seed: int, count: int, seconds: float = 600.0) -> list[Tally]:
    """Try `count` inputs of each kind, or fewer if time runs out. A child that dies is replaced."""
    until = time.monotonic() + seconds  # the same clock for all processes of a machine
    tallies = {kind: Tally(kind) for kind in kinds}
    left = [(kind, 0) for kind in kinds]
    while left:
        with tempfile.TemporaryDirectory(prefix="winnow-hostile-") as folder:
            left = _one_child(tallies, left, {"seed": seed, "count": count, "until": until, "folder": folder})
    return list(tallies.values())


def _one_child(tallies: dict[str, Tally], left: list[tuple[str, int]], job: dict[str, Any]) -> list[tuple[str, int]]:
    """Run a child until it ends. Returns what is left for the next one: (kind, first input)."""
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(Path(__file__)), json.dumps(job | {"left": left})],
        env=os.environ | {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", "WINNOW_DATA": job["folder"]},
        capture_output=True,
        text=True,
        check=False,
    )
    tally = None
    number = 0
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for line in lines:
        if "kind" in line:
            tally = tallies[line["kind"]]
            number = dict(left)[line["kind"]]
        elif tally and "number" in line:
            number = line["number"] + 1
            tally.tried += 1
            tally.refused += line.get("refused") is True
            tally.read += line.get("refused") is False
            if "defect" in line:
                tally.defects.append({"seed": job["seed"], **line})
    if lines and "done" in lines[-1]:
        return []
    late = "Timeout" in done.stderr
    fallen = done.returncode < 0
    if not tally or not (late or fallen):
        raise RuntimeError(f"the child did not start: {done.stderr}")
    why = "took too long" if late else f"died of signal {-done.returncode}"
    tally.tried += 1
    tally.defects.append({"seed": job["seed"], "number": number, "defect": why, "where": done.stderr.splitlines()[-9:]})
    after = [kind for kind, _ in left].index(tally.kind)
    return [(tally.kind, number + 1), *left[after + 1 :]]


def distinct(tally: Tally) -> Counter[str]:
    """Defects by what was raised and where."""
    return Counter(f"{defect['defect'][:90]} at {defect['where'][-1:]}" for defect in tally.defects)


if __name__ == "__main__":
    child(json.loads(sys.argv[1]))
