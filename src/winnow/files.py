"""Writing a file so that it is either the old one or the new one, whatever happens in between."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from winnow.errors import BadInput

if TYPE_CHECKING:
    import numpy as np

TEMPORARY = ".winnow-tmp"
"""Marks a file that is being written."""


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; it takes the place of `path` when the block ends well."""
    path = Path(path)
    if path.is_dir():
        raise BadInput(f"{path}: is a folder; give the name of a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=TEMPORARY + path.suffix, dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise BadInput(f"{path}: can't be written ({error.strerror}); choose another place") from error
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)  # a temporary file is the user's alone; what replaces it need not be
        temporary.replace(path)
    except OSError as error:
        raise BadInput(f"{path}: can't be written ({error.strerror or error}); nothing was changed") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_tensors(path: str | Path, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """A safetensors file, whole or not at all."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, metadata)
        except SafetensorError as error:  # a full disk, in words of its own
            raise OSError(str(error)) from error


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sweep(folder: Path) -> None:
    """Remove what a killed process was writing in a folder that is ours alone."""
    for left in folder.glob(f".*{TEMPORARY}*"):
        left.unlink(missing_ok=True)
