"""`winnow data …` as typed: what is written, what is said, and that bad input writes nothing and exits with 2."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from helpers.datasets import columns, dataset, files_in, source, write_hdf5

from winnow.cli import main
from winnow.commands._shared import bar
from winnow.data import store
from winnow.data.sources import open_dataset


@pytest.fixture
def sources(tmp_path):
    """A bad and a good source, as files."""
    low, high = tmp_path / "low.safetensors", tmp_path / "high.safetensors"
    store.save(source(0.1, name="random"), low)
    store.save(source(1, seed=1, name="expert"), high)
    return low, high


def test_import_writes_a_dataset_and_says_what_is_in_it(tmp_path, capsys):
    path, out = write_hdf5(tmp_path / "hopper.hdf5", columns()), tmp_path / "out" / "hopper.safetensors"
    words = ["data", "import", str(path), "--out", str(out), "--environment", "Hopper-v4", "--action-bounds", "-2", "2"]
    assert main(words) == 0
    data = store.load(out)
    assert data.fingerprint == dataset(action_bounds=(-2, 2)).fingerprint
    assert (data.meta.name, data.meta.environment) == ("hopper", "Hopper-v4")
    said = capsys.readouterr().out
    for word in ("8 in 3 episodes, 1 terminal", "Hopper-v4", "data 8"):
        assert word in said


def test_import_of_unordered_rows(tmp_path, capsys):
    path, out = tmp_path / "x.npz", tmp_path / "x.safetensors"
    np.savez(path, **{name: column[::-1] for name, column in columns().items()})
    assert main(["data", "import", str(path), "--out", str(out)]) == 2
    assert "--kind bag" in capsys.readouterr().err
    assert main(["data", "import", str(path), "--out", str(out), "--kind", "bag"]) == 0
    assert store.load(out).meta.kind == "bag"


@pytest.mark.parametrize("to", ["x.hdf5", "x.npz", "x.parquet", "minari:x-v0"])
def test_export_and_back(tmp_path, minari_home, to, capsys):
    path = tmp_path / "x.safetensors"
    store.save(dataset(), path)
    to = to if to.startswith("minari:") else str(tmp_path / to)
    assert main(["data", "export", str(path), "--to", to]) == 0
    assert "8 in 3 episodes" in capsys.readouterr().out
    assert open_dataset(to).fingerprint == dataset().fingerprint


@pytest.mark.parametrize("segments", [[], ["--segments"]])
def test_mix_and_the_same_again_from_the_recipe_alone(tmp_path, sources, segments, capsys):
    low, high = sources
    out, again = tmp_path / "mix.safetensors", tmp_path / "again.safetensors"
    words = ["data", "mix", "--low", f"random={low}", "--high", f"expert={high}", "--share", "0.2", "--rows", "600"]
    assert main([*words, "--seed", "3", *segments, "--out", str(out)]) == 0
    assert "random 480" in capsys.readouterr().out or segments
    data = store.load(out)
    assert data.meta.sources == ("random", "expert")
    recipe = tmp_path / "mix.safetensors.recipe.json"
    assert json.loads(recipe.read_text()) == data.meta.recipe

    assert main(["data", "mix", "--recipe", str(recipe), "--out", str(again)]) == 0
    assert again.read_bytes() == out.read_bytes()


def test_a_source_that_was_moved_is_named_again(tmp_path, sources, capsys):
    low, high = sources
    out, recipe = tmp_path / "mix.safetensors", tmp_path / "mix.safetensors.recipe.json"
    main(
        [
            "data",
            "mix",
            "--low",
            f"a={low}",
            "--high",
            f"b={high}",
            "--share",
            "0.2",
            "--rows",
            "600",
            "--out",
            str(out),
        ]
    )
    moved = high.rename(tmp_path / "moved.safetensors")
    again = ["data", "mix", "--recipe", str(recipe), "--out", str(tmp_path / "again")]
    capsys.readouterr()
    assert main(again) == 2
    assert "high.safetensors: there is no such file" in capsys.readouterr().err
    assert main([*again, "--source", f"b={moved}"]) == 0
    assert store.load(tmp_path / "again").fingerprint == store.load(out).fingerprint
    assert main([*again, "--source", f"b={low}"]) == 2
    assert "source 'b' holds other rows" in capsys.readouterr().err


BAD = [
    ("import {there}/nothing.hdf5 --out {out}", "no such file"),
    ("import {there}/nan.hdf5 --out {out}", "nan.hdf5: rewards, row 2: nan is not a finite number"),
    ("import {low} --out {there}", "is a folder"),
    ("import {low} --out {out} --max-steps 3", "is a winnow dataset already"),
    ("export {low} --to {there}/out.zip", "is no place to export to"),
    ("export {there}/nothing --to {there}/out.npz", "no such file"),
    ("export {low} --to minari:nov", "is not a Minari id"),
    ("mix --out {out}", "give --low LABEL=FILE"),
    ("mix --low {low} --high b={high} --share 0.1 --out {out}", "is not LABEL=FILE"),
    ("mix --low a={low} --high b={high} --share 5 --out {out}", "share must be between 0 and 1, got 5.0"),
    ("mix --low a={low} --high a={high} --share 0.1 --out {out}", "labels must differ"),
    ("mix --low a={low} --high b={there}/nan.hdf5 --share 0.1 --out {out}", "rewards, row 2"),
    ("mix --low a={low} --high b={high} --share 0.1 --source c=d --out {out}", "--source goes with --recipe"),
    ("mix --recipe {there}/nothing.json --out {out}", "nothing.json: can't be read"),
    ("mix --recipe {low} --out {out}", "is not JSON"),
    ("mix --recipe {there}/list.json --out {out}", "must hold a JSON object"),
    ("mix --recipe {there}/empty.json --out {out}", "is missing or invalid"),
    ("mix --recipe {there}/empty.json --rows 3 --out {out}", "--recipe says all of it"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_input_is_one_line_exit_code_two_and_no_file(tmp_path, minari_home, sources, words, message, capsys):
    write_hdf5(tmp_path / "nan.hdf5", columns() | {"rewards": np.array([0, 0, np.nan, 0, 0, 0, 0, 0])})
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "empty.json").write_text("{}")
    before = files_in(tmp_path)
    places = {"there": tmp_path, "out": tmp_path / "out", "low": sources[0], "high": sources[1]}
    assert main(["data", *(word.format(**places) for word in words.split())]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.startswith(f"winnow data {words.split()[0]}: ")
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert files_in(tmp_path) == before


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("data import", ["SOURCE", "--out", "--kind", "--max-steps", "--action-bounds", "--name", "--environment"]),
        ("data import", ["--observations", "--reward-from", "--next-observations", "--columns", "--nan", "--json"]),
        ("data export", ["FILE", "--to"]),
        ("data mix", ["--out", "--low", "--high", "--share", "--rows", "--segments", "--seed", "--recipe", "--source"]),
        ("inspect", ["DATASET", "--json", "--discount"]),
    ],
)
def test_every_option_is_explained(command, options, capsys):
    with pytest.raises(SystemExit) as left:
        main([*command.split(), "--help"])
    assert left.value.code == 0
    lines = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()]
    for option in options:
        at = next(i for i, line in enumerate(lines) if line.startswith(option))
        words = lines[at].split("  ", 1)[1:] or [lines[at + 1]]
        assert words[0].strip()[:1].isalpha(), option


def test_the_command_line_as_a_program_shows_no_traceback(tmp_path):
    words = [sys.executable, "-m", "winnow.cli", "data", "import", str(tmp_path / "no"), "--out", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "there is no such file" in done.stderr


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_make_makes_a_set_that_opens_by_its_name(tmp_path, own_folder, capsys):
    name, out = "hopper-random-expert-50%", tmp_path / "set.safetensors"
    assert main(["data", "make", name, "--rows", "300", "--processes", "2"]) == 0
    said = capsys.readouterr().out
    assert "ready as hopper-random-expert-50%@300" in said
    assert "random" in said
    assert main(["inspect", f"{name}@300"]) == 0
    assert main(["data", "make", name, "--rows", "300", "--out", str(out)]) == 0
    assert store.load(out).fingerprint == open_dataset(f"{name}@300").fingerprint
    again = tmp_path / "again.safetensors"
    assert main(["data", "mix", "--recipe", f"{out}.recipe.json", "--out", str(again)]) == 0
    assert again.read_bytes() == out.read_bytes()


def test_make_refuses_what_it_can_not_make(tmp_path, own_folder, capsys):
    for words, said in (
        (["hoper-expert"], "did you mean hopper-expert"),
        (["hopper-expert", "--rows", "0"], "--rows is 0"),
        (["hopper-expert", "hopper-random", "--out", "x.safetensors"], "--out is one file"),
    ):
        assert main(["data", "make", *words]) == 2
        assert said in capsys.readouterr().err
    assert files_in(tmp_path) == set()


def test_list_shows_all_113_and_what_is_here(own_folder, capsys):
    assert main(["data", "list", "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert len(lines) == 113
    assert {line["on_disk"] for line in lines} == {"not here"}
    assert main(["data", "make", "hopper-random", "--rows", "100"]) == 0
    capsys.readouterr()
    assert main(["data", "list", "pools", "--json"]) == 0
    states = {line["name"]: line["on_disk"] for line in json.loads(capsys.readouterr().out)}
    assert states["hopper-random"] == "in part"
    assert states["ant-expert"] == "not here"
    assert main(["data", "list", "small"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "ant-random-expert-10%-small small 10 % expert in random not here" in said
    assert main(["data", "list", "tiny"]) == 2
    assert "choose from mixed" in capsys.readouterr().err


def test_long_work_without_a_terminal_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr("winnow.system.progress.QUIET_SECONDS", -1.0)
    with bar("hopper-random") as seen:
        seen(0, 0)  # nothing is known yet
        seen(250, 1000)
    assert capsys.readouterr().err == "hopper-random: 25%\n"


LOG = "temp_1,temp_2,set,yield,batch,note\n" + "".join(f"{i},{i * i},0.{i},1,{'ab'[i > 4]},x\n" for i in range(10))


def test_import_names_columns_and_prints_json_alone(tmp_path, capsys):
    path, out = tmp_path / "log.csv", tmp_path / "log.st"
    path.write_text(LOG.replace("2,4,", "2,,"))
    named = ["--observations", "temp_*", "--actions", "set", "--reward", "yield", "--episode", "batch"]
    words = ["data", "import", str(path), "--out", str(out), *named]
    assert main(words) == 2
    message = capsys.readouterr().err
    assert "log.csv: temp_2, row 2: nan is not a finite number" in message
    assert "--nan drop" in message
    assert not out.exists()
    assert main([*words, "--nan", "drop", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["observation_names"] == ["temp_1", "temp_2"]
    assert record["rows"] == len(store.load(out)) == 6
    assert record["fingerprint"] == store.load(out).fingerprint
    assert any("ignored: note" in note for note in record["notes"])

    file = tmp_path / "columns.toml"
    file.write_text('observations = "temp_1"\nactions = ["set"]\nreward = "yield"\nepisode = "batch"\n')
    assert main(["data", "import", str(path), "--out", str(out), "--columns", str(file)]) == 0
    assert "observations temp_1" in " ".join(capsys.readouterr().out.split())
    assert main(["data", "import", str(path), "--out", str(out), "--columns", str(file), *named[:2]]) == 2  # it wins
    assert "temp_2, row 2" in capsys.readouterr().err


def test_split_prints_json_alone(tmp_path, sources, capsys):
    low, _ = sources
    assert main(["data", "split", str(low), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["train"]["rows"] == 16 * 60
    assert record["held_out"]["rows"] == 4 * 60
    assert record["held_out"]["written"].endswith("low.held-out.safetensors")
