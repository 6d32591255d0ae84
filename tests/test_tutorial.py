"""The tutorial runs as written, block after block, in an empty folder."""

from __future__ import annotations

import importlib.util
import json
import re

from helpers.doc_blocks import blocks, follow

SHORTER = (
    (r"--steps 2000", "--steps 100"),
    (r"--seeds 2", "--seeds 1"),
    (r"12_000", "3_000"),
    (r"aw dual-uniform --runs 7", "aw --runs 2"),
    (r"winnow (ope|tune)", r"winnow \1 --fqe.steps 100 --fqe.fits 2"),
)
"""What a test need not wait for; everything else is run as it stands."""


def test_the_tutorial_runs_from_a_table_to_a_policy_file(tmp_path):
    deploys = all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime"))
    assert [kind for kind, _ in blocks("tutorial.md")].count("sh") >= 7
    said = follow("tutorial.md", tmp_path, SHORTER, lambda block: deploys or "onnx" not in block)
    worth = json.loads((tmp_path / "worth.json").read_text())
    assert worth[0]["held_out"]["name"] == "plant-held-out"
    assert worth[0]["held_out"]["seen_in_training"] is False
    assert len(worth[0]["runs"]) == 2
    chosen = json.loads((tmp_path / "tune" / "tune.json").read_text())
    assert {one["method"] for one in chosen["table"]} == {"uniform", "aw"}
    assert (tmp_path / "plant.html").stat().st_size > 10_000
    if not deploys:
        return
    last = said.strip().splitlines()[-1]
    action = [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", last)]
    assert len(action) == 2
    assert all(-1 <= number <= 1 for number in action)
