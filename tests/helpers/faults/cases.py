"""Commands for fault tests: their arguments, where they write, and what they must leave whatever happened.

A case is a real command with tiny data. Its files are complete or absent; its lines grow while it runs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from helpers import made_results, random_hopper
from helpers.tiny_grids import outcomes

from winnow.data import store
from winnow.system.checkpoint import read_record
from winnow.system.metrics import read_metrics

CHUNK = 40
"""Updates in a chunk, wherever something is trained."""
POOLS = "hopper-random-expert-10%@600"
RUNS = "--seeds 2 --batch-size 16 --evaluation.episodes 2 --evaluation.rounds 2 --evaluation.curve 1"


def nothing(out: Path) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Case:
    """A command that writes to its working directory."""

    name: str
    arguments: str
    files: Callable[[Path], Mapping[str, Any]]
    """Its files: each is complete and final as soon as it exists."""
    lines: Callable[[Path], Mapping[str, Any]] = nothing
    """Its lines, which grow until the end."""
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "winnow.cli", *self.arguments.split()]

    def begin(self, out: Path, **more: str) -> subprocess.Popen[str]:
        """Start the command in its own session."""
        out.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            self.command,
            cwd=out,
            env=self.environment(out) | more,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def environment(self, out: Path) -> dict[str, str]:
        given = {name: value.format(out=out) for name, value in self.variables.items()}
        return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | given

    def run(self, out: Path, **more: str) -> None:
        """Run the command to its end; it must succeed."""
        child = self.begin(out, **more)
        errors = child.communicate(timeout=300)[1]
        assert child.returncode == 0, errors

    def left(self, out: Path) -> dict[str, Any]:
        """Everything that must be the same in the end. There must be no temporary files."""
        assert not list(out.rglob("*.winnow-tmp*"))
        return {"files": dict(self.files(out)), "lines": dict(self.lines(out))}


def make_cases(base: Path) -> dict[str, Case]:
    """All cases that need no cluster; the files that they read are written to `base`."""
    base.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    rows = 100_000
    recording = {
        "observations": rng.normal(size=(rows, 11)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (rows, 3)).astype(np.float32),
        "rewards": rng.random(rows).astype(np.float32),
        "terminals": np.arange(rows) % 40 == 39,
    }
    np.savez(base / "recording.npz", **recording)
    store.save(random_hopper.dataset(), base / "hops.safetensors")
    made_results.write(base / "scored", made_results.planned(["hopper-random-expert-5%", "ant-random-medium-10%"]))
    quick = {
        "JAX_COMPILATION_CACHE_DIR": str(base / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "true",
        "WINNOW_DATA": str(base / "pools"),
    }
    trains = f"{RUNS} --chunk {CHUNK} --evaluation.spacing {CHUNK} --evaluation.processes 1"
    grid = f"bench run {POOLS} --out . --algorithms bc --methods uniform,aw --steps 240 --sweep algorithm.hidden=8"
    hops = f"train {base}/hops.safetensors --out runs --resume --algorithm bc --method uniform --algorithm.hidden 8"
    search = f"tune {base}/hops.safetensors --out search --resume --algorithm bc --candidates uniform pf --runs 4"
    fits = "--fqe.steps 40 --fqe.fits 2 --fqe.hidden 8 --fqe.batch-size 16"
    cases = [
        Case("data import", f"data import {base}/recording.npz --max-steps 1000 --out mine", finals, nothing, quick),
        Case("data make", f"data make {POOLS} --out made", finals, nothing, quick | {"WINNOW_DATA": "{out}"}),
        Case("train", f"{hops} --steps 600 --checkpoint-seconds 0 {trains}", finals, grown, quick),
        Case(
            "evaluate",
            f"evaluate {base}/train/runs --episodes 40 --processes 1 --out returns.json",
            finals,
            nothing,
            quick,
        ),
        Case("tune", f"{search} --steps {CHUNK} --batch-size 16 --hidden 8 {fits}", without_values, with_values, quick),
        Case("bench run", f"{grid} {trains}", results, nothing, quick),
        Case(
            "report",
            f"report {base}/scored --html page.html --csv runs.csv --markdown table.md",
            report_files,
            nothing,
            quick,
        ),
    ]
    return {case.name: case for case in cases}


def finals(out: Path) -> dict[str, bytes]:
    """Files with final names under a folder: no checkpoints, no policies that wait to be played, no locks."""
    kept = [path for path in out.rglob("*") if path.is_file() and not path.name.startswith(".")]
    passing = (".jsonl", ".lock")
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in kept
        if path.suffix not in passing
        and path.name != "lock"
        and not path.name.startswith("pack-")
        and not path.parent.name.endswith(".parts")
    }


def report_files(out: Path) -> dict[str, bytes]:
    """Final files of a report. Its page links to raw results by a path that depends on the page's own folder."""
    return {name: re.sub(rb'href="[^"#]*/scored/', b'href="scored/', data) for name, data in finals(out).items()}


def grown(out: Path) -> dict[str, Any]:
    """The lines of metrics and returns; those of several packs come in any order."""
    files = [path for path in out.rglob("*.jsonl") if path.name in ("metrics.jsonl", "returns.jsonl")]
    return {str(path.relative_to(out)): sorted(map(json.dumps, read_metrics(path))) for path in files}


VALUES = "search/values.safetensors"
"""Values of the candidates, rewritten in every round of a search."""


def without_values(out: Path) -> dict[str, bytes]:
    return {name: data for name, data in finals(out).items() if name != VALUES}


def with_values(out: Path) -> dict[str, Any]:
    return grown(out) | {VALUES: (out / VALUES).read_bytes()}


def results(out: Path) -> dict[str, Any]:
    """The results of a grid, without the times they took."""
    return outcomes(out)


def behind(out: Path) -> int:
    """Updates that were reported but are in no checkpoint: a killed training has to do them again."""
    most = 0
    for metrics in out.rglob("metrics.jsonl"):
        folder = metrics.parent
        packs = [read_record(path)["step"] for path in folder.glob("pack-*.safetensors")]
        for line in read_metrics(metrics):
            if not (folder / f"{line['run']}.safetensors").exists():
                most = max(most, line["step"] - max(packs, default=0))
    return most
