"""`winnow train` with its rounds of evaluation, and `winnow evaluate`, from the words to the files."""

from __future__ import annotations

import json
import re

import pytest
from helpers import random_hopper

from winnow import envs, toy
from winnow.cli import main
from winnow.data import store
from winnow.system.metrics import read_metrics


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two runs on Hopper data, trained by the command line, and what it said."""
    folder = tmp_path_factory.mktemp("evaluate")
    store.save(random_hopper.dataset(), folder / "hops.st")
    words = ["train", str(folder / "hops.st"), "--out", str(folder / "out"), "--algorithm", "bc", "--method", "uniform"]
    words += ["--seeds", "2", "--steps", "40", "--chunk", "20", "--batch-size", "16", "--algorithm.hidden", "8", "8"]
    words += ["--evaluation.episodes", "3", "--evaluation.rounds", "2", "--evaluation.spacing", "10"]
    assert main([*words, "--evaluation.curve", "1", "--evaluation.processes", "1"]) == 0
    return folder


def test_training_plays_its_policies(trained):
    lines = read_metrics(trained / "out" / "returns.jsonl")
    assert [(line["run"][-1], line["step"], line["round"]) for line in lines] == [
        (seed, step, number) for step, number in ((20, None), (30, 1), (40, 2)) for seed in "01"
    ]
    assert not list((trained / "out" / "policies").iterdir())


def test_a_table_of_a_folder(trained, capsys):
    assert main(["evaluate", str(trained / "out"), "--episodes", "2", "--processes", "1"]) == 0
    shown = capsys.readouterr().out
    assert re.match(r"hops\.bc\.uniform\.… *\n", shown)
    assert re.search(r"^seed0 .*\nseed1 ", shown, re.MULTILINE)
    assert "score" in shown
    assert "steps/s" in shown


def test_one_object_for_programs_and_lines_in_a_file(trained, capsys):
    run = str(trained / "out" / "hops.bc.uniform.seed1.safetensors")
    assert main(["evaluate", run, "--episodes", "2", "--json", "--out", str(trained / "returns.jsonl")]) == 0
    shown = capsys.readouterr()
    assert not shown.err
    (line,) = json.loads(shown.out)["runs"]
    assert line == json.loads((trained / "returns.jsonl").read_text())
    assert (line["run"], line["step"], line["environment"]) == ("hops.bc.uniform.seed1", 40, "hopper")
    assert len(line["returns"]) == len(line["lengths"]) == 2
    assert main(["evaluate", run, "--episodes", "2", "--json", "--seed", "7"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["returns"] != line["returns"]


def test_an_environment_without_references_has_raw_returns(trained, capsys, monkeypatch):
    monkeypatch.setattr(envs, "TABLE", dict(envs.TABLE))
    envs.register("my-hopper", "Hopper-v5", 10)
    run = str(trained / "out" / "hops.bc.uniform.seed0.safetensors")
    assert main(["evaluate", run, "--episodes", "1", "--environment", "my-hopper"]) == 0
    assert "raw returns only: my-hopper has no reference returns" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["OUT", "--environment", "hoper"], "there is no environment 'hoper'; did you mean hopper"),
        (["OUT", "--environment", "ant"], "ant: its obs_dim is 27, and 11 in the data"),
        (["OUT", "--episodes", "0"], "episodes must be at least 1, got 0"),
        (["OUT", "--all-rounds"], "the policies of its rounds were not kept"),
        (["OUT", "--video", "film.avi"], "film.avi: a video is written as .gif or .mp4"),
        (["OUT/config.json"], "is damaged or was not written by winnow"),
        (["nowhere"], "nowhere: there is no such file"),
        ([], "no run is given"),
    ],
)
def test_bad_words_get_a_line_and_exit_code_2(trained, words, message, capsys):
    given = [word.replace("OUT", str(trained / "out")) for word in words]
    assert main(["evaluate", *given]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_data_of_an_unknown_environment_is_trained_on_all_the_same(tmp_path, capsys):
    store.save(toy.make(toy.random, 300, 0, "dome"), tmp_path / "dome.st")
    words = ["train", str(tmp_path / "dome.st"), "--out", str(tmp_path / "out"), "--algorithm", "bc", "--seeds", "1"]
    words += ["--method", "uniform", "--steps", "20", "--chunk", "20", "--algorithm.hidden", "8"]
    assert main(words) == 0
    assert "dome: there is no environment to evaluate in" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "out")]) == 2
    assert "there is no environment 'dome'" in capsys.readouterr().err
    assert main([*words, "--no-evaluate", "--resume"]) == 2
    assert "other evaluation" in capsys.readouterr().err


def test_a_film_or_the_reason_why_there_is_none(trained, capsys, monkeypatch):
    run, video = str(trained / "out" / "hops.bc.uniform.seed0.safetensors"), trained / "film.gif"
    words = ["evaluate", run, "--episodes", "1", "--video", str(video)]
    monkeypatch.setenv("MUJOCO_GL", "disable")
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "hopper: can't be rendered here (disable: " in error
    assert "libegl1" in error
    assert not video.exists()
    monkeypatch.delenv("MUJOCO_GL")
    if main(words) == 2:
        assert "can't be rendered here" in capsys.readouterr().err
        pytest.skip("there is no renderer here")
    assert video.read_bytes().startswith(b"GIF89a")
