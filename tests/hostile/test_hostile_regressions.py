"""What fuzzing has found, each as the smallest file that shows it. All of these once ended in another exception, a hang
or a process that took all memory."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from helpers.datasets import columns, dataset, source, write_hdf5
from helpers.hostile.corpus import KINDS, minari, runs, use_result
from helpers.made_results import planned, result

from winnow.bench.plan import digest
from winnow.bench.remaining import todo
from winnow.bench.results import thinned
from winnow.commands.data import read_recipe
from winnow.data import holdout, store
from winnow.data.dataset import Meta
from winnow.data.export import export
from winnow.data.recipes import Recipe, build, mixed, rebuild
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.evaluation.candidates import Snapshot, candidates
from winnow.evaluation.records import read_rounds
from winnow.policy import Policy
from winnow.render import figures
from winnow.report.runs import read
from winnow.system import checkpoint, locks
from winnow.system.files import claim
from winnow.system.metrics import read_metrics
from winnow.weighters.fixed import read_weights

DEEP = "[" * 100_000


def refused(act: Callable[[], Any], *words: str) -> None:
    with pytest.raises(BadInput) as caught:
        act()
    assert all(word in str(caught.value) for word in words), caught.value


# ------------------------------------------------------------------------------------------------------------- datasets


def test_words_in_hdf5_attributes_are_not_read(tmp_path):
    """HDF5 keeps them in a heap, and 16 zeros in a heap hold its library up for ever."""
    path = write_hdf5(tmp_path / "x.hdf5", columns())
    with h5py.File(path, "a") as file:
        file.attrs["winnow"] = "word" * 200
    raw = path.read_bytes()
    place = raw.index(b"wordword") + 400
    path.write_bytes(raw[:place] + bytes(200) + raw[place + 200 :])
    assert len(open_dataset(path)) == 8
    export(dataset(), tmp_path / "own.hdf5")
    with h5py.File(tmp_path / "own.hdf5") as file:
        assert not list(file.attrs)


def test_minaris_attributes_are_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    data = mixed(source(0.1), source(1.0, seed=1), 0.5, 500)
    export(data, "minari:toy/mixed-v0")
    assert open_dataset("minari:toy/mixed-v0").fingerprint == data.fingerprint
    with h5py.File(tmp_path / "toy" / "mixed-v0" / "data" / "main_data.hdf5", "a") as file:
        file["episode_0"].attrs["source_index"] = 99
    refused(lambda: open_dataset("minari:toy/mixed-v0"), "source, row 0: 99 is none of its 2 sources")


@pytest.mark.parametrize("text", ["[]", "5", "null", DEEP, '{"observation_space": 5}', '{"data_format": ["a"]}'])
def test_minaris_metadata(text, tmp_path):
    folder = minari(tmp_path)
    (folder / "metadata.json").write_text(text)
    refused(lambda: open_dataset(folder), str(folder))


def test_a_damaged_minari_file_of_weights(tmp_path):
    folder = minari(tmp_path)
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        del file["episode_0/infos/weight"]
        file.create_group("episode_0/infos/weight")
    refused(lambda: read_weights(str(folder)), str(folder))


def test_arrow_arrays_that_do_not_fit_together(tmp_path):
    """Arrow ends the whole process where an array is of a negative length."""
    folder = minari(tmp_path, "arrow")
    assert len(open_dataset(folder)) == 8
    (path,) = (folder / "0").glob("*.arrow")
    raw, length = path.read_bytes(), struct.pack("<qq", 8, 0)  # the numbers in the actions of four rows, none missing
    assert raw.count(length) >= 1
    path.write_bytes(raw.replace(length, struct.pack("<qq", 8 - 2**32, 0)))
    refused(lambda: open_dataset(folder), str(folder), "Invalid")


def test_an_npy_header_that_does_not_end(tmp_path):
    """numpy's parser of headers of Python 2 raises an error of its tokens."""
    text = b"{'descr': (\n"
    path = tmp_path / "weight.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    refused(lambda: read_weights(str(path)), "weight.npy")
    np.savez(tmp_path / "x.npz", **columns())
    (tmp_path / "x.npz").rename(path)
    refused(lambda: read_weights(str(path)), "weight.npy")


@pytest.mark.parametrize("name", ["x" * 5_000, "/" + "y" * 300, "a\0b", "hopper-expert@" + "9" * 5_000])
def test_names_that_no_system_has(name):
    refused(lambda: open_dataset(name), "there is no such file")


