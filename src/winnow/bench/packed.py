"""A grid's results as one compressed file: DIR.jsonl.gz holds what DIR/results held.

A line is the JSON of a run's file, and lines are in the order of ids: the same runs give the same bytes.
"""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path

from winnow.bench.plan import canonical
from winnow.bench.results import load, loose_files, packed_of, read_packed
from winnow.bench.run_local import alone
from winnow.errors import BadInput
from winnow.system.files import parse_json, replacing, sweep


def pack(folder: Path, *, keep: bool = False) -> int:
    """Add a folder's results to its packed file, and remove the loose files unless `keep`. Returns the number of runs
    in the packed file."""
    if not loose_files(folder):
        raise BadInput(f"{folder}: must hold results to pack, got none; `winnow bench run --out {folder}` writes them")
    path = packed_of(folder)
    with alone(folder, 1, 1):
        sweep(folder / "results")
        files = loose_files(folder)
        lines = {result.id: line for result, line in read_packed(path)} if path.exists() else {}
        lines |= {file.stem: _line(file) for file in files}
        _write(path, lines)
        if not keep:
            _remove(folder, files)
    return len(lines)


def _line(file: Path) -> bytes:
    """A result file's content as one line, however the file was formatted."""
    try:
        load(file)
    except BadInput as error:
        raise BadInput(f"{error}; move it out of the folder, then pack again") from error
    return f"{canonical(parse_json(file.read_bytes()))}\n".encode()


def _write(path: Path, lines: Mapping[str, bytes]) -> None:
    with replacing(path) as temporary:
        with temporary.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
            for identity in sorted(lines):
                file.write(lines[identity])
        if {result.id: line for result, line in read_packed(temporary)} != lines:
            raise BadInput(f"{path}: must read back as it was written, got other content; check the disk")


def _remove(folder: Path, files: Sequence[Path]) -> None:
    """Remove result files, the locks, and every folder that is then empty. The lock that this process holds goes
    last."""
    for file in files:
        file.unlink()
    for lock in sorted((folder / "locks").glob("*.lock"), key=lambda path: path.name == "1-of-1.lock"):
        lock.unlink()
    for empty in (folder / "results", folder / "work", folder / "locks", folder):
        with contextlib.suppress(OSError):  # it is not there, or something is in it
            empty.rmdir()
