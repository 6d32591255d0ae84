"""Results: one small file for each finished run, named after a hash of its settings, with a checksum.

DIR/results/ID.json    a run: its settings, where it was computed, raw returns, metrics, and a checksum of all that
DIR/set-aside/         files from results/ that are not results: damaged, foreign, or of another format
DIR.jsonl.gz           finished runs in one file, a line each (`winnow.bench.packed` writes it)

A file's name is the hash of the settings in it. So results of several machines are merged by copying, and a run is done
if and only if its file or its line exists. Nothing here knows how a run is trained.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from winnow.bench.plan import canonical, digest
from winnow.errors import BadInput
from winnow.system.files import parse_json, write_text

FORMAT = "winnow-result-1"
POINTS = 20
"""Number of points kept of each metric's curve."""
PACKED = ".jsonl.gz"
"""How the name of a packed file ends."""
LONGEST_LINE_BYTES = 2**26
"""No result is nearly as long: a small file can unpack to more than there is memory."""


@dataclass(frozen=True)
class Result:
    """A finished run. Everything in it is plain JSON."""

    id: str
    name: str
    method: str
    swept: dict[str, Any]
    """Settings that a sweep has changed, as `family.field`."""
    config: dict[str, Any]
    """Everything that decides the result; `id` is its hash."""
    dataset: dict[str, Any]
    """Rows, episodes and fingerprint of the data it was trained on."""
    made_with: dict[str, str]
    """Versions of winnow and jax, the kind of device, and the physics it was played in."""
    steps: int
    """Updates that it was trained for: fewer than requested if it failed."""
    failure: str | None
    rounds: list[dict[str, Any]]
    """Step, number (None on the curve), raw returns, lengths and score of each round of evaluation."""
    score: float | None
    """The mean normalised score of the last rounds."""
    metrics: dict[str, list[float]]
    """A column for each metric, and `step`."""
    shares: dict[str, float]
    """The fraction of a batch's weight on each source at the end of training, averaged over batches."""
    seconds: float
    """The time that its pack took in the call that finished it, divided by the runs of the pack."""
    command: str = ""
    """The command that finished it; empty if it was planned from Python."""
    warnings: list[str] = dataclasses.field(default_factory=list)
    """Alarms that were raised while it trained (`winnow.training.alarms`)."""

    @property
    def finished(self) -> bool:
        """Whether it was trained and played to the end."""
        return self.failure is None

    def text(self) -> str:
        """The file's content."""
        record = {"format": FORMAT} | dataclasses.asdict(self)
        return canonical(record | {"sha256": _sum(record)}) + "\n"

    def save(self, folder: Path) -> Path:
        path = file_of(folder, self.id)
        write_text(path, self.text())
        return path


def file_of(folder: Path, identity: str) -> Path:
    return folder / "results" / f"{identity}.json"


def packed_of(folder: Path) -> Path:
    """The packed file of a folder. It may be given in the folder's place."""
    if folder.name.endswith(PACKED):
        return folder
    folder = folder if folder.name not in ("", "..") else folder.resolve()
    return folder.parent / f"{folder.name}{PACKED}"


def _sum(record: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(record).encode()).hexdigest()