@pytest.mark.parametrize(
    "change",
    [
        {"name": 5},
        {"kind": "other"},
        {"sources": []},
        {"sources": [["a"]]},
        {"sources": "a" * 2_000},
        {"notes": [5]},
        {"notes": ["\ud800"]},
        {"recipe": []},
        {"action_low": [-1.0]},
        {"action_low": ["a", "b"]},
        {"action_low": [10**400, 0]},
        {"action_high": [float("nan"), 1]},
        {"action_low": [2.0, 2.0]},
        {"return_range": [1]},
        {"environment": {"a": 1}},
        {"physics": "\ud800"},
        {"unknown": 1},
    ],
    ids=str,
)
def test_descriptions(change, tmp_path):
    path = tmp_path / "x.npz"
    told = json.loads(dataset().meta.to_json()) | change
    np.savez(path, **columns(), winnow=np.array(json.dumps(told)))
    refused(lambda: open_dataset(path), "x.npz: its description by winnow is damaged")
    with pytest.raises((ValueError, TypeError)):
        Meta.from_json(json.dumps(told))


def test_flags_in_a_stored_dataset_are_0_or_1(tmp_path):
    path, data = tmp_path / "x.safetensors", dataset((4, 2, 2), (True, True, True))
    store.save(data, path)
    raw = path.read_bytes()
    assert raw.count(bytes([1, 1, 1])) == 1
    path.write_bytes(raw.replace(bytes([1, 1, 1]), bytes([1, 7, 1])))
    refused(lambda: store.load(path), "x.safetensors: is damaged (a flag is neither 0 nor 1)")


def test_a_stored_dataset_of_other_types(tmp_path):
    path = tmp_path / "x.safetensors"
    store.save(dataset(), path)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b'"dtype": "F32", "shape": [11]', b'"dtype": "I32", "shape": [11]'))
    assert path.read_bytes() != raw
    refused(lambda: store.load(path), "rows.reward is of type I32")


@pytest.mark.parametrize(
    "part",
    [
        5,
        "a",
        {"held_out": 5},
        {"held_out": {"file": 5}},
        {"held_out": {"file": "a\0b"}},
        {"held_out": {"file": "x" * 5_000}},
        {"held_out": {"file": "/etc/passwd"}},
    ],
)
def test_what_a_dataset_says_was_held_out_of_it(part, tmp_path):
    path = tmp_path / "x.safetensors"
    store.save(dataset(recipe={"split": part}), path)
    data = open_dataset(path)
    try:
        assert holdout.held_out_of(data) is None
    except BadInput as error:
        assert "x.safetensors" in str(error)  # noqa: PT017


# -------------------------------------------------------------------------------------------------------------- recipes


@pytest.mark.parametrize(
    "change",
    [
        {"share": "0.5"},
        {"share": True},
        {"rows": 10**12},
        {"rows": 10**400},
        {"rows": 1.5},
        {"rows": None},
        {"seed": -1},
        {"seed": "a"},
        {"shape": "other"},
        {"shape": []},
        {"name": "a\0b"},
        {"sources": [1, 2]},
        {"sources": [{"label": {}, "fingerprint": 1}] * 2},
    ],
    ids=str,
)
def test_recipes(change):
    low, high = source(0.1), source(1.0, seed=1)
    record = mixed(low, high, 0.1, 500).meta.recipe
    assert record is not None
    refused(lambda: rebuild(record | change, {"low": low, "high": high}))


def test_a_recipe_that_draws_for_ever():
    for shape in ("episodes", "segments"):
        wanted = Recipe(0.5, 2_100_000_000, shape)
        refused(lambda wanted=wanted: build(wanted, source(0.1, length=5), source(1.0)), "at most 20,000,000 episodes")


# ----------------------------------------------------------------------------------------------- JSON that is too deep


