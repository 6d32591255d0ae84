"""Broken data is refused with its row; unusual but valid data is trained on."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.faults import odd_data
from helpers.problems import quick_compiles

from winnow.cli import main


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return odd_data.save(tmp_path_factory.mktemp("odd"))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", ["rewards", "observations", "actions", "next_observations"])
def test_non_finite_values_are_refused_with_field_and_row(field, value, tmp_path, capsys):
    columns = odd_data.columns(40, 20)
    del columns["action_bounds"]
    columns[field] = columns[field].copy()
    columns[field].reshape(40, -1)[17, 0] = value
    np.savez(tmp_path / "bad.npz", **columns)
    for command in (["train", "--steps", "10"], ["data", "import"]):
        assert main([*command, str(tmp_path / "bad.npz"), "--out", str(tmp_path / "out")]) == 2
        errors = capsys.readouterr().err
        assert f"{tmp_path / 'bad.npz'}: {field}, row 17" in errors
    assert [path.name for path in tmp_path.iterdir()] == ["bad.npz"]


def test_odd_data_is_trained_on(files, tmp_path):
    with quick_compiles():
        count = odd_data.train(files, "bc", ["aw", "dw-aw", "dual-uniform"], tmp_path / "out")
    assert count == {"trained": 3 * len(files), "failed": 0}


def test_odd_data_is_inspected(files, capsys):
    for file in files:
        assert main(["inspect", str(file)]) == 0
    assert capsys.readouterr().out.count("Recommended:") == len(files)
