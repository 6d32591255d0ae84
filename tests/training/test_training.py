"""Training from start to files: names, resuming, failures, weights. What one step does is tested in tests/contract."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import winnow
from winnow import toy
from winnow.algorithms import BC, IQL, TD3BC
from winnow.data import store
from winnow.data.recipes import mixed
from winnow.errors import BadInput
from winnow.packs.pack import Pack
from winnow.packs.run import Run
from winnow.samplers import AW, Uniform
from winnow.system import checkpoint
from winnow.system.metrics import read_metrics
from winnow.training import train, train_runs
from winnow.training.planning import plan
from winnow.training.trained import Trained
from winnow.weighters import Density, Dual, NoWeights

TINY = (8, 8)


@pytest.fixture(scope="module")
def dome() -> winnow.Dataset:
    low, high = toy.make(toy.random, 2_000, 0, "random"), toy.make(toy.expert, 1_000, 1, "expert")
    return mixed(low, high, 0.2, 2_000, low_label="random", high_label="expert", name="dome")


def tiny_runs(dataset: winnow.Dataset, seeds: int = 2) -> list[Run]:
    dual = Dual(hidden=TINY, average="trajectory")
    return [
        *plan(dataset, IQL(hidden=TINY), "uniform", seeds=seeds),
        *plan(dataset, IQL(hidden=TINY), "dual-aw", weighter=dual, seeds=seeds),
    ]


OPTIONS: dict[str, Any] = {"steps": 60, "chunk": 20, "batch_size": 16, "progress": False}


def same_files(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in one.glob("*.safetensors"))
    assert names
    assert names == sorted(path.name for path in other.glob("*.safetensors"))
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def test_every_combination_is_a_run_named_after_what_it_is(dome, tmp_path):
    trained = train(dome, ["bc", BC(hidden=TINY)][1:], ["uniform", "aw"], seeds=[3, 5], out=tmp_path / "o", **OPTIONS)
    names = [one.run.name for one in trained]
    assert names == [f"dome.bc.{method}.seed{seed}" for method in ("uniform", "aw") for seed in (3, 5)]
    assert sorted(p.stem for p in (tmp_path / "o").glob("*.safetensors")) == sorted(names)
    lines = read_metrics(tmp_path / "o" / "metrics.jsonl")
    assert [(line["run"], line["step"]) for line in lines[:4]] == [(name, 20) for name in names]
    assert len(lines) == 4 * 3


def test_a_finished_run_is_the_same_policy_and_weights_when_loaded(dome, tmp_path):
    path = tmp_path / "dome.safetensors"
    store.save(dome, path)
    one = train(path, TD3BC(hidden=TINY), "dual-aw", weighter=Dual(hidden=TINY), out=tmp_path / "o", **OPTIONS)[0]
    again = Trained.load(tmp_path / "o" / f"{one.run.name}.safetensors")
    obs = dome.start_obs[:5]
    np.testing.assert_array_equal(one.policy(obs), again.policy(obs))
    np.testing.assert_array_equal(one.weights().weight, again.weights().weight)


def test_row_weights_are_what_sampling_and_weighing_make_together(dome):
    one = train(dome, BC(hidden=TINY), "dw-aw", weighter=Density(hidden=TINY), **OPTIONS)[0]
    found = one.weights()
    assert found.probability.sum() == pytest.approx(1)
    assert found.probability @ found.ratio == pytest.approx(1)
    assert found.weight.mean() == pytest.approx(1)


def test_stopping_and_resuming_leaves_the_same_bits(dome, tmp_path, monkeypatch, capsys):
    """Ctrl-C in the middle of a chunk, in each pack: the checkpoint is written there and then."""
    train_runs(tiny_runs(dome), out=tmp_path / "straight", **OPTIONS)
    advance = Pack.advance

    def interrupted(pack, count):
        advance(pack, count)
        if pack.step in (7, 31):
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Pack, "advance", interrupted)
        patch.setattr("winnow.training.pace.CALL_SECONDS", 1e-9)  # a step at a time
        for number, step in ((0, 7), (0, 31), (1, 7), (1, 31)):
            with pytest.raises(KeyboardInterrupt):
                train_runs(tiny_runs(dome), out=tmp_path / "broken", resume=True, **OPTIONS)
            assert checkpoint.read_record(tmp_path / "broken" / f"pack-{number}.safetensors")["step"] == step
            assert "broken: progress is saved up to the last checkpoint; run the same" in capsys.readouterr().err
    train_runs(tiny_runs(dome), out=tmp_path / "broken", resume=True, **OPTIONS)
    assert same_files(tmp_path / "straight", tmp_path / "broken")
    straight, broken = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("straight", "broken"))
    assert straight == broken


def test_checkpoints_are_taken_twice_a_chunk_and_at_the_end(dome, tmp_path, monkeypatch):
    """One is written while the next half is trained: so what a crash can cost is one chunk."""
    save, taken = checkpoint.Writer.save, []

    def noted(writer, path, tree, record):
        taken.append(record["step"])
        save(writer, path, tree, record)

    monkeypatch.setattr(checkpoint.Writer, "save", noted)
    how = {"batch_size": 8, "chunk": 10, "checkpoint_seconds": 0, "progress": False}
    train_runs(tiny_runs(dome)[:1], out=tmp_path / "o", steps=24, **how)
    assert taken == [5, 10, 15, 20, 24]


def test_a_writer_saves_what_arrays_were_when_it_was_told(tmp_path):
    path, array = tmp_path / "a.safetensors", jax.numpy.arange(4.0)
    forget = jax.jit(lambda x: 0 * x, donate_argnums=0)
    with checkpoint.Writer() as writer:
        writer.save(path, {"a": array}, {"step": 1})
        forget(array)
        writer.wait()
        assert checkpoint.read_record(path) == {"step": 1}
        np.testing.assert_array_equal(checkpoint.load(path, {"a": np.zeros(4)})["a"], np.arange(4.0))
        writer.save(tmp_path / "a.safetensors" / "inside", {}, {})
        with pytest.raises(BadInput, match="can't be written"):
            writer.wait()


KILLED = """
import sys
sys.path.insert(0, {tests!r})
from test_training import tiny_runs
from winnow.data import store
from winnow.training import train_runs
runs = tiny_runs(store.load({data!r}), seeds=3)
train_runs(runs, out={out!r}, steps=800, chunk=40, batch_size=16, resume=True, checkpoint_seconds=0, progress=False)
"""


def test_killed_at_random_moments_it_ends_with_the_same_bits(dome, tmp_path):
    data = tmp_path / "dome.safetensors"
    store.save(dome, data)
    # Compiled once for all the processes; what is tested is what happens between compiling and the end.
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}

    def begin(out: str) -> subprocess.Popen[bytes]:
        text = KILLED.format(tests=str(Path(__file__).parent), data=str(data), out=str(tmp_path / out))
        return subprocess.Popen([sys.executable, "-c", text], env=os.environ | cache)

    assert begin("straight").wait(timeout=300) == 0
    straight = read_metrics(tmp_path / "straight" / "metrics.jsonl")
    chance, kills = random.Random(0), 0
    for part in (0.1, 0.35, 0.6, 0.85):  # of the work, and then a random moment later
        process = begin("killed")
        while process.poll() is None and len(read_metrics(tmp_path / "killed" / "metrics.jsonl")) < part * len(
            straight
        ):
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.2))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert begin("killed").wait(timeout=300) == 0
    assert kills >= 2
    assert same_files(tmp_path / "straight", tmp_path / "killed")
    assert not list((tmp_path / "killed").glob("pack-*"))
    assert read_metrics(tmp_path / "killed" / "metrics.jsonl") == straight


def test_probabilities_are_computed_once_for_every_dataset_and_sampler(dome, monkeypatch):
    asked = []
    monkeypatch.setattr(AW, "probabilities", lambda self, data: asked.append(self) or np.full(len(data), 1 / len(data)))
    runs = [*plan(dome, BC(hidden=TINY), "aw", seeds=2), *plan(dome, IQL(hidden=TINY), "aw", seeds=1)]
    train_runs(runs, **OPTIONS)
    assert len(asked) == 1


def test_a_run_that_turns_nan_is_named_and_the_others_go_on(dome, tmp_path, capsys):
    good, bad = IQL(hidden=TINY), IQL(hidden=TINY, learning_rate=1e30)
    runs = [Run(dome, algorithm, Uniform(), NoWeights(), 0, name) for name, algorithm in (("good", good), ("bad", bad))]
    trained = {one.run.name: one for one in train_runs(runs, out=tmp_path / "o", **OPTIONS)}
    assert trained["good"].failure is None
    assert "before step" in (trained["bad"].failure or "")
    assert "bad stopped" in capsys.readouterr().err
    alone = train_runs([runs[0]], **OPTIONS)[0]
    obs = dome.start_obs[:5]
    np.testing.assert_allclose(trained["good"].policy(obs), alone.policy(obs), atol=1e-5)
    with pytest.raises(BadInput, match="failed"):
        winnow.Policy.load(tmp_path / "o" / "bad.safetensors")


def test_a_folder_with_other_runs_is_refused(dome, tmp_path):
    runs = tiny_runs(dome)
    train_runs(runs, out=tmp_path / "o", **OPTIONS)
    with pytest.raises(BadInput, match="already holds runs"):
        train_runs(runs, out=tmp_path / "o", **OPTIONS)
    with pytest.raises(BadInput, match="other steps"):
        train_runs(runs, out=tmp_path / "o", resume=True, **{**OPTIONS, "steps": 80})
    with pytest.raises(BadInput, match="other runs"):
        train_runs(runs[:1], out=tmp_path / "o", resume=True, **OPTIONS)


def test_a_damaged_checkpoint_is_named(dome, tmp_path):
    out = tmp_path / "o"
    train_runs(tiny_runs(dome), out=out, **OPTIONS)
    (out / "pack-0.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(BadInput, match=r"pack-0\.safetensors: is damaged"):
        train_runs(tiny_runs(dome), out=out, resume=True, **OPTIONS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": IQL(expectile=1.5)}, r"algorithm.expectile is 1.5; it must be in \[0, 1\]"),
        ({"weighter": Dual(average="episode")}, "weighter.average is 'episode'; choose one of 'row', 'trajectory'"),  # type: ignore[arg-type]
        ({"name": "../climbs"}, "a run's name must be a file name"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(dome, tmp_path, change, message):
    settings = {"algorithm": IQL(hidden=TINY), "sampler": Uniform(), "weighter": NoWeights(), "name": "run"} | change
    with pytest.raises(BadInput, match=message):
        train_runs([Run(dome, seed=0, **settings)], out=tmp_path / "o", **OPTIONS)
    assert not (tmp_path / "o").exists()


def test_data_without_episodes_trains_with_row_weights_and_refuses_trajectory_methods():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(200, 3)), rng.uniform(-1, 1, (200, 2)), rng.random(200)
    bag = winnow.from_arrays(*columns, next_observations=rng.normal(size=(200, 3)), kind="bag", name="bag")
    for method in ("uniform", "dual-uniform", "dw-uniform"):
        one = train(bag, IQL(hidden=TINY), method, **OPTIONS)[0]
        assert one.failure is None
    for method in ("aw", "pf", "rw", "dual-aw"):
        with pytest.raises(BadInput, match=r"bag data.*dual-uniform"):
            train(bag, IQL(hidden=TINY), method, **OPTIONS)
    with pytest.raises(BadInput, match="no trajectory to average"):
        train(bag, IQL(hidden=TINY), "dual-uniform", weighter=Dual(average="trajectory"), **OPTIONS)


def test_metrics_reach_tensorboard_and_wandb(dome, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    runs = plan(dome, BC(hidden=TINY), "uniform", seeds=1)
    train_runs(runs, out=tmp_path / "o", log=("tensorboard", "wandb"), **OPTIONS)
    assert list((tmp_path / "o" / "tensorboard" / runs[0].name).glob("events*"))
    assert list((tmp_path / "o" / "wandb").glob("offline-run-*"))
    with pytest.raises(BadInput, match="there is no log 'mlflow'"):
        train_runs(runs, out=tmp_path / "p", log=("mlflow",), **OPTIONS)


def test_config_says_everything_that_was_asked_for(dome, tmp_path):
    train(dome, BC(hidden=TINY), "dual-aw", weighter=Dual(hidden=TINY, budget=1.5), out=tmp_path / "o", **OPTIONS)
    held = json.loads((tmp_path / "o" / "config.json").read_text())
    assert held["steps"] == 60
    assert held["runs"][0]["weighter"]["budget"] == 1.5
    assert held["runs"][0]["dataset"]["fingerprint"] == dome.fingerprint
