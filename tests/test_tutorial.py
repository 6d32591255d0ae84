"""The tutorial runs as written, block after block, in an empty folder."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "tutorial.md"
BLOCKS = re.findall(r"```(python|py|sh)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
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
    assert [kind for kind, _ in BLOCKS].count("sh") >= 7
    script = "set -eu\n"
    for number, (kind, block) in enumerate(BLOCKS):
        if "onnx" in block and not deploys:
            continue
        for pattern, less in SHORTER:
            block = re.sub(pattern, less, block)
        if kind == "sh":
            script += block
        else:
            (tmp_path / f"block{number}.py").write_text(block)
            script += f"{sys.executable} block{number}.py\n"
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "winnow").write_text(f'#!/bin/sh\nexec {sys.executable} -m winnow.cli "$@"\n')
    (tools / "winnow").chmod(0o755)
    place = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "WINNOW_DATA": str(tmp_path / "data")}
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=place, capture_output=True, text=True, timeout=540, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    worth = json.loads((tmp_path / "worth.json").read_text())
    assert worth[0]["held_out"]["name"] == "plant-held-out"
    assert worth[0]["held_out"]["seen_in_training"] is False
    assert len(worth[0]["runs"]) == 2
    chosen = json.loads((tmp_path / "tune" / "tune.json").read_text())
    assert {one["method"] for one in chosen["table"]} == {"uniform", "aw"}
    assert (tmp_path / "plant.html").stat().st_size > 10_000
    if not deploys:
        return
    last = done.stdout.strip().splitlines()[-1]
    action = [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", last)]
    assert len(action) == 2
    assert all(-1 <= number <= 1 for number in action)
