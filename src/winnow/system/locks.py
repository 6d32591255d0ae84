"""Locks between processes, as files that say who holds them.

The operating system lets go of a lock when its process ends, however that happens: nobody waits for the dead. On a file
system without such locks the file's own words must do: a lock counts as held while its process runs on this machine,
and always if it was taken on another one. No clock has a say in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from winnow.errors import BadInput
from winnow.system.files import parse_json, runs

LOOK = 0.01
"""Seconds between two tries to take a lock that nobody says is theirs: somebody may only be looking at it."""
SETTLE = 0.2
"""Seconds after which such a lock is left alone, and after which of several who wrote their names one has won."""


class Taken(BadInput):
    """Another process holds the lock."""


@contextlib.contextmanager
def locked(path: Path, wait: bool = False) -> Iterator[None]:
    """Hold a lock while the block runs. If another process holds it: wait, or an error that names that process."""
    with _taken(path, wait) as file:
        try:
            yield
        finally:
            _write(file, b"")


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder while the block runs. A new one in which nothing was written goes again."""
    new, lock = not folder.exists(), folder / "lock"
    with locked(lock):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if new and list(folder.iterdir()) == [lock]:
                    lock.unlink()
                    folder.rmdir()


@contextlib.contextmanager
def in_turn(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock while the block runs. If another process holds it, say so and wait."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(path))
        except Taken as error:
            say(f"waiting: {error}")
            stack.enter_context(locked(path, wait=True))
        yield


def is_held(path: Path) -> bool:
    """Whether another process holds the lock. Looking keeps nobody from taking it."""
    try:
        with path.open("rb", buffering=0) as file:
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
            except BlockingIOError:
                return True
            except OSError:  # this file system has none
                return _runs(_owner(file))
    except (FileNotFoundError, ImportError):  # Windows has none
        return False


def _taken(path: Path, wait: bool) -> IO[bytes]:
    """The lock's file, held and signed."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab+", buffering=0)
        except OSError as error:
            raise BadInput(f"{path}: can't be written ({error.strerror}); choose another place") from error
        try:
            if not _held(file, wait):
                raise Taken(f"{path.parent}: {_words(_owner(file))} is at work there; wait for it, or end it")
            if _is(file, path):
                _write(file, json.dumps(_me()).encode())
                return file
            file.close()  # it was removed while we waited: the lock is another file by now
        except OSError as error:
            file.close()
            raise BadInput(f"{path}: can't be written ({error.strerror}); nothing was changed") from error
        except BaseException:
            file.close()
            raise


def _is(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _held(file: IO[bytes], wait: bool) -> bool:
    """Try to take the lock."""
    try:
        import fcntl
    except ImportError:  # Windows has none
        return True
    until = time.monotonic() + SETTLE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return True
        except BlockingIOError:
            if _runs(_owner(file)) or time.monotonic() > until:
                return False
            time.sleep(LOOK)
        except OSError:  # this file system has none
            return _held_by_name(file, wait)


def _held_by_name(file: IO[bytes], wait: bool) -> bool:
    """Take a lock by writing a name into it, if no process that runs has its own there."""
    while True:
        if not _runs(_owner(file)):
            me = _me()
            _write(file, json.dumps(me).encode())
            time.sleep(SETTLE)
            if _owner(file) == me:
                return True
        if not wait:
            return False
        time.sleep(1.0)


def _me() -> dict[str, Any]:
    told = {"pid": os.getpid(), "host": socket.gethostname(), "born": _born(os.getpid())}
    return told | {"mark": secrets.token_hex(4)}


def _born(process: int) -> str | None:
    """When a process began, in ticks of a clock that nobody can set: the number of a dead one may be another's now."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _owner(file: IO[bytes]) -> dict[str, Any]:
    file.seek(0)
    try:
        said = parse_json(file.read())
        return said if isinstance(said, dict) else {}
    except ValueError:
        return {}


def _runs(owner: dict[str, Any]) -> bool:
    """Whether the process that a lock names is another one that is still there, as far as can be known."""
    if not owner:
        return False
    process, born = owner.get("pid"), owner.get("born")
    if owner.get("host") != socket.gethostname() or not isinstance(process, int):
        return True
    return process != os.getpid() and runs(process) and (born is None or _born(process) in (None, born))


def _words(owner: dict[str, Any]) -> str:
    return f"process {owner['pid']} on {owner.get('host')}" if owner.get("pid") else "another process"


def _write(file: IO[bytes], words: bytes) -> None:
    file.seek(0)
    file.truncate()
    file.write(words)
