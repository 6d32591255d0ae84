"""Every script in examples/ runs as it is, for a few steps."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

import winnow
from winnow import toy
from winnow.weighters.fixed import read_weights

FOLDER = Path(__file__).parent.parent.parent / "examples"
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


def run(source: str, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    monkeypatch.setattr(sys, "argv", ["example.py", *words])
    exec(compile(source, "example.py", "exec"), {"__name__": "__main__", "__doc__": ""})
    return capsys.readouterr().out


def test_there_is_a_test_for_every_example() -> None:
    known = {"corl_iql.py", "corl_td3bc.py", "d3rlpy_iql.py", "torch_loop.py", "deploy_onnx.py"}
    mine = {path.name for path in FOLDER.glob("*.py") if "winnow.plug" in path.read_text(encoding="utf-8")}
    assert mine <= known  # deploy_onnx.py: tests/commands/test_export_command.py


@pytest.mark.parametrize("name", ["corl_iql.py", "corl_td3bc.py"])
def test_single_file_scripts_with_weights_and_without_the_three_lines(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    source = (FOLDER / name).read_text(encoding="utf-8")
    words = ["--steps", "20", "--hidden", "16", "--batch-size", "32"]
    weighted = run(source, words, monkeypatch, capsys)
    lines = source.splitlines()
    marked = [number for number, line in enumerate(lines) if "# WEIGHTS" in line]
    assert len(marked) == 3
    kept = [line for number, line in enumerate(lines) if number not in marked[:2]]
    kept[marked[2] - 2] = "        mean = torch.mean"
    plain = run("\n".join(kept), words, monkeypatch, capsys)
    for shown in (weighted, plain):
        assert "step 20  critic" in shown
        assert "score" in shown
    assert weighted.splitlines()[0] != plain.splitlines()[0]


def test_single_file_scripts_read_a_dataset(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    winnow.save(toy.make(toy.random, 300, 0), tmp_path / "mine.safetensors")
    source = (FOLDER / "corl_iql.py").read_text(encoding="utf-8")
    words = ["--dataset", str(tmp_path / "mine.safetensors"), "--steps", "5", "--hidden", "8"]
    shown = run(source, words, monkeypatch, capsys)
    assert "step 5  critic" in shown
    assert "score" not in shown


@pytest.mark.parametrize("method", ["uniform", "dual-aw"])
def test_d3rlpy(method: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    source = (FOLDER / "d3rlpy_iql.py").read_text(encoding="utf-8")
    assert source.count("# WINNOW") <= 5
    words = ["--method", method, "--steps", "5", "--rows", "2000", "--batch-size", "16"]
    assert f"{method}: score" in run(source, words, monkeypatch, capsys)


def test_torch_loop(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    source = (FOLDER / "torch_loop.py").read_text(encoding="utf-8")
    shown = run(source, ["--steps", "20", "--save", str(tmp_path / "w.npy")], monkeypatch, capsys)
    assert "5% of the rows are expert's; 100% of the weight" in shown
    assert len(read_weights(str(tmp_path / "w.npy"))) > 19_000