def test_json_that_is_nested_too_deeply(tmp_path):
    (tmp_path / "x.json").write_text(DEEP)
    refused(lambda: read_recipe(tmp_path / "x.json"), "x.json: is not JSON")
    refused(lambda: claim(tmp_path / "x.json", {}, True, "runs"), "x.json: is not JSON")
    (tmp_path / "config.json").write_text(DEEP)
    refused(lambda: candidates(tmp_path), str(tmp_path))
    (tmp_path / "metrics.jsonl").write_text(DEEP + '\n{"run": "a", "step": 1}\n')
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"run": "a", "step": 1}]
    (tmp_path / "work" / "a").mkdir(parents=True)
    (tmp_path / "work" / "a" / "pack.json").write_text(DEEP)
    assert todo([], tmp_path, set()).begun == []
    assert locks._owner(io.BytesIO(DEEP.encode())) == {}
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a.json").write_text(DEEP)
    said: list[str] = []
    refused(lambda: read(tmp_path, said.append), "holds no results")
    assert "a.json: is damaged" in said[0]


# ----------------------------------------------------------------------------------------------------- what was trained


@pytest.mark.parametrize(
    "lines",
    [
        b"\xff\xfe",
        b"5",
        b"[]",
        b'{"step": 1}',
        b'{"run": "a"}',
        b'{"run": ["a"], "step": 1}',
        b'{"run": "a", "step": true}',
    ],
)
def test_lines_that_are_no_metrics(lines, tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(lines + b'\n{"run": "a", "step": 1, "q": 0.5}\n')
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"run": "a", "step": 1, "q": 0.5}]


def test_metrics_that_not_every_line_has():
    lines = [{"run": "a", "step": 1, "q": 0.5}, {"run": "a", "step": 2}]
    assert thinned(lines) == {"step": [1, 2]}


def test_rounds_that_are_none(tmp_path):
    good = {"run": "a", "step": 1, "round": None, "environment": "e", "returns": [1.5], "lengths": [2], "score": None}
    odd = [
        {"run": "a", "step": 1},
        good | {"x": 1},
        good | {"returns": ["a"]},
        good | {"score": "b"},
        good | {"lengths": 5},
    ]
    (tmp_path / "returns.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*odd, good]))
    assert [one.line() for one in read_rounds(tmp_path / "returns.jsonl")] == [good]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], Any]:
    """A finished run, its record and its arrays."""
    path = runs(tmp_path_factory.mktemp("run"))[0]
    from safetensors.numpy import load_file

    return path, checkpoint.read_record(path), load_file(path)


@pytest.mark.parametrize(
    "change",
    [
        None,
        5,
        [],
        {"dataset": 5},
        {"dataset": {}},
        {"dataset": {"name": "a", "path": "a\0b", "fingerprint": "f", "environment": None}},
        {"spec": []},
        {"spec": [3, 2, 8, {}]},
        {"spec": [3, "2", 8]},
        {"spec": [-3, 2, 8]},
        {"seed": 10**12},
        {"seed": "a"},
        {"steps": -1},
        {"failure": {}},
        {"name": "a\x1b[2Jb"},
        {"algorithm": []},
        {"algorithm": {"name": "nobody"}},
        {"algorithm": {"name": "bc", "hidden": ["a"]}},
        {"algorithm": {"name": "bc", "hidden": [0]}},
        {"algorithm": {"name": "bc", "hidden": [16] * 10_000}},
        {"algorithm": {"name": "bc", "hidden": [10**9, 10**9]}},
        {"algorithm": {"name": "bc", "hidden": [10**400]}},
        {"algorithm": {"name": "bc", "learning_rate": 10**12}},
        {"algorithm": {"name": "bc", "learning_rate": 10**400}},
        {"algorithm": {"name": "bc", "learning_rate": "a"}},
        {"algorithm": {"name": "bc", "learning_rate": float("nan")}},
        {"algorithm": {"name": "bc", "extraction": {}}},
        {"algorithm": {"name": "bc", "unknown": 1}},
        {"algorithm": {"name": {}}},
    ],
    ids=str,
)
def test_records_of_runs(change, finished, tmp_path):
    path, record, arrays = finished
    told = record | change if isinstance(change, dict) else change
    spoiled = tmp_path / path.name
    checkpoint.save(spoiled, arrays, told)
    for load in (Policy.load, candidates):
        refused(lambda load=load: load(spoiled), path.name)


@pytest.mark.parametrize("lacking", ["name", "seed", "dataset", "spec", "steps", "failure", "algorithm"])
def test_records_of_runs_that_lack_something(lacking, finished, tmp_path):
    path, record, arrays = finished
    spoiled = tmp_path / path.name
    checkpoint.save(spoiled, arrays, {name: value for name, value in record.items() if name != lacking})
    refused(lambda: candidates(spoiled), path.name)


