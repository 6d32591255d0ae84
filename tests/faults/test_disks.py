"""Full disks and folders that can't be written to: a line says so, nothing is half-written, the same words go on."""

from __future__ import annotations

import pytest
from helpers.faults.disks import can_mount, full, read_only

pytestmark = pytest.mark.skipif(not can_mount(), reason="a disk of its own needs Linux's unshare and user namespaces")


@pytest.mark.parametrize(("name", "size"), [("data import", 2 << 20), ("train", 8 << 10)])
def test_a_full_disk_is_told_in_a_line_and_the_same_words_go_on(name, size, company, tmp_path):
    tried = full(company.scene(name), tmp_path, size)
    assert tried.code == 2
    assert "No space left on device" in tried.said
    assert "Traceback" not in tried.said
    company.check(name, tried.first, done=False)
    assert tried.then == 0, tried.said
    company.check(name, tried.last, done=True)


@pytest.mark.parametrize(
    ("name", "file"), [("data import", "mine"), ("data make", "making.lock"), ("train", "runs/lock")]
)
def test_a_folder_that_cannot_be_written_to_is_named(name, file, company, tmp_path):
    tried = read_only(company.scene(name), tmp_path)
    assert tried.code == 2
    assert f"{file}: can't be written (Read-only file system)" in tried.said
    assert "Traceback" not in tried.said
    assert not list(tried.first.iterdir())
