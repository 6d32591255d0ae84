"""A grid's results in one compressed file: read, resumed and merged as loose files are, and never half written."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import made_results
from helpers.made_results import write
from helpers.tiny_grids import command_line, planned

from winnow.bench import packed, run_local
from winnow.bench.results import collect, file_of, load, packed_of, read_packed
from winnow.cli import main
from winnow.errors import BadInput
from winnow.system.locks import locked


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    """A folder with the results of twelve runs."""
    return write(tmp_path / "grid", planned())


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_local, "run_pack", lambda *_, **__: pytest.fail("something was trained"))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in (folder / "results").iterdir()}


def test_a_packed_file_holds_the_files_unchanged_in_the_order_of_ids(grid, capsys):
    before = contents(grid)
    assert main(["bench", "pack", str(grid)]) == 0
    assert f"{packed_of(grid)} holds 12 runs" in capsys.readouterr().out
    assert gzip.decompress(packed_of(grid).read_bytes()) == b"".join(before[name] for name in sorted(before))
    assert [result.id for result, _ in read_packed(packed_of(grid))] == sorted(before)
    assert not grid.exists()


def test_the_same_runs_give_the_same_bytes(grid):
    packed.pack(grid, keep=True)
    first = packed_of(grid).read_bytes()
    packed.pack(grid)
    assert packed_of(grid).read_bytes() == first


def test_with_keep_and_beside_other_files_the_folder_stays(grid):
    before = contents(grid)
    packed.pack(grid, keep=True)
    assert contents(grid) == before
    (grid / "notes.txt").write_text("mine")
    packed.pack(grid)
    assert [path.name for path in grid.iterdir()] == ["notes.txt"]


def test_a_later_pack_takes_in_what_is_new_and_what_was_done_again(grid):
    runs = planned(seeds=3)
    packed.pack(grid)
    made_results.result(runs[0], seconds=99.0).save(grid)
    write(grid, [run for run in runs if run.seed == 2])
    assert packed.pack(grid) == 18
    assert {result.id: result.seconds for result in collect(grid, pytest.fail)}[runs[0].id] == 99.0


def test_of_a_run_that_is_in_both_the_loose_file_counts(grid):
    run = planned()[0]
    packed.pack(grid)
    made_results.result(run, seconds=99.0).save(grid)
    found = list(collect(grid, pytest.fail))
    assert len(found) == 12
    assert [result.seconds for result in found if result.id == run.id] == [99.0]


def test_packed_files_are_merged_by_writing_one_behind_the_other(grid, tmp_path):
    other = write(tmp_path / "other", planned(seeds=3))
    packed.pack(grid)
    packed.pack(other)
    both = tmp_path / "both.jsonl.gz"
    both.write_bytes(packed_of(grid).read_bytes() + packed_of(other).read_bytes())
    assert len(list(collect(tmp_path / "both", pytest.fail))) == 18


# ------------------------------------------------------------------------------------------------ who reads it


def report(folder: Path, out: Path) -> list[bytes]:
    files = [out / f"report.{kind}" for kind in ("csv", "md", "tex")]
    options = [f"--{name}={file}" for name, file in zip(("csv", "markdown", "latex"), files, strict=True)]
    assert main(["report", str(folder), *options]) == 0
    return [file.read_bytes() for file in files]


def test_a_report_is_the_same_of_loose_and_packed_files_and_of_both(grid, tmp_path):
    loose = report(grid, tmp_path)
    packed.pack(grid, keep=True)
    for path in list((grid / "results").iterdir())[::2]:
        path.unlink()
    assert report(grid, tmp_path) == loose
    packed.pack(grid)
    assert report(grid, tmp_path) == loose
    assert report(packed_of(grid), tmp_path) == loose


def test_a_report_names_the_packed_run_that_it_cannot_use(grid, capsys):
    run = planned()[0]
    made_results.result(run, swept={"color": 1}).save(grid)
    packed.pack(grid)
    assert main(["report", str(grid)]) == 0
    assert f"{packed_of(grid)}, run {run.id}: lacks what a report needs" in capsys.readouterr().err


def test_a_report_does_not_write_over_the_packed_file(grid, capsys):
    packed.pack(grid)
    assert main(["report", str(grid), "--csv", str(packed_of(grid))]) == 2
    assert "lies among the results" in capsys.readouterr().err


def test_the_grid_does_not_train_what_is_packed(grid, no_training, capsys):
    packed.pack(grid)
    assert main([*command_line(grid), "--dry-run"]) == 0
    assert "12 runs, 12 done; 0 left in 0 packs" in capsys.readouterr().out
    assert main(command_line(grid)) == 0
    assert "0 runs are done and 12 were done before" in capsys.readouterr().out


def test_the_grid_does_not_train_what_is_packed_or_loose(grid, no_training, capsys):
    packed.pack(write(grid.with_name("half"), planned()[:5]))
    for run in planned()[:5]:
        file_of(grid, run.id).unlink()
    packed_of(grid.with_name("half")).rename(packed_of(grid))
    assert main([*command_line(grid), "--dry-run"]) == 0
    assert "12 runs, 12 done" in capsys.readouterr().out


def test_the_grid_is_not_written_into_a_packed_file(grid, capsys):
    packed.pack(grid)
    assert main(command_line(packed_of(grid))) == 2
    assert "--out must be a folder" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------- what is refused


def rewrite(path: Path, change: Callable[[list[bytes]], None]) -> None:
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    change(lines)
    path.write_bytes(gzip.compress(b"".join(lines)))


CUT = "damaged or cut short after line"
WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut short": (lambda path: path.write_bytes(path.read_bytes()[:-200]), CUT),
    "zeros": (lambda path: path.write_bytes(path.read_bytes()[:-2000] + bytes(2000)), CUT),
    "not compressed": (lambda path: path.write_bytes(b"[]\n"), f"{CUT} 0"),
    "empty": (lambda path: path.write_bytes(b""), "got an empty file"),
    "a digit": (
        lambda path: rewrite(path, lambda lines: lines.insert(2, lines.pop(2).replace(b":1000", b":1001"))),
        "line 3: is damaged (its checksum is wrong)",
    ),
    "half a line": (lambda path: rewrite(path, lambda lines: lines.append(lines[0][:99])), "line 13: is damaged"),
    "another line": (lambda path: rewrite(path, lambda lines: lines.insert(0, b"{}\n")), "line 1: is not a result"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_damaged_packed_file_is_named_with_its_line_and_left_as_it_is(grid, no_training, capsys, kind):
    packed.pack(grid)
    damage, message = WRONG[kind]
    damage(packed_of(grid))
    before = packed_of(grid).read_bytes()
    for command in (["report", str(grid)], command_line(grid), [*command_line(grid), "--dry-run"]):
        assert main(command) == 2
        told = capsys.readouterr().err
        assert str(packed_of(grid)) in told
        assert message in told
        assert "; copy " in told
    assert packed_of(grid).read_bytes() == before


@pytest.mark.parametrize("make", [None, ".", "results"])
def test_where_there_is_nothing_to_pack_a_line_says_so(tmp_path, capsys, make):
    if make:
        (tmp_path / "grid" / make).mkdir(parents=True)
    assert main(["bench", "pack", str(tmp_path / "grid")]) == 2
    assert "must hold results to pack, got none" in capsys.readouterr().err
    assert not packed_of(tmp_path / "grid").exists()
    assert not (tmp_path / "grid" / "locks").exists()


def test_a_grid_that_is_at_work_is_not_packed(grid, capsys):
    before = contents(grid)
    with locked(grid / "locks" / "2-of-3.lock"):
        assert main(["bench", "pack", str(grid)]) == 2
    assert "running shard 2/3 here" in capsys.readouterr().err
    assert contents(grid) == before
    assert not packed_of(grid).exists()


def test_nothing_is_lost_when_a_result_is_damaged_or_the_disk_fails(grid, monkeypatch):
    packed.pack(grid, keep=True)
    whole, (first, *_) = packed_of(grid).read_bytes(), sorted((grid / "results").iterdir())
    before = contents(grid)
    with monkeypatch.context() as patch:
        patch.setattr(packed, "read_packed", lambda path: iter(() if path != packed_of(grid) else read_packed(path)))
        with pytest.raises(BadInput, match="must read back as it was written"):
            packed.pack(grid)
    first.write_text("{")
    with pytest.raises(BadInput, match=f"{first.name}.*move it out"):
        packed.pack(grid)
    first.write_bytes(before[first.stem])
    assert (packed_of(grid).read_bytes(), contents(grid)) == (whole, before)
    assert {path.name for path in grid.parent.iterdir()} == {"grid", "grid.jsonl.gz"}


def test_a_loose_file_in_another_layout_is_a_line_all_the_same(grid):
    path = file_of(grid, planned()[0].id)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=1))
    result = load(path)
    packed.pack(grid)
    assert result in [found for found, _ in read_packed(packed_of(grid))]
