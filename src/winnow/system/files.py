"""Atomic files: after a crash a file is either the old one or the new one. Also JSON parsing and folder claims."""

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
"""NumPy's names of array types, and safetensors' names of them."""
TEMPORARY = ".winnow-tmp"
"""Part of the name of a file that is being written."""
PID_NAMESPACE = Path("/proc/self/ns/pid")
_NAMESPACE = PID_NAMESPACE.readlink() if PID_NAMESPACE.is_symlink() else None
MACHINE = f"{zlib.crc32(f'{socket.gethostname()} {_NAMESPACE}'.encode()):08x}"
"""Identifies this machine, or this container, which numbers its own processes. Stands in the name of a temporary file,
before the process's number."""


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yields a temporary file beside `path` to write to; it replaces `path` if the block ends without an error.

    Several processes may write the same file: the last one wins. Temporary files of killed processes are removed.
    """
    path = Path(path)
    if path.is_dir():
        raise BadInput(f"{path}: is a folder; give the name of a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(path)
        writer = f"{MACHINE}-{os.getpid()}-{secrets.token_hex(4)}"
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
    """Write a safetensors file atomically.

    Written array by array: safetensors' own writer would copy all arrays first and block every other thread.
    """
    header: dict[str, Any] = {"__metadata__": metadata}
    # The format allows no gaps. Sorted by item size, largest first, each array still begins at a multiple of its own.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    end = 0
    for name in names:
        array = tensors[name]
        begin = end
        end += array.nbytes
        header[name] = {"dtype": DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": [begin, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for name in names:
            file.write(tensors[name].astype(tensors[name].dtype.newbyteorder("<"), order="C", copy=False).data)


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def claim(path: Path, record: dict[str, Any], resume: bool, holding: str, note: dict[str, Any] | None = None) -> Any:
    """Write a folder's config file and return None; with `resume`, return the config that it already has.

    holding: for the error message: what must not be overwritten, and how to continue with it
    note: more to write, which the caller does not compare
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
    """Parse untrusted JSON. Anything wrong with it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def is_file_name(name: object) -> bool:
    """Whether this can be the name of a file, without a path to another folder, on any system."""
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


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of this path whose process on this machine has ended."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.{MACHINE}-*{TEMPORARY}*"):
        writer = left.name.removeprefix(f".{path.name}.{MACHINE}-").partition("-")[0]
        if writer.isdigit() and not is_running(int(writer)):
            left.unlink(missing_ok=True)


def is_running(process: int) -> bool:
    """Whether a process of this machine is running. True where the system can't tell."""
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
    """Remove all temporary files in a folder. Only for a folder that no other process writes to."""
    for left in folder.glob(f".*{TEMPORARY}*"):
        left.unlink(missing_ok=True)
