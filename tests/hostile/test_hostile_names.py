"""Names that lead elsewhere: refused wherever a name from a file or from the command line becomes a path."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.datasets import columns, dataset, files_in, write_hdf5
from helpers.hostile.corpus import minari, result_files, runs

from winnow.bench.results import collect
from winnow.cli import main
from winnow.data import store
from winnow.data.export import check_target
from winnow.data.minari import minari_metadata
from winnow.data.names import is_name
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.evaluation.candidates import candidates
from winnow.system.files import is_file_name
from winnow.training import train_runs
from winnow.training.planning import plan

CLIMBING = ["..", "../x", "a/../../x", "/etc/passwd", ".hidden", "a/b", "."]
DRIVES = ["\\\\host\\x", "a\\..\\x", "C:x", "C:\\x"]
UNSHOWN = ["a\0b", "a\nb", "\x1b[2J", "\ud800", "\u202e"]
LONG = "x" * 5_000
ODD = [*CLIMBING, *DRIVES, *UNSHOWN, LONG, ""]


@pytest.mark.parametrize("name", ODD)
def test_no_such_name_is_a_files(name):
    assert not is_file_name(name)


def test_names_of_datasets_and_candidates_are_files_names():
    for name in ("hopper-random-expert-5%@300.iql.dw-aw.seed0", "dual-aw:weighter.budget=1", "é.bc", "a b", "x" * 200):
        assert is_file_name(name)
    assert not any(is_file_name(name) for name in (None, 5, ["a"], {"a": 1}))


@pytest.mark.parametrize("name", [*UNSHOWN, LONG])
def test_a_dataset_is_not_called_so(name, tmp_path, capsys):
    path = write_hdf5(tmp_path / "x.hdf5", columns())
    assert main(["data", "import", str(path), "--out", str(tmp_path / "out"), f"--name={name}"]) == 2
    said = capsys.readouterr().err
    assert "x.hdf5: name must be one line" in said
    assert not any(letter in said for letter in "\0\x1b\u202e")
    assert files_in(tmp_path) == {"x.hdf5"}


@pytest.mark.parametrize("field", ["name", "environment", "sources"])
@pytest.mark.parametrize("name", [*UNSHOWN, LONG])
def test_no_file_calls_a_dataset_or_a_source_so(field, name, tmp_path):
    path = tmp_path / "x.safetensors"
    named: dict[str, Any] = {field: (name,) if field == "sources" else name}
    with pytest.raises(BadInput, match=rf"x\.safetensors: {field} must be one line"):
        store.save(dataset(**named), path)
    assert not path.exists()


@pytest.mark.parametrize("name", CLIMBING)
def test_no_run_is_called_so(name, tmp_path):
    """A run is named after its dataset, and its file after the run."""
    out = tmp_path / "deep" / "out"
    (run,) = plan(dataset(name=name), "bc", "uniform")
    assert is_file_name(run.name)
    with pytest.raises(BadInput, match="a run's name must be a file name"):
        train_runs([dataclasses.replace(run, name=name)], steps=1, out=out)
    assert files_in(tmp_path) == set()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "runs"
    folder.mkdir()
    runs(folder)
    (folder.parent / "x.safetensors").write_bytes((folder / "toy.bc.uniform.seed0.safetensors").read_bytes())
    return folder


@pytest.mark.parametrize("name", [*ODD, None, 5, {"a": "b"}])
def test_a_folder_of_runs_leads_to_no_other_folder(name, trained, capsys):
    config = trained / "config.json"
    good = config.read_text()
    config.write_text(json.dumps(json.loads(good) | {"runs": [{"name": name}]}))
    try:
        with pytest.raises(BadInput, match=r"config\.json: a run.s name must be a file name"):
            candidates(trained)
        assert main(["evaluate", str(trained), "--episodes", "1"]) == 2
    finally:
        config.write_text(good)
    assert "a run's name must be a file name" in capsys.readouterr().err
    assert [one.run for one in candidates(trained)] == ["toy.bc.uniform.seed0", "toy.bc.dw.seed0"]


@pytest.mark.parametrize("identity", [*ODD, "a//b", "a/..", "../secret/toy-v0"])
def test_a_minari_id_stays_in_minaris_folder(identity, minari_home, tmp_path):
    (tmp_path / "secret" / "toy-v0").mkdir(parents=True)
    minari(tmp_path / "secret" / "toy-v0")
    minari_home.mkdir()
    for read in (open_dataset, minari_metadata):
        with pytest.raises(BadInput, match=r"is not a Minari id|no such dataset"):
            read(f"minari:{identity}")
    before = files_in(tmp_path)
    if identity != "a/b":
        with pytest.raises(BadInput):
            check_target(f"minari:{identity}")
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("text", [*ODD, "hopper-expert@" + "9" * 5_000, "hopper-random-expert-" + "9" * 5_000 + "%"])
def test_no_dataset_of_the_benchmark_is_called_so(text):
    assert not is_name(text)
    with pytest.raises(BadInput, match=r"no such file|not a kind of file"):
        open_dataset(text or " ")


@pytest.mark.parametrize("identity", ["../x", "/etc/x", "a\0b", "x" * 300])
def test_a_results_id_is_its_hash_and_nothing_else(identity, tmp_path):
    path = result_files(tmp_path)[0]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"id": identity}))
    said: list[str] = []
    assert len(list(collect(tmp_path, said.append))) == 3
    assert path.name in said[0]
    assert files_in(tmp_path / "set-aside") == {path.name}


def test_what_a_command_says_of_a_file_does_not_move_the_cursor(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text("\x1b]0;evil\x07\x1b[2J,b\n1,2\n")
    assert main(["inspect", str(path)]) == 2
    said = capsys.readouterr().err
    assert "no column for observations" in said
    assert "\x1b" not in said
    assert "\x07" not in said
