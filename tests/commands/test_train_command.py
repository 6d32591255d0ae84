"""`winnow train` and `winnow weights` from the words to the files."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet
import pytest

from winnow import toy
from winnow.cli import main
from winnow.data import store
from winnow.data.recipes import mixed


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A dataset, and three methods trained on it by one command."""
    folder = tmp_path_factory.mktemp("train")
    low, high = toy.make(toy.random, 1_000, 0, "random"), toy.make(toy.expert, 400, 1, "expert")
    store.save(mixed(low, high, 0.2, 1_000, low_label="random", high_label="expert", name="dome"), folder / "dome.st")
    words = ["train", str(folder / "dome.st"), "--out", str(folder / "out"), "--algorithm", "td3bc"]
    words += ["--method", "uniform,aw,dual-aw", "--seeds", "2", "--steps", "40", "--chunk", "20", "--batch-size", "16"]
    words += ["--algorithm.hidden", "8", "8", "--algorithm.alpha=1.5", "--weighter.dual.hidden", "8", "8"]
    assert main(words) == 0
    return folder


def test_the_words_reach_the_runs(runs):
    config = json.loads((runs / "out" / "config.json").read_text())
    assert [run["name"] for run in config["runs"]] == [
        f"dome.td3bc.{method}.seed{seed}" for method in ("uniform", "aw", "dual-aw") for seed in (0, 1)
    ]
    assert all(run["algorithm"]["alpha"] == 1.5 and run["algorithm"]["hidden"] == [8, 8] for run in config["runs"])
    assert config["runs"][-1]["weighter"]["hidden"] == [8, 8]
    assert config["runs"][-1]["sampler"] == {"name": "aw", "temperature": 5.0}  # as for small datasets


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("--method aw", "--sampler.temperature"),
        ("--method dw-aw,aw", "--sampler.temperature"),
        ("--method uniform,aw", "--sampler.aw.temperature"),
    ],
)
def test_a_temperature_that_the_size_of_a_dataset_chose_is_said_unless_it_was_given(
    runs, tmp_path, capsys, words, flag
):
    asked = [
        "train",
        str(runs / "dome.st"),
        "--algorithm",
        "cql",
        *words.split(),
        "--steps",
        "0",
        "--out",
        str(tmp_path),
    ]
    assert main(asked) == 2  # there is nothing to train
    said = capsys.readouterr().out
    assert said == (
        "dome: has only 1,004 rows, so aw's temperature is 5 in place of 0.2, as published for small sets; "
        f"{flag} sets it\n"
    )
    assert main([*asked, flag, "0.2"]) == 2
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (1568, ""),  # 399.8 times
        (
            20_000,
            "dome: 20,000 updates go 5,100 times over its 1,004 rows, which may be learnt by heart; "
            "compare with fewer, say --steps 800\n",
        ),
    ],
)
def test_updates_that_go_over_the_rows_very_often_are_said(runs, capsys, steps, said):
    file = str(runs / "dome.st")
    assert main(["train", file, "--method", "uniform", "--steps", str(steps), "--out", file]) == 2  # no folder
    assert capsys.readouterr().out == said


def test_weights_writes_a_line_for_every_row_and_a_picture(runs, capsys):
    run = runs / "out" / "dome.td3bc.dual-aw.seed0.safetensors"
    assert main(["weights", str(run), "--figure", str(runs / "w.png")]) == 0
    table = pyarrow.parquet.read_table(run.with_suffix(".weights.parquet")).to_pydict()
    data = store.load(runs / "dome.st")
    assert table["row"] == list(range(len(data)))
    assert table["episode"] == data.episode.tolist()
    assert table["step"] == data.step.tolist()
    assert table["source"] == [data.meta.sources[i] for i in data.source]
    assert np.mean(table["weight"]) == pytest.approx(1)
    assert (runs / "w.png").read_bytes().startswith(b"\x89PNG")
    assert "of the weight" in capsys.readouterr().out


def test_written_weights_can_be_trained_with(runs):
    run = runs / "out" / "dome.td3bc.dual-aw.seed0.safetensors"
    assert main(["weights", str(run), "--out", str(runs / "w.npy"), "--figure", str(runs / "w.svg")]) == 0
    words = ["train", str(runs / "dome.st"), "--out", str(runs / "fixed"), "--algorithm", "bc", "--sampler", "uniform"]
    words += ["--weighter", "fixed", "--weighter.path", str(runs / "w.npy"), "--steps", "20", "--seeds", "1"]
    assert main([*words, "--algorithm.hidden", "8"]) == 0
    assert (runs / "fixed" / "dome.bc.fixed-uniform.seed0.safetensors").exists()


def test_weights_refuses_another_dataset_and_odd_names(runs, tmp_path, capsys):
    run = str(runs / "out" / "dome.td3bc.dual-aw.seed0.safetensors")
    store.save(toy.make(toy.random, 300, 5, "other"), tmp_path / "other.st")
    assert main(["weights", run, "--dataset", str(tmp_path / "other.st")]) == 2
    assert "was trained on other rows than 'other' holds" in capsys.readouterr().err
    assert main(["weights", run, "--out", str(tmp_path / "w.xlsx")]) == 2
    assert "must end in .parquet, .npy, .csv, got 'w.xlsx'" in capsys.readouterr().err
    assert main(["weights", str(runs / "dome.st")]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.st"]
