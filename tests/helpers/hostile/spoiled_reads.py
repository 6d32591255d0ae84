"""Spoiled files given to winnow's readers, in a child process with little memory and little time for each of them.

A good answer is what the file holds, or a `BadInput` that names the file. Anything else is a defect: another exception,
a process that dies, a reader that takes more than SECONDS or more than MEMORY, a file that was left half-written.
An input is known by its kind, its seed and its number, and made again from these alone.
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
"""For one input. The slowest good file takes a tenth of a second; a busy machine is no defect."""
MEMORY = 3 << 30
"""Bytes that a child may ask the system for, with jax and all other libraries."""
GROWTH = 1 << 30
"""Bytes that all inputs of a child together may add to what it holds."""


@dataclass
class Tally:
    """What became of the inputs of one kind."""

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
    """The input with this number: which of the good files it takes the place of, and its bytes."""
    from helpers.hostile.corpus import KINDS
    from helpers.hostile.mutations import spoiled

    dice = random.Random(f"{kind} {seed} {number}")
    place, good = dice.choice(goods)
    warp = KINDS[kind].warp
    return place, warp(good, dice) if warp and dice.random() < 0.7 else spoiled(good, dice)


def answer(kind: str, place: Path, raw: bytes) -> str | None:
    """Give the input to its reader: None if it was read, why it was refused, or an exception for a defect."""
    from helpers.hostile.corpus import KINDS, renamed

    from winnow.errors import BadInput

    place.write_bytes(raw)
    place = renamed(place) if kind == "result" else place
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            said = "\n".join(KINDS[kind].read(place))
        refusal = said if place.name in said else None
    except BadInput as error:
        refusal = str(error)
        names = (place.name, str(place.parent), str(place.parent.parent))  # Minari's datasets are folders
        assert any(name in refusal for name in names), f"the refusal does not name the file: {refusal}"
    finally:
        left = [path.name for path in place.parent.rglob("*") if ".winnow-tmp" in path.name]
        assert not left, f"was left half-written: {left}"
    return refusal


def child(job: dict[str, Any]) -> None:
    """Try inputs one after another, and print what became of each as it happens."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    for place, (kind, first) in enumerate(job["left"]):
        _say(kind=kind)
        _inputs(kind, first, job, Path(job["folder"]) / str(place))
    _say(done=True)


def _inputs(kind: str, first: int, job: dict[str, Any], folder: Path) -> None:
    from helpers.hostile.corpus import KINDS

    good, work = folder / "good", folder / "work"
    for each in (good, work):
        each.mkdir(parents=True)
    goods = [(path.relative_to(good), path.read_bytes()) for path in KINDS[kind].make(good)]
    if any(answer(kind, path, path.read_bytes()) for path in KINDS[kind].make(work)):
        raise SystemExit(f"{kind}: a good file is refused")
    shutil.rmtree(work)
    shutil.copytree(good, work)
    before, whole = _peak(), _files(good)
    for number in range(first, job["count"]):
        if time.monotonic() > job["until"]:
            break
        place, raw = spoil(kind, job["seed"], number, goods)
        _restore(work, good, whole)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            refused = answer(kind, work / place, raw)
            line: dict[str, Any] = {"refused": refused is not None}
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)
            inside = [f"{Path(one.filename).name}:{one.lineno}" for one in where if "winnow" in one.filename]
            line = {"defect": f"{type(error).__name__}: {error}"[:300], "where": inside[-3:]}
        faulthandler.cancel_dump_traceback_later()
        if _peak() - before > GROWTH:
            line, before = {"defect": f"took {_peak() - before:,} bytes", "where": []}, _peak()
        _say(number=number, **line)


def _files(folder: Path) -> set[str]:
    return {os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names}


def _restore(work: Path, good: Path, whole: set[str]) -> None:
    """Make the folder what it was before the last input. Where no file came or went, only that input's is another."""
    if _files(work) != whole:
        shutil.rmtree(work)
        shutil.copytree(good, work)
    for name in whole:
        if os.stat(work / name).st_mtime_ns != os.stat(good / name).st_mtime_ns:
            shutil.copy2(good / name, work / name)


def _say(**words: Any) -> None:
    print(json.dumps(words), flush=True)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def tried(kinds: Sequence[str], seed: int, count: int, seconds: float = 600.0) -> list[Tally]:
    """So many inputs of each kind, or as many as there is time for. A child that dies is replaced by another."""
    until = time.monotonic() + seconds  # the same clock for all processes of a machine
    tallies = {kind: Tally(kind) for kind in kinds}
    left = [(kind, 0) for kind in kinds]
    while left:
        with tempfile.TemporaryDirectory(prefix="winnow-hostile-") as folder:
            left = _one_child(tallies, left, {"seed": seed, "count": count, "until": until, "folder": folder})
    return list(tallies.values())


def _one_child(tallies: dict[str, Tally], left: list[tuple[str, int]], job: dict[str, Any]) -> list[tuple[str, int]]:
    """Run a child until it is done or dead. What is left for the next: kinds, and their first input."""
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(Path(__file__)), json.dumps(job | {"left": left})],
        env=os.environ | {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", "WINNOW_DATA": job["folder"]},
        capture_output=True,
        text=True,
        check=False,
    )
    tally, number, lines = None, 0, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for line in lines:
        if "kind" in line:
            tally, number = tallies[line["kind"]], dict(left)[line["kind"]]
        elif tally and "number" in line:
            number = line["number"] + 1
            tally.tried += 1
            tally.refused += line.get("refused") is True
            tally.read += line.get("refused") is False
            if "defect" in line:
                tally.defects.append({"seed": job["seed"], **line})
    if lines and "done" in lines[-1]:
        return []
    late, fallen = "Timeout" in done.stderr, done.returncode < 0
    if not tally or not (late or fallen):
        raise RuntimeError(f"the child did not start: {done.stderr}")
    why = "took too long" if late else f"died of signal {-done.returncode}"
    tally.tried += 1
    tally.defects.append({"seed": job["seed"], "number": number, "defect": why, "where": done.stderr.splitlines()[-9:]})
    after = [kind for kind, _ in left].index(tally.kind)
    return [(tally.kind, number + 1), *left[after + 1 :]]


def distinct(tally: Tally) -> Counter[str]:
    """Defects by what was raised and where."""
    return Counter(f"{one['defect'][:90]} at {one['where'][-1:]}" for one in tally.defects)


if __name__ == "__main__":
    child(json.loads(sys.argv[1]))
