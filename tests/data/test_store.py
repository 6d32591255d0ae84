"""winnow's own file: mapped, exact, and checked."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.datasets import dataset, files_in, same_episodes, source

from winnow.data import store
from winnow.data.recipes import diverse
from winnow.errors import BadInput


def test_what_is_saved_is_loaded_bit_for_bit_and_mapped(tmp_path):
    data = diverse(source(0.1), source(1, seed=1), 0.2, 500)
    store.save(data, tmp_path / "x.safetensors")
    again = store.load(tmp_path / "x.safetensors")
    assert again.fingerprint == data.fingerprint
    assert again.meta == data.meta
    assert same_episodes(again, data)
    assert isinstance(again.arenas[0].obs, np.memmap)
    assert not again.arenas[0].obs.flags.writeable
    assert again.path == str(tmp_path / "x.safetensors")


def test_the_same_dataset_makes_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        store.save(dataset(), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_only_the_rows_of_a_view_are_written(tmp_path):
    whole = source(0.1)
    store.save(whole, tmp_path / "whole")
    store.save(whole.select(np.array([3])), tmp_path / "one")
    assert (tmp_path / "one").stat().st_size < (tmp_path / "whole").stat().st_size / 5
    np.testing.assert_array_equal(store.load(tmp_path / "one").rows().obs, whole.rows(whole.episode == 3).obs)


def test_is_dataset_reads_the_header_and_not_the_name(tmp_path):
    store.save(dataset(), tmp_path / "x.txt")
    (tmp_path / "y.safetensors").write_text("words")
    assert store.is_dataset(tmp_path / "x.txt")
    assert not store.is_dataset(tmp_path / "y.safetensors")
    assert not store.is_dataset(tmp_path)
    assert not store.is_dataset(tmp_path / "nothing")


def with_header(path, change) -> None:
    """Rewrite the file's header, and leave its arrays where they are."""
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + length])
    changed = json.dumps(change(header), separators=(",", ":")).encode().ljust(length)
    assert len(changed) == length, "the change made the header longer"
    path.write_bytes(raw[:8] + changed + raw[8 + length :])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h | {"__metadata__": 5}, "is not a safetensors file"),
        (lambda h: h | {"__metadata__": {"format": "other"}}, "is not a winnow dataset"),
        (lambda h: {k: v for k, v in h.items() if k != "rows.obs"}, "is damaged"),
        (lambda h: h | {"rows.obs": h["rows.obs"] | {"shape": [1, 3]}}, "is damaged"),
        (lambda h: h | {"rows.obs": h["rows.obs"] | {"dtype": "F9"}}, "is damaged"),
        (
            lambda h: h | {"rows.reward": h["rows.reward"] | {"shape": [5], "data_offsets": [0, 20]}},
            "different lengths",
        ),
    ],
)
def test_a_header_that_was_tampered_with_is_refused(tmp_path, change, words):
    path = tmp_path / "x.safetensors"
    store.save(dataset(), path)
    with_header(path, change)
    with pytest.raises(BadInput, match=words) as caught:
        store.load(path)
    assert str(path) in str(caught.value)


def test_numbers_and_tables_that_make_no_sense_are_refused(tmp_path):
    data, path = dataset(), tmp_path / "x.safetensors"
    data.arenas[0].reward[2] = np.nan
    store.save(data, path)
    with pytest.raises(BadInput, match="reward, slot 2: is not a finite number"):
        store.load(path)
    data = dataset()
    store.save(data, path)
    raw = path.read_bytes()
    lengths = data.episodes.length.tobytes()
    assert raw.count(lengths) == 1
    path.write_bytes(raw.replace(lengths, np.array([400, 1, 3]).tobytes()))
    with pytest.raises(BadInput, match="episode 0 lies outside it"):
        store.load(path)


def test_a_file_that_is_cut_short_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    store.save(dataset(), path)
    raw = path.read_bytes()
    for size in (0, 5, 200, len(raw) - 1):
        path.write_bytes(raw[:size])
        with pytest.raises(BadInput, match=r"cut short|is not a safetensors file"):
            store.load(path)


def test_saving_where_nothing_can_be_written_is_bad_input(tmp_path):
    (tmp_path / "file").write_text("")
    before = files_in(tmp_path)
    for path in (tmp_path, tmp_path / "file" / "x"):
        with pytest.raises(BadInput):
            store.save(dataset(), path)
    assert files_in(tmp_path) == before


def test_a_full_disk_leaves_no_half_file_and_keeps_the_old_one(tmp_path):
    """A real failing write: the process may not write files of more than a few thousand bytes."""
    path = tmp_path / "x.safetensors"
    store.save(dataset(), path)
    before = path.read_bytes()
    script = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "from helpers.datasets import source; from winnow.data import store; from winnow.errors import BadInput\n"
        f"try: store.save(source(0.1), {str(path)!r})\n"
        "except BadInput as error: print(error)"
    )
    folder = str(Path(__file__).parent.parent)
    said = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert "can't be written" in said
    assert "nothing was changed" in said
    assert path.read_bytes() == before
    assert files_in(tmp_path) == {"x.safetensors"}
