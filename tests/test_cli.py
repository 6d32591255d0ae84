"""The command line as a whole: quick to start, helpful when lost, one line and exit code 2 for bad input."""

from __future__ import annotations

import dataclasses
import pkgutil
import re
import subprocess
import sys

import pytest
from jax.errors import JaxRuntimeError

import winnow
from winnow.algorithms import ALGORITHMS
from winnow.cli import COMMANDS, main
from winnow.methods import METHODS
from winnow.samplers import SAMPLERS
from winnow.weighters import WEIGHTERS


def test_importing_winnow_and_asking_for_help_import_nothing_heavy():
    code = "import sys, winnow; from winnow.cli import main; main(['--help']); print(sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "winnow train" not in out.split("usage")[0]
    for name in ("jax", "numpy", "tyro", "gymnasium", "matplotlib", "scipy"):
        assert f"'{name}'" not in out


def test_python_runs_the_package():
    words = [sys.executable, "-m", "winnow"]
    said = subprocess.run([*words, "--version"], check=True, capture_output=True, text=True).stdout
    assert said == f"winnow {winnow.__version__}\n"
    wrong = subprocess.run([*words, "trian"], check=False, capture_output=True, text=True)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("winnow: there is no command 'trian'")


def test_every_command_is_in_the_overview(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "did you mean 'train'?"),
        (["data"], "winnow data takes one of: make, list, import, export, mix"),
        (["data", "mxi"], "winnow data takes one of"),
        (["train", "x", "--out", "o", "--method", "dula-aw"], "did you mean 'dual-aw'?"),
        (["train", "x", "--out", "o", "--algorithm", "sac2"], "there is no algorithm 'sac2'"),
        (["train", "missing.hdf5", "--out", "o"], "missing.hdf5: there is no such file"),
        (["train", "--out", "o"], "no dataset is given"),
        (["weights", "missing.safetensors"], "missing.safetensors: there is no such file"),
    ],
)
def test_bad_words_get_a_line_and_exit_code_2(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.\n\nmore"),
            "allocate 9 bytes)",
        ),
        (MemoryError(), "(MemoryError)"),
    ],
)
def test_without_memory_there_is_a_line_that_says_what_to_do(error, told, capsys, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("winnow.data.sources.open_dataset", refused)
    assert main(["train", "x", "--out", "o"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("winnow train: the device or the machine ran out of memory")
    assert told in said
    assert "nvidia-smi" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("table", [ALGORITHMS, WEIGHTERS], ids=["algorithms", "weighters"])
def test_every_setting_has_a_line_of_help(table, capsys):
    option = "--algorithm" if table is ALGORITHMS else "--weighter"
    for name, kind in table.items():
        with pytest.raises(SystemExit) as end:
            main(["train", "--help", option, name])
        assert end.value.code == 0
        shown = " ".join(capsys.readouterr().out.split())
        for field in dataclasses.fields(kind):
            flag = f"{option}.{field.name.replace('_', '-')}"
            assert flag in shown, flag
            described = shown.split(flag, 1)[1].split("(default")[0]
            assert len(re.findall("[a-z]{3,}", described)) >= 3, f"{flag} has no help"


def test_train_help_names_everything_that_can_be_named(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for table in (ALGORITHMS, METHODS, SAMPLERS, WEIGHTERS) for name in table)


def test_public_names_stay_what_they_are_when_modules_are_imported():
    """A function of the package must not share its name with a module: importing one would hide the other."""
    modules = {module.name for module in pkgutil.iter_modules(winnow.__path__)}
    assert not modules & set(dir(winnow))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_an_example_that_it_understands(name, capsys):
    with pytest.raises(SystemExit) as end:
        main([*name.split(), "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    example = COMMANDS[name].example
    assert example in " ".join(shown.split())
    assert "--quiet" in shown
    options = set(re.findall(r"(--[a-z][a-z.-]+)", example))
    assert all(option in shown.replace(example, "") for option in options)
