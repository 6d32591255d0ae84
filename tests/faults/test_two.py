"""Two processes that write to the same place: one of them, or one after the other, and never a mixture."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import random_hopper

import winnow
from winnow.cli import main
from winnow.data import store
from winnow.errors import BadInput
from winnow.system import locks
from winnow.system.files import write_text
from winnow.system.locks import alone, is_held, locked


@contextlib.contextmanager
def holding(child: subprocess.Popen[str], lock: Path) -> Iterator[int]:
    """A process that was begun, stopped where it holds its lock; it goes on, or is gone, when the block ends."""
    with child:
        until = time.monotonic() + 60
        while not (lock.exists() and lock.read_text()):
            assert child.poll() is None, child.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.01)
        os.kill(child.pid, signal.SIGSTOP)
        assert json.loads(lock.read_text())["pid"] == child.pid
        yield child.pid
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGCONT)
        child.communicate(timeout=120)


def test_training_in_a_folder_that_another_process_trains_in_is_refused_and_taken_over_when_that_one_is_dead(
    injector, tmp_path
):
    case, out = injector.case("train"), tmp_path / "out"
    lock = out / "runs" / "lock"
    with holding(case.begin(out), lock) as first:
        before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
        second = case.begin(out)
        said = second.communicate(timeout=120)[1]
        assert second.returncode == 2
        assert f"locked by process {first} on" in said
        assert "wait for it to finish or stop it" in said
        assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
        os.kill(first, signal.SIGKILL)
    assert lock.read_text(), "the dead leave their name"
    assert not is_held(lock)
    injector.finish("train", out)
    assert not lock.read_text()


TRAINS = """
import sys, winnow
from helpers import random_hopper
data = random_hopper.dataset(environment=None)
winnow.train(data, winnow.BC(hidden=(8, 8)), "uniform", out=sys.argv[1], **random_hopper.OPTIONS)
"""


def test_python_keeps_others_out_of_its_folder_as_the_command_does(tmp_path):
    out = tmp_path / "runs"
    data = random_hopper.dataset(environment=None)
    script = [sys.executable, "-c", TRAINS, str(out)]
    child = subprocess.Popen(
        script, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, stderr=subprocess.PIPE, text=True
    )
    with holding(child, out / "lock") as first:
        before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
        with pytest.raises(BadInput, match=f"{out}: locked by process {first} on"):
            winnow.train(data, winnow.BC(hidden=(8, 8)), "uniform", out=out, resume=True, **random_hopper.OPTIONS)
        assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
        os.kill(first, signal.SIGKILL)
    assert (out / "lock").read_text(), "the dead leave their name"
    (trained,) = winnow.train(data, winnow.BC(hidden=(8, 8)), "uniform", out=out, resume=True, **random_hopper.OPTIONS)
    assert trained.steps == random_hopper.OPTIONS["steps"]
    assert not (out / "lock").read_text()


def test_pools_are_made_by_one_process_at_a_time(injector, tmp_path):
    case, out = injector.case("data make"), tmp_path / "out"
    with holding(case.begin(out), out / "making.lock") as first:
        second = case.begin(out)
        assert second.stderr
        assert f"waiting: {out}: locked by process {first} on" in second.stderr.readline()
        os.kill(first, signal.SIGCONT)
        assert second.communicate(timeout=120)[1] is not None
        assert second.returncode == 0
    injector.check("data make", out, done=True)


def test_a_file_that_several_write_at_once_is_that_of_one_of_them(injector, tmp_path):
    case, out = injector.case("data import"), tmp_path / "out"
    crowd = [case.begin(out) for _ in range(3)]
    for child in crowd:
        child.communicate(timeout=120)
    assert [child.returncode for child in crowd] == [0, 0, 0]
    injector.check("data import", out, done=True)


@pytest.mark.parametrize(
    "words",
    [
        "train hops.safetensors --out out --steps 10",
        "tune hops.safetensors --out out --steps 10",
        "collect train --env hopper --out out --steps 10",
    ],
)
def test_a_folder_in_use_is_named_with_its_user(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    store.save(random_hopper.dataset(), tmp_path / "hops.safetensors")
    folder = Path("out")
    with alone(folder):
        assert main(words.split()) == 2
        assert [path.name for path in folder.iterdir()] == ["lock"]
    assert f"{folder}: locked by process {os.getpid()} on" in capsys.readouterr().err
    assert not folder.exists()


def test_looking_at_a_lock_makes_nothing_and_keeps_nobody_out(tmp_path):
    lock = tmp_path / "a.lock"
    assert not is_held(lock)
    assert not lock.exists()
    lock.touch()
    with lock.open("rb") as looks:
        fcntl.flock(looks, fcntl.LOCK_SH)  # as one does who looks
        threading.Timer(0.05, looks.close).start()
        with locked(lock):
            assert is_held(lock)


def test_a_lock_that_was_removed_while_somebody_waited_is_no_lock_any_more(tmp_path):
    lock, got = tmp_path / "a.lock", threading.Event()

    def waits():
        with locked(lock, wait=True):
            got.set()
            assert is_held(lock)

    with locked(lock):
        thread = threading.Thread(target=waits)
        thread.start()
        assert not got.wait(0.2)
        lock.unlink()
        with locked(lock):
            pass
    thread.join(10)
    assert got.is_set()


def test_where_the_file_system_has_no_locks_another_process_with_a_dead_ones_number_does_not_hold_it(
    tmp_path, monkeypatch
):
    def none(*_):
        raise OSError("no locks")

    monkeypatch.setattr(fcntl, "flock", none)
    lock, sleeps = tmp_path / "a.lock", subprocess.Popen(["sleep", "60"])
    with sleeps:
        named = {"pid": sleeps.pid, "host": socket.gethostname(), "born": locks._start_time(sleeps.pid)}
        lock.write_text(json.dumps(named))
        assert is_held(lock)
        lock.write_text(json.dumps(named | {"born": "1"}))
        assert not is_held(lock)
        with locked(lock):
            assert json.loads(lock.read_text())["pid"] == os.getpid()
        sleeps.kill()


DIES = """
import os, pathlib, signal, sys
from winnow.system.files import replacing
with replacing(pathlib.Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_dead_writer_has_left_goes_and_what_a_living_one_writes_stays(tmp_path):
    write_text(tmp_path / "x", "old")
    child = subprocess.Popen([sys.executable, "-c", DIES, str(tmp_path / "x")])
    assert child.wait() == -signal.SIGKILL
    (dead,) = tmp_path.glob(".x.*")
    living = dead.with_name(dead.name.replace(f"-{child.pid}-", f"-{os.getpid()}-"))
    elsewhere = dead.with_name(dead.name.replace(".x.", ".x.00"))
    for path in (living, elsewhere):
        path.write_text("half")
    write_text(tmp_path / "x", "new")
    assert (tmp_path / "x").read_text() == "new"
    assert {path.name for path in tmp_path.iterdir()} == {"x", living.name, elsewhere.name}
