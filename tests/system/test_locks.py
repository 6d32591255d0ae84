"""Locks between processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from winnow.system import locks
from winnow.system.locks import Taken, is_held, locked

HOLD = """
import sys, pathlib
from winnow.system.locks import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds a lock until its input ends."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "a.lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout
        assert child.stdout.readline() == "held\n"
        yield child
        child.kill()


def test_a_lock_is_one_processs_and_the_error_names_it(holder, tmp_path):
    assert is_held(tmp_path / "a.lock")
    with pytest.raises(Taken, match=f"process {holder.pid} on"), locked(tmp_path / "a.lock"):
        pass
    assert not is_held(tmp_path / "b.lock")


def test_a_dead_processs_lock_is_taken_over(holder, tmp_path):
    holder.kill()
    holder.wait()
    with locked(tmp_path / "a.lock"), pytest.raises(Taken), locked(tmp_path / "a.lock"):
        pass
    assert not is_held(tmp_path / "a.lock")


def test_waiting_ends_when_the_other_process_does(holder, tmp_path):
    holder.stdin.close()
    with locked(tmp_path / "a.lock", wait=True):
        assert holder.wait() == 0


def test_where_the_file_system_has_no_locks_the_owners_name_does(holder, tmp_path, monkeypatch):
    import fcntl

    def none(*_):
        raise OSError("no locks")

    monkeypatch.setattr(fcntl, "flock", none)
    assert is_held(tmp_path / "a.lock")
    holder.kill()
    holder.wait()
    assert not is_held(tmp_path / "a.lock")
    (tmp_path / "a.lock").write_text('{"pid": 1, "host": "elsewhere"}')
    with pytest.raises(Taken, match="process 1 on elsewhere"), locked(tmp_path / "a.lock"):
        pass
    assert not locks._is_other_process({})
