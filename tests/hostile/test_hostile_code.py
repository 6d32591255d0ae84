"""Nothing that is read is ever run: no pickle, no eval, no module or file named by data."""

from __future__ import annotations

import ast
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.datasets import columns, dataset
from helpers.hostile.corpus import minari

from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.weighters.fixed import read_weights

SRC = Path(__file__).parents[2] / "src"
MODULES = sorted(SRC.rglob("*.py"))
UNPICKLERS = {
    "pickle",
    "cPickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "yaml",
    "runpy",
    "code",
}
RUNNERS = {"eval", "exec", "compile", "__import__", "execfile"}


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    return [(ast.unparse(one.func), one) for one in ast.walk(tree) if isinstance(one, ast.Call)]


def test_the_scan_sees_the_source():
    assert len(MODULES) > 100
    read = [name for path in MODULES for name, _ in calls(ast.parse(path.read_text("utf-8")))]
    assert read.count("np.load") + read.count("np.lib.format.read_array") >= 3


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_no_module_can_unpickle_or_run_what_it_reads(path):
    tree = ast.parse(path.read_text("utf-8"))
    imported = {
        alias.name.split(".")[0] for one in ast.walk(tree) if isinstance(one, ast.Import) for alias in one.names
    }
    imported |= {(one.module or "").split(".")[0] for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)}
    assert not imported & UNPICKLERS
    for name, call in calls(tree):
        told = {word.arg: ast.unparse(word.value) for word in call.keywords}
        assert name not in RUNNERS
        assert name not in ("os.system", "os.popen", "subprocess.getoutput")
        assert told.get("shell", "False") == "False"
        assert name != "torch.load"
        if name in ("np.load", "np.save", "np.savez", "np.savez_compressed", "np.lib.format.read_array"):
            assert told["allow_pickle"] == "False", f"line {call.lineno}"
        assert told.get("allow_pickle", "False") == "False"


class Bomb:
    """Leaves a file behind if it is ever unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("field", ["observations", "rewards", "terminals", "episode", "source", "winnow"])
def test_objects_in_an_npz_are_refused_and_not_made(field, tmp_path):
    mark, path = tmp_path / "was-run", tmp_path / "x.npz"
    np.savez(path, allow_pickle=True, **columns() | {field: np.array([Bomb(mark)] * 8, object)})
    with pytest.raises(BadInput, match=r"x\.npz"):
        open_dataset(path)
    assert not mark.exists()


def test_objects_in_an_npy_are_refused_and_not_made(tmp_path):
    mark, path = tmp_path / "was-run", tmp_path / "weight.npy"
    np.save(path, np.array([Bomb(mark)] * 8, object), allow_pickle=True)
    with pytest.raises(BadInput, match=r"weight\.npy"):
        read_weights(str(path))
    assert not mark.exists()
    np.load(path, allow_pickle=True)
    assert mark.exists(), "the bomb is a dud"


def test_a_dataset_does_not_name_a_module_to_import(tmp_path, monkeypatch):
    """Gymnasium takes `module:Id` for an environment and would import the module."""
    from winnow import envs
    from winnow.data.export import export

    (tmp_path / "hostile_module.py").write_text("raise SystemExit('was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    name = "hostile_module:Evil-v0"
    with pytest.raises(BadInput, match="there is no environment"):
        envs.lookup(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari's, of what is not described
        export(dataset(environment=name), "minari:toy/evil-v0")
    assert open_dataset("minari:toy/evil-v0").meta.environment == name
    assert "hostile_module" not in sys.modules


def test_minaris_folders_do_not_name_a_module_to_import(tmp_path, monkeypatch):
    """Without spaces, Minari would build the environment that its metadata names."""
    (tmp_path / "hostile_module.py").write_text("raise SystemExit('was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = {"id": "Evil-v0", "entry_point": "hostile_module:Evil", "kwargs": {}, "additional_wrappers": []}
    for data_format in ("hdf5", "arrow"):
        (tmp_path / data_format).mkdir()
        folder = minari(tmp_path / data_format, data_format)
        said = json.loads((folder / "metadata.json").read_text()) | {"env_spec": json.dumps(spec)}
        bare = {name: value for name, value in said.items() if not name.endswith("_space")}
        (folder / "metadata.json").write_text(json.dumps(said))
        assert open_dataset(folder).meta.environment == "Evil-v0"
        (folder / "metadata.json").write_text(json.dumps(bare))
        if data_format == "hdf5":
            assert open_dataset(folder).meta.environment == "Evil-v0"
        else:
            with pytest.raises(BadInput, match="does not say its spaces"):
                open_dataset(folder)
    assert "hostile_module" not in sys.modules
