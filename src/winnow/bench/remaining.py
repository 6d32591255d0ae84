"""What is missing of a plan: runs without a result, and packs that were begun.

DIR/work/HASH/pack.json    the runs of a pack that is not finished; its checkpoints and metrics lie beside it
DIR/work/HASH/pack.lock    held by the process that trains the pack, until its results are written

A pack's folder is named after its runs and their order, and is removed when all of them have results.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from winnow import __version__, training
from winnow.bench.plan import Planned, cut, digest
from winnow.system.files import read_json, write_text
from winnow.system.locks import is_held


def work_of(folder: Path, pack: Sequence[Planned]) -> Path:
    return folder / "work" / digest(_listed(pack))


def lock_of(work: Path) -> Path:
    """A pack's lock. Training has another lock in the same folder."""
    return work / "pack.lock"


def _listed(pack: Sequence[Planned]) -> list[list[str]]:
    return [[run.id, run.name] for run in pack]


def begin(work: Path, pack: Sequence[Planned]) -> None:
    """Write down which runs a folder belongs to."""
    write_text(work / "pack.json", json.dumps(_stamp() | {"runs": _listed(pack)}))


def _stamp() -> dict[str, str]:
    """The versions that can continue a pack."""
    return {"winnow": __version__, "training": training.FORMAT}


@dataclass(frozen=True)
class Todo:
    """What is missing of a plan."""

    begun: list[list[Planned]]
    """Packs that were interrupted: they continue with the same runs."""
    new: list[list[Planned]]
    done: int
    """Runs of the plan that have results."""

    @property
    def packs(self) -> list[list[Planned]]:
        return self.begun + self.new

    @property
    def runs(self) -> list[Planned]:
        return [run for pack in self.packs for run in pack]

    def spread(self, devices: int) -> list[list[Planned]]:
        """The new packs, the largest of them halved until there is a pack for every device."""
        new = list(self.new)
        while len(self.begun) + len(new) < devices and (largest := max(new, key=len, default=[]))[1:]:
            new[new.index(largest) : new.index(largest) + 1] = cut(largest, 2)
        return new


def todo(packs: Sequence[Sequence[Planned]], folder: Path, done: Set[str]) -> Todo:
    """What is left to do of these packs, where these runs have results."""
    wanted = {run.id: run for pack in packs for run in pack}
    left = wanted.keys() - done
    begun: list[list[Planned]] = []
    for path in sorted((folder / "work").glob("*/")):
        ids = _begun(path)
        pack = [wanted[identity] for identity in ids if identity in wanted]
        # A pack continues if all its missing runs are wanted, and none of them is in another pack that continues.
        if ids and work_of(folder, pack) == path and ids - done and ids - done <= left and not is_held(lock_of(path)):
            begun.append(pack)
            left -= ids
    new = [[run for run in pack if run.id in left] for pack in packs]
    return Todo(begun, [pack for pack in new if pack], len(wanted.keys() & done))


def _begun(work: Path) -> Set[str]:
    """The runs of a pack that was begun, in order; none if this version of winnow can't continue it."""
    try:
        record = read_json(work / "pack.json", "it is trained again")
        return dict(record.pop("runs")).keys() if _stamp().items() <= record.items() else set()
    except (ValueError, KeyError, TypeError):
        return set()


def tidy(folder: Path, done: Set[str]) -> None:
    """Remove what finished packs have left, and packs that can't continue."""
    for path in (folder / "work").glob("*/"):
        if _begun(path) <= done and not is_held(lock_of(path)):
            shutil.rmtree(path, ignore_errors=True)
