"""Grids from words to results: interrupted, damaged, out of memory, failed, on two devices, in parts."""

from __future__ import annotations

import os
import pickle
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.tiny_grids import DATASETS, HOW, command_line, outcomes, planned

from winnow import training
from winnow.bench import run_local
from winnow.bench.datasets import OpenDatasets
from winnow.bench.plan import Planned, packs, shard
from winnow.bench.remaining import begin, todo, work_of
from winnow.bench.results import Result, file_of, load
from winnow.bench.run_local import run, run_pack
from winnow.cli import main
from winnow.errors import BadInput
from winnow.packs.pack import Pack
from winnow.packs.run import Run
from winnow.training import loop


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A folder with a finished grid of 2 datasets, 3 methods and 2 seeds."""
    folder = tmp_path_factory.mktemp("grid") / "out"
    done = run(packs(planned()), folder, progress=False)
    assert len(done.results) == 12
    return folder


@pytest.fixture
def no_training(monkeypatch):
    monkeypatch.setattr(run_local, "run_pack", lambda *_, **__: pytest.fail("something was trained"))


def test_every_run_is_a_result(whole):
    runs = {one.id: one for one in planned()}
    found = outcomes(whole)
    assert found.keys() == runs.keys()
    for identity, told in found.items():
        assert told["name"] == runs[identity].name
        assert (told["steps"], told["failure"]) == (HOW.steps, None)
        assert [(one["step"], one["round"]) for one in told["rounds"]] == [(20, None), (50, 1), (60, 2)]
        assert all(len(one["returns"]) == len(one["lengths"]) == 2 for one in told["rounds"])
        assert told["score"] == pytest.approx(sum(one["score"] for one in told["rounds"][1:]) / 2)
        assert told["metrics"]["step"] == [10, 20, 30, 40, 50, 60]
        assert sum(told["shares"].values()) == pytest.approx(1)
    assert [path.name for path in sorted(whole.iterdir())] == ["locks", "results", "work"]
    assert not list((whole / "work").iterdir())


def test_a_result_is_that_of_the_run_alone(whole):
    (one,) = [one for one in planned() if ".dw-aw." in one.name and one.name.startswith(DATASETS[1]) and one.seed]
    with OpenDatasets().opened([one]) as datasets:
        alone = Run(datasets[one.entry.text], one.algorithm, one.sampler, one.weighter, one.seed, "alone")
        (trained,) = training.train_runs(
            [alone],
            steps=HOW.steps,
            batch_size=HOW.batch_size,
            chunk=HOW.chunk,
            evaluate=HOW.evaluation,
            progress=False,
        )
        share = trained.weights().share(alone.dataset.source == 1, HOW.batch_size)
    found = load(file_of(whole, one.id))
    assert found.score == trained.score
    assert [told["returns"] for told in found.rounds] == [told.returns for told in trained.rounds]
    assert found.shares["medium"] == pytest.approx(share, abs=0.03)


def test_a_second_call_does_nothing(whole, no_training, capsys):
    before = {path: path.read_bytes() for path in (whole / "results").iterdir()}
    assert main(command_line(whole)) == 0
    assert "0 runs are done and 12 were done before" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in (whole / "results").iterdir()} == before


def test_a_dry_run_shows_the_packs_and_writes_nothing(whole, tmp_path, no_training, capsys):
    assert main([*command_line(whole), "--dry-run"]) == 0
    assert "12 runs, 12 done; 0 left in 0 packs" in capsys.readouterr().out
    assert main([*command_line(tmp_path / "new"), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "12 runs, 0 done; 12 left in 2 packs" in said
    assert "of training by rates recorded on one NVIDIA H200" in said
    assert main([*command_line(tmp_path / "new"), "--dry-run", "--measure"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"of training on 1 × cpu; beside it, evaluation: \d+ s at the most on \d+ cores", said)
    assert main([*command_line(tmp_path / "new"), "--dry-run", "--no-warm-up", "--shard", "2/2"]) == 0
    assert "4 runs, 0 done" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()


def test_a_grid_killed_five_times_equals_one_that_was_not(whole, tmp_path):
    out, chance = tmp_path / "out", random.Random(4)
    command = [sys.executable, "-m", "winnow.cli", *command_line(out)]
    surroundings = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    kills = 0
    for number in range(1, 6):
        child = subprocess.Popen(command, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        with child:
            lock, began = out / "locks" / "1-of-1.lock", time.monotonic()
            while child.poll() is None and not (lock.exists() and str(child.pid) in lock.read_text()):
                assert time.monotonic() - began < 60
                time.sleep(0.05)
            time.sleep(chance.uniform(0, 1.2) * number)
            kills += child.poll() is None
            child.kill()
    assert kills
    last = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=120)
    assert last.returncode == 0, last.stderr
    assert outcomes(out) == outcomes(whole)
    assert not list((out / "work").iterdir())


def test_bad_results_are_named_set_aside_and_done_again(whole, tmp_path, capsys):
    out, runs = tmp_path / "out", planned(methods=["uniform", "aw"])
    for one in runs:
        load(file_of(whole, one.id)).save(out)
    short, changed, gone = (file_of(out, one.id) for one in runs[:3])
    short.write_bytes(short.read_bytes()[:100])
    changed.write_text(changed.read_text().replace('"seed":', '"sead":', 1))
    gone.unlink()
    (out / "results" / "notes.txt").write_text("mine")
    done = run(packs(runs), out, progress=False)
    assert (done.before, {result.id for result in done.results}) == (5, {one.id for one in runs[:3]})
    said = capsys.readouterr().err
    assert all(name in said for name in (short.name, changed.name, "notes.txt"))
    assert {path.name for path in (out / "set-aside").iterdir()} == {short.name, changed.name, "notes.txt"}
    assert outcomes(out) == {one.id: outcomes(whole)[one.id] for one in runs}


# ------------------------------------------------------------------------------------------- single packs of bc


def bc(**options: Any) -> list[Planned]:
    """Runs that are quickly compiled, in one pack."""
    usual: dict[str, Any] = {"methods": ["uniform"], "datasets": DATASETS[:1], "sweeps": ["algorithm.hidden=8"]}
    return planned(**usual | options)


def test_a_pack_is_done_anywhere_and_goes_on_when_only_its_results_are_missing(tmp_path, monkeypatch):
    runs, save = bc(seeds=2), Result.save

    def dies(self, folder):
        if self.id == runs[1].id:
            raise KeyboardInterrupt
        return save(self, folder)

    monkeypatch.setattr(Result, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        run_pack(pickle.loads(pickle.dumps(runs)), tmp_path)
    assert file_of(tmp_path, runs[0].id).exists()
    assert (work_of(tmp_path, runs) / "pack.json").exists()
    monkeypatch.undo()
    monkeypatch.setattr(loop, "Pack", lambda *_, **__: pytest.fail("it was trained again"))
    assert [one.id for one in run([runs], tmp_path, progress=False).results] == [one.id for one in runs]
    assert outcomes(tmp_path).keys() == {one.id for one in runs}
    assert not work_of(tmp_path, runs).exists()


def test_a_pack_that_is_out_of_memory_is_halved_until_it_fits(tmp_path, monkeypatch):
    runs, sizes = bc(seeds=3), []

    def small(runs, *args, **options):
        sizes.append(len(runs))
        if len(runs) > 2:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 bytes")
        return Pack(runs, *args, **options)

    monkeypatch.setattr(loop, "Pack", small)
    results = run_pack(runs, tmp_path)
    assert sizes == [3, 1, 2]
    assert [one.id for one in results] == [one.id for one in runs]
    assert not list((tmp_path / "work").iterdir())
    monkeypatch.setattr(loop, "Pack", lambda *_, **__: small([1, 2, 3]))
    with pytest.raises(BadInput, match=r"seed0: does not fit into the free memory of the device; stop what else"):
        run_pack(runs[:1], tmp_path / "none")


def test_a_run_that_fails_is_a_result_and_is_tried_again_when_asked(tmp_path, no_training, monkeypatch):
    runs = bc(seeds=1, sweeps=["algorithm.hidden=8", "algorithm.learning_rate=0.0003,1e30"])
    good, bad = run_pack(runs, tmp_path)
    assert good.finished
    assert not bad.finished
    assert bad.failure is not None
    assert "nan" in bad.failure
    assert (bad.score, bad.shares, load(file_of(tmp_path, bad.id))) == (None, {}, bad)
    assert run([runs], tmp_path, progress=False).before == 2
    monkeypatch.setattr(
        run_local, "run_pack", lambda pack, *_, **__: [bad] if [one.id for one in pack] == [bad.id] else []
    )
    done = run([runs], tmp_path, retry_failed=True, progress=False)
    assert (done.before, done.results) == (1, [bad])


def test_two_devices_do_the_same_as_one(whole, tmp_path):
    code = """
