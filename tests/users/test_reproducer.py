"""Someone who reproduces the paper, on a tiny suite: plan, train, look at the page, compare two methods, pack."""

from __future__ import annotations

import json
from typing import Any

import pytest

from winnow.cli import main

SUITE = ["hopper-random-expert-5%@300", "hopper-random-expert-diverse-5%@300"]
CONFIG = """
algorithms = "bc"
methods = ["uniform", "aw"]
seeds = 2
steps = 40
batch_size = 16
chunk = 20
sweep = ["algorithm.hidden=8x8"]

[evaluation]
episodes = 1
rounds = 1
curve = 0
spacing = 20
"""


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path / "data"))


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What a command answers with --json."""
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_grid_from_its_plan_to_one_number(tmp_path, capsys):
    grid = tmp_path / "grid"
    config = tmp_path / "tiny.toml"
    config.write_text(CONFIG)
    words = ["bench", "run", *SUITE, "--out", str(grid), "--config", str(config)]
    plan = answered(capsys, *words, "--dry-run")
    assert (plan["runs"], plan["done"]) == (8, 0)
    assert "H200" in plan["source"]
    assert not grid.exists()
    done = answered(capsys, *words)
    assert (done["done"], done["failed"]) == (8, {})
    assert answered(capsys, *words)["done_before"] == 8

    page = tmp_path / "page.html"
    assert main(["report", str(grid), "--html", str(page)]) == 0
    assert "8 runs" in page.read_text()
    label = "algorithm.hidden=8x8"
    compare = ["--compare", f"aw {label}", f"uniform {label}"]
    (mixed, diverse, every) = answered(capsys, "report", str(grid), *compare)["gains"]
    assert every["suite"] == "all suites"
    assert every["runs"] == 8
    mean = (mixed["gain_of_mean"]["value"] + diverse["gain_of_mean"]["value"]) / 2
    assert every["gain_of_mean"]["value"] == pytest.approx(mean)
    assert answered(capsys, "bench", "pack", str(grid))["runs"] == 8
    packed = answered(capsys, "report", f"{grid}.jsonl.gz", *compare)
    assert packed["gains"] == [mixed, diverse, every]
