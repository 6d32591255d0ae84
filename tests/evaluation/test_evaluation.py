"""Evaluation: which leaves a policy is, when it is played, what is kept, and what a kill leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from helpers import random_hopper
from helpers.counter_env import Counter
from helpers.problems import ALGORITHM_CASES, SPEC, quick_compiles
from helpers.random_hopper import OPTIONS

from winnow import envs, toy
from winnow.algorithms import ALGORITHMS, BC
from winnow.errors import BadInput
from winnow.evaluation.background import Rounds
from winnow.evaluation.play import evaluate
from winnow.evaluation.records import Round, score_of
from winnow.evaluation.settings import Evaluation
from winnow.packs.pack import Pack
from winnow.packs.run import Run
from winnow.packs.step import act
from winnow.policy import stacked
from winnow.samplers import Uniform
from winnow.system.metrics import read_metrics
from winnow.training import train_runs
from winnow.training.trained import Trained
from winnow.weighters import NoWeights

OFTEN = Evaluation(episodes=4, rounds=3, spacing=10, curve=2, processes=1)


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """In the process that plays as well: the same program gives the same bits."""
    with quick_compiles(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
        yield


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(envs, "TABLE", dict(envs.TABLE))


# ------------------------------------------------------------------------------------------ what a policy is


@pytest.mark.parametrize("name", ALGORITHM_CASES)
def test_exactly_the_leaves_that_act_reads_are_kept(name):
    algorithm = ALGORITHM_CASES[name]
    state = algorithm.init(jax.random.key(0), SPEC)
    obs = np.random.default_rng(0).normal(size=(5, SPEC.obs_dim)).astype(np.float32)
    usual = np.asarray(algorithm.act(state, obs))
    kept = stacked.pruned(algorithm, SPEC, state)
    leaves, structure = jax.tree.flatten(state)
    read = [leaf is not None for leaf in structure.flatten_up_to(kept)]
    assert 0 < sum(read) < len(read) / 3

    def spoilt(which):
        spoilt = [leaf * np.nan if spoil else leaf for leaf, spoil in zip(leaves, which, strict=True)]
        return np.asarray(algorithm.act(jax.tree.unflatten(structure, spoilt), obs))

    np.testing.assert_array_equal(spoilt([not kept for kept in read]), usual)
    for number in np.flatnonzero(read):
        assert not np.array_equal(spoilt(np.arange(len(read)) == number), usual), number


def test_actors_act_as_their_pack_and_tell_which_are_finite():
    runs = random_hopper.runs(seeds=3)
    pack = Pack(runs, 60, 16)
    pack.advance(5)
    pack.learners = jax.tree.map(lambda leaf: leaf.at[1].set(np.nan) if leaf.ndim == 3 else leaf, pack.learners)
    held = stacked.of_pack(pack)
    obs = np.random.default_rng(0).normal(size=(3, 7, 11)).astype(np.float32)
    usual = jax.vmap(act)(pack.lanes, pack.learners.algorithm, jax.numpy.asarray(obs))
    np.testing.assert_allclose(held.on_cpu()(obs), usual, atol=1e-6)
    np.testing.assert_array_equal(held.on_cpu()(obs[:, :1]), held.on_cpu()(obs)[:, :1])
    assert held.finite() == [True, False, True]


# ---------------------------------------------------------------------------------------------- when and what


def test_the_usual_rounds_are_the_papers_and_a_sparse_curve():
    steps = Evaluation().steps(1_000_000)
    last = [step for step, number in steps.items() if number]
    assert last == list(range(991_000, 1_000_001, 1_000))
    assert [steps[step] for step in last] == list(range(1, 11))
    early = [step for step, number in steps.items() if number is None]
    assert len(early) == 10
    assert all(step % 1_000 == 0 for step in early)
    assert max(abs(np.diff([0, *early, 991_000]) - 991_000 / 11)) <= 1_000
    assert list(steps) == sorted(steps)


def test_short_runs_have_fewer_rounds():
    assert Evaluation().steps(400) == {400: 1}
    assert list(Evaluation().steps(3_500)) == [500, 1_500, 2_500, 3_500]
    assert OFTEN.steps(60) == {10: None, 30: None, 40: 1, 50: 2, 60: 3}
    with pytest.raises(BadInput, match=r"evaluation\.episodes must be at least 1, got 0"):
        Evaluation(episodes=0).check()


def test_a_score_is_the_mean_over_the_last_rounds():
    def made(number, score):
        return Round("run", 10, number, "hopper", [1.0], [1], score)

    assert score_of([made(None, 90.0), made(1, 10.0), made(2, 20.0)]) == 15.0
    assert score_of([made(1, None), made(2, 20.0)]) is None
    assert score_of([]) is None


# ------------------------------------------------------------------------------------------------ with training


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Two runs trained and evaluated without a disturbance, and every policy kept."""
    out = tmp_path_factory.mktemp("straight") / "out"
    trained = train_runs(random_hopper.runs(), out=out, evaluate=Evaluation(**vars(OFTEN) | {"keep": True}), **OPTIONS)
    return out, trained


