"""Writing a file so that it is either the old one or the new one, whatever happens in between."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import secrets
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from winnow.errors import BadInput

if TYPE_CHECKING:
    import numpy as np

DTYPES = {"bool": "BOOL"} | {
    f"{kind}{bits}": f"{letter}{bits}"
    for kind, letter, sizes in (
        ("float", "F", (16, 32, 64)),
        ("int", "I", (8, 16, 32, 64)),
        ("uint", "U", (8, 16, 32, 64)),
    )
    for bits in sizes
}
"""What safetensors calls the types of arrays."""
TEMPORARY = ".winnow-tmp"
"""Marks a file that is being written."""
SPACE = Path("/proc/self/ns/pid")
HERE = f"{zlib.crc32(f'{socket.gethostname()} {SPACE.readlink() if SPACE.is_symlink() else None}'.encode()):08x}"
"""This machine (or container: they count their own processes) in the name of such a file; the process follows."""


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; it takes the place of `path` when the block ends well.

    Several processes may write the same file: the last one wins. What a killed one has left of it is removed.
    """
    path = Path(path)
    if path.is_dir():
        raise BadInput(f"{path}: is a folder; give the name of a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear(path)
        writer = f"{HERE}-{os.getpid()}-{secrets.token_hex(4)}"
        temporary = path.with_name(f".{path.name}.{writer}{TEMPORARY}{path.suffix}")
        temporary.touch(exist_ok=False)
    except OSError as error:
        raise BadInput(f"{path}: can't be written ({error.strerror}); choose another place") from error
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise BadInput(f"{path}: can't be written ({error.strerror or error}); nothing was changed") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_tensors(path: str | Path, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """A safetensors file, whole or not at all.

    Written array by array: safetensors' own writer would hold all of them a second time, and every other thread up.
    """
    header: dict[str, Any] = {"__metadata__": metadata}
    # The format wants no gaps; with the widest numbers first each array still begins at a multiple of its own width.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    end = 0
    for name in names:
        array, begin = tensors[name], end
        end += array.nbytes
        header[name] = {"dtype": DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": [begin, end]}
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(len(words).to_bytes(8, "little") + words)
        for name in names:
            file.write(tensors[name].astype(tensors[name].dtype.newbyteorder("<"), order="C", copy=False).data)


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def claim(path: Path, record: dict[str, Any], resume: bool, holding: str, note: dict[str, Any] | None = None) -> Any:
    """Write down what a folder is for, or read what it was for when work is taken up again. None where it is new.

    holding: what a folder holds that is not to be overwritten, and how to go on with it
    note: more to write down, which need not agree
    """
    if not path.exists():
        write_text(path, json.dumps(record | (note or {}), indent=1) + "\n")
        return None
    if not resume:
        raise BadInput(f"{path.parent}: already holds {holding} (--resume) or choose another --out")
    return read_json(path, "choose another --out")


def read_json(path: Path, advice: str) -> dict[str, Any]:
    """The JSON object in a file. `advice` ends the message for a file that holds none."""
    try:
        record = parse_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror or error}); {advice}") from error
    except ValueError as error:
        raise BadInput(f"{path}: is not JSON ({error}); {advice}") from error
    if not isinstance(record, dict):
        raise BadInput(f"{path}: must hold a JSON object, got {type(record).__name__}; {advice}")
    return record


def parse_json(text: str | bytes) -> Any:
    """JSON that nobody vouches for: whatever is wrong with it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def is_file_name(name: object) -> bool:
    """Whether this can be the name of a file in a folder, and of nothing outside it, on any system."""
    plain = isinstance(name, str) and name.isprintable() and 0 < len(name.encode()) <= 200
    return plain and not re.match(r"\.|[A-Za-z]:|.*[/\\]", str(name))


LONGEST_STEM_BYTES = 150
"""A longer name is cut, so that a seed, an ending and the mark of an unfinished file still fit in 255 bytes."""


def file_stem(name: str) -> str:
    """A dataset's or run's name as the beginning of a file's name. A name that can be one stays as it is.

    Examples:
        >>> file_stem("hopper-random-expert-5%"), file_stem("mujoco/hopper/expert-v0")
        ('hopper-random-expert-5%', 'mujoco-hopper-expert-v0')
    """
    stem = re.sub(r"[/\\]", "-", name)
    stem = re.sub(r"^\.|^([A-Za-z]):", r"\1-", stem)
    if len(stem.encode()) > LONGEST_STEM_BYTES:
        short = stem.encode()[: LONGEST_STEM_BYTES - 9].decode(errors="ignore")
        stem = f"{short}-{zlib.crc32(name.encode()):08x}"
    return stem


def _clear(path: Path) -> None:
    """Remove what dead processes of this machine have left of a file."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.{HERE}-*{TEMPORARY}*"):
        writer = left.name.removeprefix(f".{path.name}.{HERE}-").partition("-")[0]
        if writer.isdigit() and not runs(int(writer)):
            left.unlink(missing_ok=True)


def runs(process: int) -> bool:
    """Whether a process of this machine is there; yes, where that can't be asked."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def sweep(folder: Path) -> None:
    """Remove what a killed process was writing in a folder that is ours alone."""
    for left in folder.glob(f".*{TEMPORARY}*"):
        left.unlink(missing_ok=True)
