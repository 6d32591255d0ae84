"""`winnow train` and `winnow weights` from the words to the files."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet
import pytest

from winnow import toy
from winnow.cli import main
from winnow.commands.train_help import METHOD_GROUPS
from winnow.data import store
from winnow.data.advice import AUTO
from winnow.data.recipes import mixed
from winnow.methods import METHODS
from winnow.system.checkpoint import read_record


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
    assert config["runs"][-1]["sampler"] == {"name": "aw", "temperature": 0.1}


def test_auto_is_the_default_and_says_what_it_chose_and_why(runs, tmp_path, capsys):
    words = ["train", str(runs / "dome.st"), "--algorithm", "bc", "--seeds", "1", "--no-evaluate"]
    words += ["--algorithm.hidden", "8", "--steps", "2", "--chunk", "2", "--batch-size", "8"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 0
    assert "dome: auto chose uniform: " in capsys.readouterr().err
    saved = read_record(tmp_path / "out" / "dome.bc.auto.seed0.safetensors")
    assert (saved["method"], saved["resolved_method"]) == ("auto", "uniform")
    assert main([*words, "--steps", "0", "--sampler", "aw", "--out", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (1568, ""),  # 399.8 times
        (
            20_000,
            "dome: 20,000 updates pass 5,100 times over its 1,004 rows, so the policy may overfit; "
            "compare with fewer, say --steps 800\n",
        ),
    ],
)
def test_updates_that_go_over_the_rows_very_often_are_said(runs, capsys, steps, said):
    file = str(runs / "dome.st")
    assert main(["train", file, "--method", "uniform", "--steps", str(steps), "--out", file]) == 2  # no folder
    shown = capsys.readouterr().err
    assert shown.startswith(said or "winnow train: ")


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


# ------------------------------------------------------------------------------- --json, --quiet and --config

TINY = [
    "--algorithm",
    "bc",
    "--steps",
    "20",
    "--chunk",
    "20",
    "--batch-size",
    "16",
    "--seeds",
    "1",
    "--algorithm.hidden",
    "8",
]


def test_json_prints_one_object_and_nothing_else(runs, tmp_path, capfd):
    words = ["train", str(runs / "dome.st"), "--out", str(tmp_path / "r"), "--method", "uniform,aw", "--json"]
    assert main([*words, "--sampler.aw.temperature", "0.1", *TINY]) == 0
    result = json.loads(capfd.readouterr().out)
    assert [run["method"] for run in result["runs"]] == ["uniform", "aw"]
    assert all((tmp_path / "r" / f"{run['name']}.safetensors").samefile(run["file"]) for run in result["runs"])
    assert result["runs"][0]["metrics"]["weight/ess"] == pytest.approx(1)
    run = result["runs"][1]["file"]
    assert main(["weights", run, "--json"]) == 0
    weights = json.loads(capfd.readouterr().out)
    assert sum(source["weight"] for source in weights["sources"].values()) == pytest.approx(1)
    assert weights["sources"]["expert"]["weight"] > weights["sources"]["expert"]["rows"]


def test_quiet_shows_errors_and_warnings_alone(runs, tmp_path, capfd):
    words = ["train", str(runs / "dome.st"), "--out", str(tmp_path / "r"), "--method", "uniform", "--quiet"]
    assert main([*words, *TINY]) == 0
    assert capfd.readouterr() == ("", "")
    assert main([*words, *TINY, "--json", "--resume"]) == 0
    shown = capfd.readouterr()
    assert json.loads(shown.out)["runs"][0]["steps"] == 20
    assert shown.err == ""
    assert main(words) == 2
    assert "holds runs" in capfd.readouterr().err


def test_a_written_config_trains_the_same_and_the_command_line_wins(runs, tmp_path, capsys):
    config = tmp_path / "train.toml"
    words = ["train", str(runs / "dome.st"), "--out", str(tmp_path / "r"), "--method", "uniform,aw"]
    words += ["--sampler.aw.temperature", "0.5", "--evaluation.episodes", "3", "--no-evaluate", *TINY]
    assert main([*words, "--write-config", str(config)]) == 0
    assert not (tmp_path / "r").exists()
    assert "# Updates of each run." in config.read_text()
    assert main(["train", "--config", str(config), "--steps", "10"]) == 0
    kept = json.loads((tmp_path / "r" / "config.json").read_text())
    assert kept["steps"] == 10
    assert kept["evaluation"] is None
    assert [run["sampler"].get("temperature") for run in kept["runs"]] == [None, 0.5]
    assert kept["runs"][0]["algorithm"]["hidden"] == [8]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step = 5", "the command has no option step; did you mean steps?"),
        ("[weighter]\nbudgett = 1.0", "the command has no option weighter.budgett; did you mean weighter.budget?"),
        ("resume = 1", "resume must be true or false, got 1"),
        ("steps 5", "is not TOML"),
    ],
)
def test_a_config_with_mistakes_is_refused_by_name(tmp_path, capsys, text, message):
    config = tmp_path / "train.toml"
    config.write_text(text)
    assert main(["train", "x", "--out", "o", "--method", "dual-aw", "--config", str(config)]) == 2
    assert f"winnow train: --config {config}: " in (shown := capsys.readouterr().err)
    assert message in shown


def test_a_config_works_for_commands_without_options_of_their_own(tmp_path, capsys):
    config = tmp_path / "list.toml"
    config.write_text('suite = ["small"]\njson = true\n')
    assert main(["data", "list", "--config", str(config)]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 8
    assert main(["data", "list", "mixed", "--no-json", "--config", str(config)]) == 0
    assert "datasets, " in capsys.readouterr().out
    assert main(["data", "list", "--config", str(tmp_path / "no.toml")]) == 2
    assert "no.toml: can't be read" in capsys.readouterr().err


def test_the_help_says_which_numbers_are_allowed(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help", "--algorithm", "iql", "--method", "dw-aw"])
    shown = capsys.readouterr().out
    for option in (
        "--algorithm.expectile FLOAT in [0, 1]",
        "--sampler.temperature FLOAT above 0",
        "--weighter.lambda-k FLOAT at least 0",
    ):
        assert option in shown
    assert "τ: 0.5 is the mean" in shown  # the field's own words are still there


def test_every_method_is_in_one_group_of_the_help_with_a_few_words():
    listed = [name for methods in METHOD_GROUPS.values() for name in methods]
    assert sorted(listed) == sorted([AUTO, *METHODS])
    assert all(len(words.split()) >= 3 for methods in METHOD_GROUPS.values() for words in methods.values())
