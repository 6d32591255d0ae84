"""Full disks and read-only folders: a one-line error, no half-written file, and the same command continues."""

from __future__ import annotations

import pytest
from helpers.faults.disks import can_mount, full, read_only

pytestmark = pytest.mark.skipif(not can_mount(), reason="a disk of its own needs Linux's unshare and user namespaces")


@pytest.mark.parametrize(("name", "size"), [("data import", 2 << 20), ("train", 8 << 10)])
def test_full_disk_is_reported_in_one_line_and_the_same_command_continues(name, size, injector, tmp_path):
    outcome = full(injector.case(name), tmp_path, size)
    assert outcome.code == 2
    assert "No space left on device" in outcome.output
    assert "Traceback" not in outcome.output
    injector.check(name, outcome.first, done=False)
    assert outcome.code_after == 0, outcome.output
    injector.check(name, outcome.last, done=True)


@pytest.mark.parametrize(
    ("name", "file"), [("data import", "mine"), ("data make", "making.lock"), ("train", "runs/lock")]
)
def test_read_only_folder_is_named_in_the_error(name, file, injector, tmp_path):
    outcome = read_only(injector.case(name), tmp_path)
    assert outcome.code == 2
    assert f"{file}: can't be written (Read-only file system)" in outcome.output
    assert "Traceback" not in outcome.output
    assert not list(outcome.first.iterdir())
