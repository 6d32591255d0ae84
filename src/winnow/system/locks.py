"""Locks between processes: files that name the process that holds them.

The operating system releases a lock when its process ends, however it ends, so no one waits for a dead process. On a
file system without such locks the file's content decides: a lock is held as long as the process it names runs on this
machine, and always if it names another machine. Clocks and timeouts play no part.
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
from winnow.system.files import is_running, parse_json

POLL_SECONDS = 0.01
"""Time between two tries to take a lock that is held but names no process: another process may only be testing it."""
SETTLE_SECONDS = 0.2
"""When to give up on such a lock. Also, without system locks: how long to wait until the last of several processes that
wrote their names has won."""
WAIT_SECONDS = 1.0
"""Time between two tries while waiting for a lock on a file system without locks."""


class Taken(BadInput):
    """Another process holds the lock."""


@contextlib.contextmanager
def locked(path: Path, wait: bool = False) -> Iterator[None]:
    """Hold a lock while the block runs. If another process holds it: wait, or raise an error that names it."""
    with _acquire(path, wait) as file:
        try:
            yield
        finally:
            _write(file, b"")


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder while the block runs. A new folder is removed if nothing was written."""
    new = not folder.exists()
    lock = folder / "lock"
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
    """Whether another process holds the lock. Testing does not keep others from taking it."""
    try:
        with path.open("rb", buffering=0) as file:
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
            except BlockingIOError:
                return True
            except OSError:  # this file system has no locks
                return _is_other_process(_owner(file))
    except (FileNotFoundError, ImportError):  # Windows has no fcntl
        return False


def _acquire(path: Path, wait: bool) -> IO[bytes]:
    """Take the lock and write this process's name into it. Returns the open lock file."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab+", buffering=0)
        except OSError as error:
            raise BadInput(f"{path}: can't be written ({error.strerror}); choose another place") from error
        try:
            if not _try_lock(file, wait):
                raise Taken(f"{path.parent}: locked by {_describe(_owner(file))}; wait for it to finish or stop it")
            if _is_same_file(file, path):
                _write(file, json.dumps(_signature()).encode())
                return file
            file.close()  # it was removed while we waited: the lock is another file by now
        except OSError as error:
            file.close()
            raise BadInput(f"{path}: can't be written ({error.strerror}); nothing was changed") from error
        except BaseException:
            file.close()
            raise


def _is_same_file(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _try_lock(file: IO[bytes], wait: bool) -> bool:
    """Try to take the lock. Returns whether this process has it."""
    try:
        import fcntl
    except ImportError:  # Windows has no fcntl
        return True
    until = time.monotonic() + SETTLE_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return True
        except BlockingIOError:
            if _is_other_process(_owner(file)) or time.monotonic() > until:
                return False
            time.sleep(POLL_SECONDS)
        except OSError:  # this file system has no locks
            return _try_lock_by_name(file, wait)


def _try_lock_by_name(file: IO[bytes], wait: bool) -> bool:
    """Take a lock by writing this process's name into the file, unless it names a process that is still running."""
    while True:
        if not _is_other_process(_owner(file)):
            signature = _signature()
            _write(file, json.dumps(signature).encode())
            time.sleep(SETTLE_SECONDS)
            if _owner(file) == signature:
                return True
        if not wait:
            return False
        time.sleep(WAIT_SECONDS)


def _signature() -> dict[str, Any]:
    """What this process writes into a lock that it takes."""
    process = os.getpid()
    mark = secrets.token_hex(4)
    return {"pid": process, "host": socket.gethostname(), "born": _start_time(process), "mark": mark}


def _start_time(process: int) -> str | None:
    """When a process started, in clock ticks since boot. Tells a process from a later one with the same number."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _owner(file: IO[bytes]) -> dict[str, Any]:
    file.seek(0)
    try:
        owner = parse_json(file.read())
        return owner if isinstance(owner, dict) else {}
    except ValueError:
        return {}


def _is_other_process(owner: dict[str, Any]) -> bool:
    """Whether the lock names another process that is still running. True for one on another machine."""
    if not owner:
        return False
    process = owner.get("pid")
    if owner.get("host") != socket.gethostname() or not isinstance(process, int):
        return True
    if process == os.getpid() or not is_running(process):
        return False
    born = owner.get("born")
    return born is None or _start_time(process) in (None, born)


def _describe(owner: dict[str, Any]) -> str:
    return f"process {owner['pid']} on {owner.get('host')}" if owner.get("pid") else "another process"


def _write(file: IO[bytes], content: bytes) -> None:
    file.seek(0)
    file.truncate()
    file.write(content)