def test_a_snapshot_of_policies_of_other_shapes(tmp_path):
    (path,) = KINDS["policies of a round"].make(tmp_path)
    from safetensors.numpy import load_file

    record, arrays = checkpoint.read_record(path), load_file(path)
    record["runs"][1]["algorithm"]["hidden"] = [8]
    checkpoint.save(path, arrays, record)
    refused(lambda: Snapshot.load(path), path.name, "must be of one shape")
    checkpoint.save(path, arrays, record | {"runs": []})
    refused(lambda: Snapshot.load(path), path.name)


def test_arrays_of_other_types(tmp_path):
    path, like = tmp_path / "x.safetensors", {"a": np.zeros(3, np.float32)}
    for odd in (np.zeros(3, np.int32), np.zeros(3, bool)):
        checkpoint.save(path, {"a": odd}, {})
        refused(lambda: checkpoint.load(path, like), f"x.safetensors: a holds {odd.dtype}")
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b'"BOOL", "shape": [3]', b'"F8_E4M3", "shape": [3]'))
    refused(lambda: checkpoint.load(path, like), "x.safetensors")


def test_a_picture_of_sources_that_look_like_formulas(tmp_path):
    data = dataset(sources=("$\\frac{", "_hidden", "x" * 200), name="$x^")
    figures.save(figures.weights(data, np.ones(len(data)), "$\\frac{"), tmp_path / "x.svg")
    assert (tmp_path / "x.svg").stat().st_size > 1000


# -------------------------------------------------------------------------------------------------------------- results


def whole(folder: Path, change: Callable[[dict[str, Any]], Any] = lambda config: None, **words: Any) -> list[str]:
    """A good result, and one that is whole and says something odd; the lines that a report says of them."""
    run, other = planned(["hopper-random-expert-5%"], methods=("uniform",), seeds=2)
    result(run).save(folder)
    config = json.loads(json.dumps(other.config))
    change(config)
    path = result(other, config=config, id=digest(config), **words).save(folder)
    return use_result(path)


@pytest.mark.parametrize(
    "words",
    [
        {"score": 10**400},
        {"score": 1e300},
        {"score": "a"},
        {"score": True},
        {"rounds": [{"step": 1, "score": 1e300}]},
        {"rounds": [5]},
        {"rounds": {}},
        {"swept": []},
        {"swept": {"a": 1}},
        {"metrics": []},
        {"shares": {"a": "b"}},
        {"made_with": 5},
        {"name": "a\x1b[2Jb"},
        {"method": 5},
        {"command": "\ud800"},
        {"failure": 5},
    ],
    ids=str,
)
def test_results_that_say_odd_things_do_not_count(words, tmp_path):
    assert "it does not count" in whole(tmp_path, **words)[0]


@pytest.mark.parametrize("family", ["algorithm", "sampler", "weighter"])
def test_results_without_settings_do_not_count(family, tmp_path):
    assert "it does not count" in whole(tmp_path, lambda config: config.update({family: 5}))[0]


@pytest.mark.parametrize("seed", [10**9, -1, 10**400, "a"])
def test_a_seed_is_not_how_many_runs_are_planned(seed, tmp_path):
    """A report makes up the command that plans its runs, and tries it."""
    assert "it does not count" in whole(tmp_path, lambda config: config.update(seed=seed))[0]


def test_sweeps_do_not_multiply_for_ever(tmp_path):
    """Forty values in each of six settings, in forty results."""
    run = planned(["hopper-random-expert-5%"], methods=("dw-aw",), seeds=1)[0]
    names = ("weighter.lambda_k", "weighter.lambda_f", "weighter.discount", "sampler.temperature")
    path = tmp_path
    for number in range(40):
        config = json.loads(json.dumps(run.config)) | {"seed": number}
        swept = dict.fromkeys((*names, "algorithm.expectile", "algorithm.beta"), 0.5 + number)
        path = result(run, config=config, id=digest(config), swept=swept).save(tmp_path)
    assert use_result(path) == []


def test_every_kind_of_file_is_one_that_its_reader_takes(tmp_path):
    """The good files of the fuzzing are good."""
    for number, kind in enumerate(("Minari metadata", "split dataset", "recipe", "checkpoint", "result", "lock")):
        folder = tmp_path / str(number)
        folder.mkdir()
        for path in KINDS[kind].make(folder):
            assert KINDS[kind].read(path) == []
