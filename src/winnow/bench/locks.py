"""Locks between processes, as files that say who holds them.

The operating system lets go of a lock when its process ends, however that happens: nobody waits for the dead. On a file
system without such locks the file's own words must do: a lock counts as held while its process runs on this machine,
and always if it was taken on another one.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from winnow.errors import BadInput


class Taken(BadInput):
    """Another process holds the lock."""


@contextlib.contextmanager
def locked(path: Path, wait: bool = False) -> Iterator[None]:
    """Hold a lock while the block runs. If another process holds it: wait, or an error that names that process."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: can't be written ({error.strerror}); choose another place") from error
    with file:
        if not _held(file, wait):
            raise Taken(f"{path.parent}: {_words(_owner(file))} is at work there; wait for it, or end it")
        _write(file, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}))
        try:
            yield
        finally:
            _write(file, "")


def is_held(path: Path) -> bool:
    """Whether another process holds the lock."""
    try:
        with locked(path):
            return False
    except Taken:
        return True


def _held(file: IO[str], wait: bool) -> bool:
    """Try to take the lock."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return True
    except ImportError:  # Windows has none
        return True
    except BlockingIOError:
        return False
    except OSError:  # this file system has none
        while runs := _runs(_owner(file)):
            if not wait:
                break
            time.sleep(1.0)
        return not runs


def _owner(file: IO[str]) -> dict[str, object]:
    file.seek(0)
    try:
        said = json.loads(file.read())
        return said if isinstance(said, dict) else {}
    except ValueError:
        return {}


def _runs(owner: dict[str, object]) -> bool:
    if not owner:
        return False
    pid = owner.get("pid")
    if owner.get("host") != socket.gethostname() or not isinstance(pid, int):
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return pid != os.getpid()


def _words(owner: dict[str, object]) -> str:
    return f"process {owner['pid']} on {owner.get('host')}" if owner.get("pid") else "another process"


def _write(file: IO[str], text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()
