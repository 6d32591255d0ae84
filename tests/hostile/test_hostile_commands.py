"""Spoiled files on the command line: a line that names the file, exit code 2, and nothing half-written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.datasets import files_in
from helpers.hostile.corpus import KINDS
from helpers.problems import quick_compiles

from winnow.cli import main

SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda good: good[: len(good) // 2],
    "empty": lambda good: b"",
    "zeros inside": lambda good: good[:100] + bytes(200) + good[300:],
    "something else": lambda good: b"\x7fELF" + good[::-1],
}
COMMANDS: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "data import": ("HDF5, D4RL's layout", lambda path: [str(path), "--out", str(path.parent / "out")]),
    "data export": ("npz", lambda path: [str(path), "--to", str(path.parent / "out.hdf5")]),
    "data split": (
        "Parquet",
        lambda path: [str(path), "--train", str(path.parent / "a"), "--held-out", str(path) + "b"],
    ),
    "inspect": ("winnow dataset", lambda path: [str(path), "--html", str(path.parent / "page.html")]),
    "data mix": ("recipe", lambda path: ["--recipe", str(path), "--out", str(path.parent / "out")]),
    "weights": ("finished run", lambda path: [str(path)]),
    "export": ("finished run", lambda path: [str(path), "--safetensors", str(path.parent / "p.safetensors")]),
    "evaluate": ("finished run", lambda path: [str(path), "--out", str(path.parent / "returns.txt")]),
    "ope": ("finished run", lambda path: [str(path), "--out", str(path.parent / "ope.json")]),
    "report": ("result", lambda path: [str(path.parent.parent), "--html", str(path.parent.parent / "page.html")]),
}


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_refuses_a_spoiled_file(command, how, tmp_path, capsys):
    kind, words = COMMANDS[command]
    path = KINDS[kind].make(tmp_path)[0]
    for other in set(path.parent.glob("*.json")) - {path} if command == "report" else ():
        other.unlink()  # it is the one result that there is
    path.write_bytes(SPOILED[how](path.read_bytes()))
    before = files_in(tmp_path)
    assert main([*command.split(), *words(path)]) == 2
    said = capsys.readouterr().err
    assert path.name in said
    assert "Traceback" not in said
    assert files_in(tmp_path) == before


def test_train_refuses_a_spoiled_folder_and_leaves_it_as_it_is(tmp_path, capsys):
    (dataset,) = KINDS["HDF5, D4RL by name"].make(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    for text in ("[]", "{", '{"a":' * 100_000, "5", "\xff"):
        (out / "config.json").write_text(text, encoding="latin-1")
        words = ["--algorithm", "bc", "--method", "uniform", "--steps", "1", "--out", str(out), "--resume"]
        assert main(["train", str(dataset), *words]) == 2
        assert re.search(r"config\.json: (is not JSON|must hold a JSON object)", capsys.readouterr().err)
        assert files_in(out) - {"lock"} == {"config.json"}


def test_lines_that_are_none_do_not_stop_a_training_from_going_on(tmp_path):
    (dataset,) = KINDS["HDF5, D4RL by name"].make(tmp_path)
    out = tmp_path / "out"
    words = ["train", str(dataset), "--algorithm", "bc", "--method", "uniform", "--steps", "1", "--out", str(out)]
    words += ["--seeds", "1", "--algorithm.hidden", "4"]
    with quick_compiles():
        assert main(words) == 0
    lines = (out / "metrics.jsonl").read_bytes()
    odd = b'5\n[]\n{"run": 1, "step": 2}\n{"run": "a", "step": "b"}\n\xff\n' + b"[" * 100_000 + b"\n"
    (out / "metrics.jsonl").write_bytes(odd + lines)
    with quick_compiles():
        assert main([*words, "--resume"]) == 0
    assert [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_bytes().splitlines()] == [1]
