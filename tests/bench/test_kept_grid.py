"""A grid that was finished before modules got their present names is finished now: its ids are computed alike."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from winnow import envs
from winnow.bench import plan, run_local
from winnow.bench.results import Result, collect, packed_of, read_packed
from winnow.cli import main

KEPT = Path(__file__).parents[2] / "results" / "as_published" / "iql-200k.jsonl.gz"
"""180 runs, trained when pools came from `winnow.rollouts` and policies from `winnow/policies`."""
if not KEPT.exists():
    pytest.skip("the source distribution has no results", allow_module_level=True)


@pytest.fixture(scope="module")
def kept() -> list[Result]:
    return [result for result, _ in read_packed(KEPT)]


@pytest.fixture
def same_physics(kept: list[Result], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The simulator's version is part of an id: here it is always the one of the kept grid."""
    monkeypatch.setattr(envs, "physics", lambda _: kept[0].made_with["physics"])
    for cached in (plan.identity, plan._pool_key):
        cached.cache_clear()
    yield
    for cached in (plan.identity, plan._pool_key):
        cached.cache_clear()


def arguments(command: str, out: Path) -> list[str]:
    """A recorded command with another folder."""
    parts = shlex.split(command)[1:]
    parts[parts.index("--out") + 1] = str(out)
    return parts


@pytest.mark.parametrize("loose", [False, True], ids=["packed", "loose files"])
def test_a_grid_finished_before_the_move_is_finished_after_it(kept, same_physics, tmp_path, monkeypatch, capsys, loose):
    monkeypatch.setattr(run_local, "run_pack", lambda *_, **__: pytest.fail("something was trained"))
    commands = {result.command: [other for other in kept if other.command == result.command] for result in kept}
    command, results = next(iter(commands.items()))
    grid = tmp_path / "grid"
    if loose:
        for result in results:
            result.save(grid)
    else:
        shutil.copy(KEPT, packed_of(grid))
    assert main([*arguments(command, grid), "--dry-run"]) == 0
    assert f"{len(results)} runs, {len(results)} done; 0 left" in capsys.readouterr().out
    assert main(arguments(command, grid)) == 0
    assert f"0 runs are done and {len(results)} were done before" in capsys.readouterr().out


def test_a_changed_setting_is_not_taken_for_done(kept, same_physics, tmp_path, capsys):
    shutil.copy(KEPT, packed_of(tmp_path / "grid"))
    options = ["--dry-run", "--no-warm-up", "--held-out", "0.02"]
    assert main([*arguments(kept[0].command, tmp_path / "grid"), *options]) == 0
    assert ", 0 done" in capsys.readouterr().out


def test_a_kept_result_is_read_unchanged(kept, tmp_path):
    kept[0].save(tmp_path)
    assert list(collect(tmp_path, pytest.fail)) == [kept[0]]