def test_every_round_of_every_run_has_a_line(straight):
    out, trained = straight
    lines = read_metrics(out / "returns.jsonl")
    assert [(line["run"], line["step"], line["round"]) for line in lines] == [
        (run.name, step, number) for step, number in OFTEN.steps(60).items() for run in random_hopper.runs()
    ]
    assert all(len(line["returns"]) == len(line["lengths"]) == 4 for line in lines)
    assert lines[0]["score"] == pytest.approx(np.mean(envs.normalised("hopper", lines[0]["returns"])))  # pyright: ignore
    for one in trained:
        assert [played.line() for played in one.rounds] == [line for line in lines if line["run"] == one.run.name]
        assert one.score == pytest.approx(np.mean([played.score for played in one.rounds[-3:]]))
    assert len({tuple(line["returns"]) for line in lines}) == len(lines)


def test_a_run_read_again_has_its_rounds(straight):
    out, trained = straight
    for run, one in zip(random_hopper.runs(), trained, strict=True):
        again = Trained.load(out / f"{run.name}.safetensors", run.dataset)
        assert (again.rounds, again.score) == (one.rounds, one.score)


def test_scores_reach_tensorboard_and_wandb(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logs, out = ("tensorboard", "wandb"), tmp_path / "o"
    trained = train_runs(random_hopper.runs(), out=out, evaluate=OFTEN, log=logs, **OPTIONS)
    for one in trained:
        events = EventAccumulator(str(out / "tensorboard" / one.run.name), size_guidance={"tensors": 0})
        events.Reload()
        for name, values in (
            ("evaluation/score", [played.score for played in one.rounds]),
            ("evaluation/return", [np.mean(played.returns) for played in one.rounds]),
        ):
            found = {event.step: make_ndarray(event.tensor_proto).item() for event in events.Tensors(name)}
            assert found == pytest.approx(dict(zip([played.step for played in one.rounds], values, strict=True)))
    files = list((out / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert all(b"evaluation/score" in file.read_bytes() for file in files)


def test_evaluating_changes_no_bit_of_training(straight, tmp_path):
    out, _ = straight
    train_runs(random_hopper.runs(), out=tmp_path / "o", **OPTIONS)
    for name in [f"{run.name}.safetensors" for run in random_hopper.runs()]:
        assert (out / name).read_bytes() == (tmp_path / "o" / name).read_bytes()
    assert (out / "metrics.jsonl").read_bytes() == (tmp_path / "o" / "metrics.jsonl").read_bytes()
    assert not (tmp_path / "o" / "policies").exists()


def test_without_a_folder_the_rounds_are_the_same(straight):
    _, trained = straight
    again = train_runs(random_hopper.runs(), evaluate=OFTEN, **OPTIONS)
    assert [one.rounds for one in again] == [one.rounds for one in trained]


def test_kept_policies_can_be_played_again(straight):
    out, trained = straight
    lines = read_metrics(out / "returns.jsonl")
    assert [played.line() for played in evaluate(out, 4, all_rounds=True)] == lines
    second = trained[1].run.name
    alone = evaluate(out / f"{second}.safetensors", 4, all_rounds=True)
    assert [played.line() for played in alone] == [line for line in lines if line["run"] == second]


def test_finished_runs_and_what_train_returns_are_played_alike(straight):
    out, trained = straight
    files, objects = evaluate(out, 3), evaluate(trained, 3)
    assert files == objects
    assert [played.round for played in files] == [None, None]
    same = evaluate([trained[0], trained[1]], 3, seed=1)
    assert same[1] == objects[1]
    assert same[0] != objects[0]


def test_a_finished_folder_is_taken_up_as_it_is(straight, tmp_path):
    out, trained = straight
    before = (out / "returns.jsonl").read_bytes()
    keeping = Evaluation(**vars(OFTEN) | {"keep": True})
    again = train_runs(random_hopper.runs(), out=out, resume=True, evaluate=keeping, **OPTIONS)
    assert (out / "returns.jsonl").read_bytes() == before
    assert [one.rounds for one in again] == [one.rounds for one in trained]
    with pytest.raises(BadInput, match="other evaluation"):
        train_runs(random_hopper.runs(), out=out, resume=True, **OPTIONS)


def test_a_run_that_fails_is_not_played(tmp_path):
    data, good, bad = random_hopper.dataset(), BC(hidden=(8, 8)), BC(hidden=(8, 8), learning_rate=1e30)
    runs = [Run(data, algorithm, Uniform(), NoWeights(), 0, name) for name, algorithm in (("good", good), ("bad", bad))]
    trained = {one.run.name: one for one in train_runs(runs, out=tmp_path / "o", evaluate=OFTEN, **OPTIONS)}
    assert [played.step for played in trained["good"].rounds] == [10, 30, 40, 50, 60]
    assert not trained["bad"].rounds
    assert not list((tmp_path / "o" / "policies").iterdir())
    played = evaluate(tmp_path / "o", 2)
    assert [one.failed is None for one in played] == [True, False]
    with pytest.raises(BadInput, match="no policy to evaluate: bad failed"):
        evaluate(tmp_path / "o" / "bad.safetensors")


def test_where_there_is_no_environment_a_line_says_so(capsys):
    runs = random_hopper.runs(toy.make(toy.random, 300, 0, "dome"), seeds=1)
    unnamed = random_hopper.runs(random_hopper.dataset(environment=None), seeds=1)
    other = random_hopper.runs(random_hopper.dataset(environment="walker2d").describe(name="legs"), seeds=1)
    trained = train_runs([*runs, *unnamed, *other], evaluate=OFTEN, **OPTIONS)
    assert not any(one.rounds for one in trained)
    said = capsys.readouterr().err
    assert "dome: there is no environment to evaluate in: there is no environment 'dome'" in said
    assert "hops: there is no environment to evaluate in: the data does not say" in said
    assert "legs: there is no environment to evaluate in: walker2d: its obs_dim is 17, and 11 in the data" in said
    with pytest.raises(BadInput, match=r"hops.*: can't be played \(the data does not say"):
        evaluate([one for one in trained if one.run.dataset.meta.name == "hops"])


def test_an_environment_that_breaks_does_not_stop_the_training(table, tmp_path, capsys):
    envs.register("breaks", Counter, 9, fault="raise")
    runs = random_hopper.runs(random_hopper.dataset(environment="breaks", obs_dim=2, action_dim=1), seeds=1)
    trained = train_runs(runs, evaluate=OFTEN, **OPTIONS)
    assert trained[0].failure is None
    assert "the hinge broke" in capsys.readouterr().err
    with pytest.raises(BadInput, match="training finished but evaluation failed"):
        train_runs(runs, out=tmp_path / "o", evaluate=OFTEN, **OPTIONS)
    assert len(list((tmp_path / "o" / "policies").iterdir())) == 5
    envs.register("breaks", Counter, 9)  # mended
    mended = train_runs(runs, out=tmp_path / "o", evaluate=OFTEN, resume=True, **OPTIONS)
    assert [played.step for played in mended[0].rounds] == [10, 30, 40, 50, 60]
    envs.register("breaks", Counter, 9, fault="raise")
    with pytest.raises(BadInput, match=r"breaks: can't be played[\s\S]*the hinge broke"):
        evaluate(mended)


def test_an_algorithm_that_cannot_travel_is_refused_at_once(monkeypatch):
    class Local(BC):
        pass

    monkeypatch.setitem(ALGORITHMS, "local", Local)
    run = Run(random_hopper.dataset(), Local(hidden=(8, 8)), Uniform(), NoWeights())
    with pytest.raises(BadInput, match="can't be evaluated during training"):
        train_runs([run], evaluate=OFTEN, **OPTIONS)


# ---------------------------------------------------------------------------------------------- disturbed


KILLED = """
import sys
sys.path.insert(0, {tests!r})
from helpers import random_hopper
from winnow.evaluation import Evaluation
from winnow.training import train_runs
often = Evaluation(episodes=3, rounds=4, spacing=100, curve=6, processes=1)
options = dict(steps=1200, chunk=50, batch_size=16, resume=True, checkpoint_seconds=0, progress=False, largest_pack=1)
train_runs(random_hopper.runs(), out={out!r}, evaluate=often, **options)
"""


def test_killed_at_any_moment_it_ends_with_the_same_returns(tmp_path):
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}

    def begin(out: str) -> subprocess.Popen[bytes]:
        text = KILLED.format(tests=str(Path(__file__).parents[1]), out=str(tmp_path / out))
        return subprocess.Popen([sys.executable, "-c", text], env=os.environ | cache)

    assert begin("straight").wait(timeout=300) == 0
    whole = read_metrics(tmp_path / "straight" / "returns.jsonl")
    kills = 0
    for part in (0.2, 0.7):
        process = begin("killed")
        while process.poll() is None and len(read_metrics(tmp_path / "killed" / "returns.jsonl")) < part * len(whole):
            time.sleep(0.01)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert begin("killed").wait(timeout=300) == 0
    assert kills == 2
    straight, killed = ((tmp_path / name / "returns.jsonl").read_bytes() for name in ("straight", "killed"))
    assert straight == killed
    assert not list((tmp_path / "killed" / "policies").iterdir())


def test_the_process_that_plays_may_die(straight, tmp_path, monkeypatch, capsys):
    def dying(self):
        start(self)
        self._child.kill()

    start = Rounds._start
    monkeypatch.setattr(Rounds, "_start", dying)
    with pytest.raises(BadInput, match="training finished but evaluation failed"):
        train_runs(random_hopper.runs(), out=tmp_path / "o", evaluate=OFTEN, **OPTIONS)
    monkeypatch.setattr(Rounds, "_start", start)
    assert "its process died with exit code -9" in capsys.readouterr().err
    train_runs(random_hopper.runs(), out=tmp_path / "o", resume=True, evaluate=OFTEN, **OPTIONS)
    assert (tmp_path / "o" / "returns.jsonl").read_bytes() == (straight[0] / "returns.jsonl").read_bytes()


def test_what_a_kill_leaves_is_sorted_out(tmp_path):
    """A torn line, a round that is written in part, one that training will pass again, and one that was not played."""
    out = tmp_path / "o"
    keeping = Evaluation(**vars(OFTEN) | {"keep": True})
    train_runs(random_hopper.runs(), out=out, evaluate=keeping, **OPTIONS)
    lines = (out / "returns.jsonl").read_text().splitlines(keepends=True)
    wanted = (out / "returns.jsonl").read_bytes()
    (out / "returns.jsonl").write_text("".join(lines[:7]) + lines[7][:30])
    train_runs(random_hopper.runs(), out=out, resume=True, evaluate=OFTEN, **OPTIONS)
    assert (out / "returns.jsonl").read_bytes() == wanted
    assert not list((out / "policies").iterdir())
