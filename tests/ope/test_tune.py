"""Choosing a method without an environment: the schedule, candidates, the choice, and going on after a stop."""

from __future__ import annotations

import json
import shlex

import pytest

from winnow import toy
from winnow.cli import main
from winnow.data import store
from winnow.data.advice import advise
from winnow.data.dataset import combine
from winnow.errors import BadInput
from winnow.ope import tune
from winnow.ope.candidates import GRID, Candidate, usual
from winnow.ope.fqe import FQE
from winnow.ope.ranking import MethodEstimate
from winnow.ope.tune import Tuning, schedule, ties
from winnow.ope.weighted_reward import Interval

SMALL = Tuning(
    algorithm="bc", runs=4, steps=60, batch_size=32, hidden=(8,), fqe=FQE(steps=60, fits=2, hidden=(8,), batch_size=32)
)


@pytest.mark.parametrize("candidates", [2, 3, 5, 12, 40])
@pytest.mark.parametrize("runs", [2, 3, 4, 7, 24, 100])
def test_the_schedule_keeps_within_its_runs_and_narrows_down(candidates, runs):
    rounds = schedule(candidates, runs)
    assert sum(stay * each for stay, each in rounds) <= runs
    assert sum(stay * each for stay, each in rounds) >= min(runs, candidates) - 1
    assert rounds[0] == (min(candidates, max(2, runs // 2)), 1)
    assert [stay for stay, _ in rounds] == sorted((stay for stay, _ in rounds), reverse=True)


def test_the_usual_search_spends_all_its_runs():
    assert schedule(len(GRID), 24) == [(12, 1), (4, 1), (2, 4)]
    with pytest.raises(BadInput, match="at least 2 candidates and 2 runs"):
        schedule(1, 24)


def test_a_candidate_by_its_words():
    one = Candidate.parse("dual-aw:weighter.budget=0.5, sampler.temperature=1")
    assert one.label == "dual-aw~budget=0.5~temperature=1"
    assert one.options == ["--method", "dual-aw", "--weighter.budget", "0.5", "--sampler.temperature", "1"]
    sampler, weighter = one.parts("iql", (16,))
    assert (sampler.temperature, weighter.budget, weighter.hidden) == (1.0, 0.5, (16,))
    assert len({one.label for one in GRID}) == len(GRID)
    for one in GRID:
        one.parts("iql", None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("magic", "no method"),
        ("aw:temperature=1", "must be sampler.NAME"),
        ("aw:sampler.temperature=hot", "must be sampler.NAME"),
        ("aw:sampler.heat=1", "no number 'heat'"),
        ("dw-aw:weighter.form=1", "no number 'form'"),
    ],
)
def test_a_candidate_that_is_none_is_refused(text, reason):
    with pytest.raises(BadInput, match=reason):
        Candidate.parse(text).parts("iql", None)


def test_a_lead_of_a_ten_thousandth_is_a_tie_and_a_clear_one_is_not():
    def line(name: str, value: float, half: float) -> MethodEstimate:
        return MethodEstimate(name, 2, Interval(value, value - half, value + half), 0.5, None)

    close = [line("dw-aw", 0.6123, 0.01), line("aw", 0.6122, 0.01), line("pf", 0.5, 0.01)]
    assert ties(close[0], close) == ["dw-aw", "aw"]
    clear = [line("dw-aw", 0.7, 0.04), line("aw", 0.6122, 0.04)]
    assert ties(clear[0], clear) == ["dw-aw"]


def test_the_simplest_candidate_learns_least():
    names = ["dual-aw", "dw-uniform", "continued", "aw", "aw:sampler.temperature=1", "uniform"]
    order = sorted(map(Candidate.parse, names), key=lambda item: item.cost)
    assert [item.label for item in order] == ["uniform", "aw", "aw~temperature=1", "continued", "dw-uniform", "dual-aw"]


def test_auto_is_the_first_candidate(dome):
    data = store.load(dome)
    labels = [candidate.label for candidate in usual(data)]
    assert labels[0] == advise(data).method
    assert sorted(labels) == sorted({candidate.label for candidate in GRID} | {labels[0]})
    assert Candidate("auto", (("sampler.temperature", 1.0),)).resolved(data).settings == (("sampler.temperature", 1.0),)


@pytest.fixture(scope="module")
def dome(tmp_path_factory):
    path = tmp_path_factory.mktemp("tune") / "dome.safetensors"
    parts = {"random": toy.make(toy.random, 900, 0), "expert": toy.make(toy.expert, 1_000, 1)}
    store.save(combine(parts, name="dome"), path)
    return path


def test_a_search_that_ends_in_a_tie_takes_the_simplest_and_can_be_resumed(dome, tmp_path, monkeypatch):
    data = store.load(dome)
    candidates = [Candidate("uniform"), Candidate("pf"), Candidate("aw", (("sampler.temperature", 1.0),))]
    choice = tune.tune(data, tmp_path / "t", SMALL, candidates, progress=False)
    # With 4 runs two candidates are tried, and both are trained twice.
    assert {one.method: one.runs for one in choice.table} == {"uniform": 2, "pf": 2}
    # Their intervals overlap, so neither is the winner, and the simpler one is taken.
    assert choice.tied == [line.method for line in choice.table]
    assert choice.chosen.label == "uniform"
    assert choice.runner_up == "pf"
    assert choice.probability == pytest.approx(choice.ahead, abs=1e-9)
    assert any("too few to try aw~temperature=1" in note for note in choice.notes)
    with pytest.raises(BadInput, match="--resume"):
        tune.tune(data, tmp_path / "t", SMALL, candidates, progress=False)
    with pytest.raises(BadInput, match="another search"):
        tune.tune(data, tmp_path / "t", SMALL, candidates[1:], resume=True, progress=False)
    # Taken up again, nothing is fitted twice and the answer is the same.
    monkeypatch.setattr(tune.fqe, "evaluate", None)
    again = tune.tune(data, tmp_path / "t", SMALL, candidates, resume=True, progress=False)
    assert again.record() == choice.record()


def test_a_search_that_was_stopped_between_rounds_leaves_the_same_bits(dome, tmp_path):
    data, values, early = store.load(dome), tmp_path / "t" / "values.safetensors", []
    candidates = [Candidate("uniform"), Candidate("pf")]

    def stop(line):
        if line.startswith("round 2"):
            early.append(values.read_bytes())

    tune.tune(data, tmp_path / "t", SMALL, candidates, progress=False, say=stop)
    whole = values.read_bytes()
    values.write_bytes(early[0])
    tune.tune(data, tmp_path / "t", SMALL, candidates, resume=True, progress=False)
    assert values.read_bytes() == whole != early[0]


FAST = ["--algorithm", "bc", "--steps", "50", "--batch-size", "32", "--hidden", "8", "--fqe.steps", "50"]
FAST += ["--fqe.fits", "2", "--fqe.hidden", "8", "--fqe.batch-size", "32"]


def test_the_command_writes_words_that_train_takes(dome, tmp_path, capsys):
    out = tmp_path / "t"
    words = ["tune", str(dome), "--out", str(out), "--candidates", "uniform", "pf:sampler.share=0.5", "--runs", "2"]
    assert main([*words, "--json", *FAST]) == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["table"]) == 2
    chosen = shlex.split((out / "chosen.words").read_text())
    assert chosen == said["words"]
    assert main(["train", *chosen, "--seeds", "1", "--no-evaluate", "--out", str(tmp_path / "runs")]) == 0
    assert len(list((tmp_path / "runs").glob("*.bc.*.seed0.safetensors"))) == 1
    capsys.readouterr()
    assert main([*words, "--resume", *FAST]) == 0
    printed = capsys.readouterr().out
    assert "tie: the intervals of" in printed
    assert ", the simplest of these; more --runs may separate them" in printed


def test_the_command_refuses_bad_input_before_anything_is_trained(dome, tmp_path, capsys):
    cases = [
        (["--candidates", "uniform", "magic"], "no method"),
        (["--candidates", "uniform", "uniform"], "got uniform twice"),
        (["--candidates", "uniform"], "at least 2 candidates and 2 runs"),
        (["--runs", "1"], "at least 2 candidates and 2 runs"),
        (["--steps", "0"], "steps must be at least 1"),
        (["--share", "1"], "share"),
        (["--held-out", str(tmp_path / "gone.safetensors")], "no such file"),
    ]
    for words, reason in cases:
        assert main(["tune", str(dome), "--out", str(tmp_path / "t"), *FAST, *words]) == 2, words
        assert reason in capsys.readouterr().err
        assert not (tmp_path / "t").exists()
