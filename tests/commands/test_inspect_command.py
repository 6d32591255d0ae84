"""`winnow inspect` as typed."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.datasets import columns, source

from winnow.cli import main
from winnow.data import store
from winnow.data.imbalance import imbalance
from winnow.data.recipes import mixed


@pytest.fixture
def mixture(tmp_path):
    path = tmp_path / "mix.safetensors"
    data = mixed(source(0.1, 100), source(1, seed=1), 0.05, 6000, low_label="random", high_label="expert")
    store.save(data, path)
    return path


def test_a_table_a_histogram_a_verdict_and_a_method(mixture, capsys):
    assert main(["inspect", str(mixture)]) == 0
    said = capsys.readouterr().out
    for word in ("RPSV", "Gini", "quantiles", "effective sample size", "initial-state spread", "random", "expert"):
        assert word in said
    assert "Strongly imbalanced" in said
    assert "Recommended: aw: only about 5.0 % of the" in said
    bars = [line for line in said.splitlines() if "█" in line]
    assert int(bars[0].split()[-1]) + int(bars[-1].split()[-1]) == 100
    assert len(bars) >= 2


def test_json_is_all_that_is_printed(mixture, capsys):
    assert main(["inspect", str(mixture), "--json", "--discount", "0.99"]) == 0
    said = capsys.readouterr()
    record = json.loads(said.out)
    assert said.err == ""
    assert record["dataset"]["rows"] == 6000
    assert record["recommended"]["method"] == "aw"
    assert record["imbalance"]["rpsv"] == imbalance(store.load(mixture), 0.99).rpsv
    assert [one["label"] for one in record["imbalance"]["sources"]] == ["random", "expert"]


def test_data_without_episodes(tmp_path, capsys):
    np.savez(tmp_path / "x.npz", **columns())
    out = tmp_path / "bag.safetensors"
    main(["data", "import", str(tmp_path / "x.npz"), "--kind", "bag", "--out", str(out)])
    capsys.readouterr()
    assert main(["inspect", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "There are no episodes in bag data" in said
    assert "Recommended: dw-uniform" in said


def test_names_in_brackets_are_printed_as_they_are(tmp_path, capsys):
    path = tmp_path / "x.safetensors"
    store.save(source(1, name="[bold]odd[/nothing]"), path)
    assert main(["inspect", str(path)]) == 0
    assert "[bold]odd[/nothing]" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "message"), [("--discount 2", "discount is 2.0"), ("--json --discount 0", "is 0.0")])
def test_bad_input(mixture, words, message, capsys):
    assert main(["inspect", str(mixture), *words.split()]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.out == ""
    assert main(["inspect", str(mixture) + ".not"]) == 2
    assert "no such file" in capsys.readouterr().err