def load(path: Path) -> Result:
    """The result in a file; an error if it is cut short, was not written by winnow, or does not match its name."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror}); check the name") from error
    result = _parse(text, str(path))
    if result.id != path.stem:
        raise BadInput(
            f"{path}: its name must be the hash of its settings, {result.id}; rename it if nothing else is wrong"
        )
    return result


def _parse(text: bytes, where: str) -> Result:
    """The result in a file or in a line."""
    try:
        record = parse_json(text)
    except ValueError as error:
        raise BadInput(f"{where}: is damaged or cut short ({error})") from error
    if not isinstance(record, dict) or record.pop("format", None) != FORMAT:
        raise BadInput(f"{where}: is not a result that this version of winnow wrote")
    try:
        if record.pop("sha256", None) != _sum({"format": FORMAT} | record):
            raise BadInput(f"{where}: is damaged (its checksum is wrong)")
        result = Result(**record)
        _check(record)
    except (TypeError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{where}: is not a complete result ({error})") from error
    if result.id != digest(result.config):
        raise BadInput(f"{where}: its id must be the hash of its settings, {digest(result.config)}, got {result.id}")
    return result


def read_packed(path: Path) -> Iterator[tuple[Result, bytes]]:
    """The results in a packed file, each with its line; an error at the first bad line."""
    number = 0
    try:
        with gzip.open(path) as file:
            while line := file.readline(LONGEST_LINE_BYTES):
                number += 1
                yield _parse(line, f"{path}, line {number}"), line
    except BadInput as error:
        raise BadInput(f"{error}; copy the packed file again, or remove the line") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(
            f"{path}: must be a whole gzip file, got one that is damaged or cut short after line {number} ({error}); "
            "copy it again"
        ) from error
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror}); check the name") from error
    if not number:
        raise BadInput(f"{path}: must hold a result in each line, got an empty file; copy it again")


KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("id", "name", "method", "command"), str),
    **dict.fromkeys(("swept", "config", "dataset", "made_with", "metrics", "shares"), dict),
    "steps": int,
    "failure": (str, type(None)),
    **dict.fromkeys(("rounds", "warnings"), list),
    "score": (int, float, type(None)),
    "seconds": (int, float),
}


def _check(record: dict[str, Any]) -> None:
    """Refuse a result whose fields have another type, or can't be printed."""
    for name, value in record.items():
        if not isinstance(value, KINDS[name]) or isinstance(value, bool):
            raise ValueError(f"{name} is {str(value)[:60]!r}")
    for name in ("name", "method"):
        if not record[name].isprintable():
            raise ValueError(f"{name} can't be printed")
    json.dumps(record, ensure_ascii=False).encode()  # refuses lone surrogates


def collect(folder: Path, say: Callable[[str], None], *, move: bool = True) -> Iterator[Result]:
    """All good results of a folder and of its packed file; if both have a run, the folder's.

    `say` gets a line for each file of the folder that is not a result, and the file is moved to DIR/set-aside. A bad
    line in the packed file is an error.
    """
    known: set[str] = set()
    for path in loose_files(folder):
        try:
            result = load(path)
        except BadInput as error:
            say(f"{error}; {set_aside(path, folder) if move else 'it does not count'}")
        else:
            known.add(result.id)
            yield result
    for result, _ in read_packed(packed) if (packed := packed_of(folder)).exists() else ():
        if result.id not in known:
            known.add(result.id)
            yield result


def loose_files(folder: Path) -> list[Path]:
    """The files in a folder that should be results, without files that are being written."""
    return sorted(path for path in (folder / "results").glob("*") if not path.name.startswith("."))


def set_aside(path: Path, folder: Path) -> str:
    """Move a file out of the way, without replacing another one there. Returns where it went."""
    target = folder / "set-aside" / path.name
    number = 1
    while target.exists():
        number += 1
        target = target.with_name(f"{path.name}.{number}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    except FileNotFoundError:
        return "another process has moved it"
    except OSError as error:
        raise BadInput(f"{path}: is not a result and can't be moved ({error.strerror}); remove it") from error
    return f"moved to {target}"


def thinned(lines: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """A run's lines of metrics as columns: at most POINTS lines, evenly spaced, the last one included."""
    good = [line for line in lines if "failed" not in line]
    count = min(POINTS, len(good))
    kept = [good[-(-len(good) * number // count) - 1] for number in range(1, count + 1)]
    names = ["step", *(name for name in (kept[0] if kept else {}) if all(name in line for line in kept))]
    names = [name for name in dict.fromkeys(names) if name != "run"]
    return {name: [line[name] for line in kept] for name in names}