import sys, jax
from winnow.bench import run_local
from winnow.cli import main
real = run_local.run_pack
def told(pack, *args, **options):
    sys.stdout.write(f"on {jax.config.jax_default_device}\\n")  # in one piece: print's are mixed by two threads
    return real(pack, *args, **options)
run_local.run_pack = told
sys.exit(main(sys.argv[1:]))
"""
    surroundings = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    surroundings["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    command = [sys.executable, "-c", code, *command_line(tmp_path, datasets=DATASETS[:1])]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert {line for line in done.stdout.splitlines() if line.startswith("on ")} == {"on cpu:0", "on cpu:1"}
    expected = outcomes(whole)
    assert outcomes(tmp_path) == {one.id: expected[one.id] for one in planned(datasets=DATASETS[:1])}


# ------------------------------------------------------------------------------------ what there is to do, and who


@pytest.fixture
def instant(monkeypatch, whole):
    """Packs that are done at once. Says which."""
    packs_done: list[list[str]] = []

    def quick(pack, folder, **_):
        packs_done.append([one.id for one in pack])
        results = [load(file_of(whole, one.id)) for one in pack]
        for result in results:
            result.save(folder)
        return results

    monkeypatch.setattr(run_local, "run_pack", quick)
    return packs_done


def test_shards_share_a_folder_and_do_everything_once(whole, tmp_path, instant):
    for number in (1, 2, 3):
        run(shard(planned(), number, 3), tmp_path, shard=(number, 3), progress=False)
    assert sorted(identity for pack in instant for identity in pack) == sorted(one.id for one in planned())
    assert outcomes(tmp_path) == outcomes(whole)


def test_packs_are_cut_to_what_fits(tmp_path, instant, monkeypatch):
    monkeypatch.setattr("winnow.bench.costs.MAX_CPU_PACK", 3)
    run(packs(planned()), tmp_path, progress=False)
    assert sorted(map(len, instant)) == [2, 2, 2, 3, 3]


def test_a_pack_that_was_begun_goes_on_as_it_is(tmp_path):
    runs = planned()
    made = packs(runs)
    begun, other = [made[0][5], made[0][2]], [made[0][2], made[0][1]]
    for pack in (begun, other):
        begin(work_of(tmp_path, pack), pack)
    done = {made[0][5].id}
    left = todo(made, tmp_path, done)
    first = min([begun, other], key=lambda pack: work_of(tmp_path, pack))
    assert left.begun == [first]  # not both: they have a run in common
    assert {id(one) for one in left.runs} | {id(made[0][5])} == {id(one) for one in runs}
    assert left.done == 1
    # With one of its runs not wanted, a pack is left alone.
    fewer = [[one for one in pack if one.id != made[0][2].id] for pack in made]
    assert todo(fewer, tmp_path, done).begun == []
    assert todo(fewer, tmp_path, {one.id for one in runs}).packs == []


def test_work_that_nobody_needs_is_removed(whole, tmp_path, instant, monkeypatch):
    made = packs(planned())
    for pack in (made[0][:2], made[1]):
        begin(work_of(tmp_path, pack), pack)
    monkeypatch.setattr("winnow.bench.remaining.__version__", "0.0.0")
    begin(work_of(tmp_path, made[0]), made[0])  # by another version: it can't go on
    monkeypatch.undo()
    for one in made[0]:
        load(file_of(whole, one.id)).save(tmp_path)
    monkeypatch.setattr(run_local, "run_pack", lambda *_, **__: [])
    run(made[:1], tmp_path, progress=False)
    assert [path.name for path in (tmp_path / "work").iterdir()] == [work_of(tmp_path, made[1]).name]


@pytest.mark.parametrize("lock", ["1-of-1.lock", "1-of-3.lock"])
def test_two_processes_do_not_do_the_same(tmp_path, lock, no_training, capsys):
    with run_local.locked(tmp_path / "locks" / lock):
        assert main(command_line(tmp_path)) == 2
    said = capsys.readouterr().err
    assert f"process {os.getpid()}" in said or "running shard 1/3 here" in said


def test_an_error_in_one_pack_ends_the_grid_with_it(tmp_path, monkeypatch):
    def fails(pack, *_, **__):
        raise BadInput("the disk is full")

    monkeypatch.setattr(run_local, "run_pack", fails)
    with pytest.raises(BadInput, match="the disk is full"):
        run(packs(planned()), tmp_path, progress=False)


def test_an_environment_that_is_not_here_is_named_before_anything_is_trained(tmp_path, no_training, monkeypatch):
    monkeypatch.setattr(
        run_local, "resolve_environment", lambda *_: (_ for _ in ()).throw(BadInput("hopper: needs mujoco"))
    )
    with pytest.raises(BadInput, match="needs mujoco"):
        run(packs(planned()), tmp_path, progress=False)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--shard", "3/2"], "--shard must be one of 1/N, 2/N, … N/N, got '3/2'"),
        (["--shard", "x"], "--shard must be one of"),
        (["--shares", "few"], "--shares must be numbers with commas between them, got 'few'"),
        (["--largest-pack", "0"], "--largest-pack must be at least 1, got 0"),
        (["--sweep", "weighter.lamda=1"], "weighter.lambda_k"),
        (["--environments", "ant"], "--environments ant: matches none of these datasets; choose from hopper"),
    ],
)
def test_bad_words_get_a_line_and_exit_code_2(more, message, tmp_path, capsys):
    assert main([*command_line(tmp_path / "out"), *more]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_trained_pack_opens_the_gate_for_the_next_and_stops_with_its_grid(tmp_path):
    left = todo(packs(bc()), tmp_path, set())
    grid = run_local._Grid(left, tmp_path, run_local.Progress(1, shown=False), 1)
    gate = threading.Lock()
    gate.acquire()
    hooks = run_local._PackHooks(grid, gate)
    hooks.on_begin()
    assert gate.locked()
    hooks.on_trained()
    assert not gate.locked()
    hooks.on_begin()  # the second half of a pack that did not fit
    assert gate.locked()
    hooks.on_trained()
    assert not gate.locked()
    assert not hooks.should_stop()
    grid.stop()
    assert hooks.should_stop()
    late = run_local._PackHooks(grid, gate)
    late.has_gate = False
    late.on_begin()
    assert late.should_stop()
    hooks.release()
    late.release()
    assert not grid.active
