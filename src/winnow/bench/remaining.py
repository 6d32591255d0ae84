"""What is missing of a plan: runs without a result, and packs that were begun.

DIR/work/HASH/pack.json    the runs of a pack that is not finished; its checkpoints and metrics lie beside it
DIR/work/HASH/pack.lock    held by who does the pack, until its results are written

A pack's folder is named after its runs and their order, and goes when all of them have results.
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
    """A pack's lock. The training of the pack has its own in the same folder."""
    return work / "pack.lock"


def _listed(pack: Sequence[Planned]) -> list[list[str]]:
    return [[run.id, run.name] for run in pack]


def begin(work: Path, pack: Sequence[Planned]) -> None:
    """Say which runs a folder belongs to."""
    write_text(work / "pack.json", json.dumps(_stamp() | {"runs": _listed(pack)}))


def _stamp() -> dict[str, str]:
    """Who can go on with a pack."""
    return {"winnow": __version__, "training": training.FORMAT}


@dataclass(frozen=True)
class Todo:
    """What is missing of a plan."""

    begun: list[list[Planned]]
    """Packs that were interrupted: they go on as they are."""
    new: list[list[Planned]]
    done: int
    """Runs of the plan that have results."""

    @property
    def packs(self) -> list[list[Planned]]:
        return self.begun + self.new

    @property
    def runs(self) -> list[Planned]:
        return [run for pack in self.packs for run in pack]

    def spread(self, places: int) -> list[list[Planned]]:
        """The new packs, the longest of them halved until there is a pack for every place."""
        new = list(self.new)
        while len(self.begun) + len(new) < places and (longest := max(new, key=len, default=[]))[1:]:
            new[new.index(longest) : new.index(longest) + 1] = cut(longest, 2)
        return new


def todo(packs: Sequence[Sequence[Planned]], folder: Path, done: Set[str]) -> Todo:
    """What is left to do of these packs, where these runs have results."""
    wanted = {run.id: run for pack in packs for run in pack}
    left = wanted.keys() - done
    begun: list[list[Planned]] = []
    for path in sorted((folder / "work").glob("*/")):
        ids = _begun(path)
        pack = [wanted[identity] for identity in ids if identity in wanted]
        # A pack goes on as it is if all that it lacks is wanted, and is not in another pack that goes on.
        if ids and work_of(folder, pack) == path and ids - done and ids - done <= left and not is_held(lock_of(path)):
            begun.append(pack)
            left -= ids
    new = [[run for run in pack if run.id in left] for pack in packs]
    return Todo(begun, [pack for pack in new if pack], len(wanted.keys() & done))


def _begun(work: Path) -> Set[str]:
    """The runs of a pack that was begun, in order; none where this version of winnow can't go on with it."""
    try:
        record = read_json(work / "pack.json", "it is trained again")
        return dict(record.pop("runs")).keys() if _stamp().items() <= record.items() else set()
    except (ValueError, KeyError, TypeError):
        return set()


def tidy(folder: Path, done: Set[str]) -> None:
    """Remove what finished packs have left, and packs that can't go on."""
    for path in (folder / "work").glob("*/"):
        if _begun(path) <= done and not is_held(lock_of(path)):
            shutil.rmtree(path, ignore_errors=True)
