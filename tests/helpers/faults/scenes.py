"""Commands to injure: what each is given, where it writes, and what must be there in the end, whatever happened.

A scene is a real command with tiny data. Its files are whole or not there at all; its lines grow while it works.
"""

from __future__ import annotations

import json
import os
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
class Scene:
    """A command that writes to the folder in which it is given."""

    name: str
    words: str
    files: Callable[[Path], Mapping[str, Any]]
    """What there is in its folder: each of it is whole and final as soon as it is there."""
    lines: Callable[[Path], Mapping[str, Any]] = nothing
    """What grows until the end."""
    surroundings: Mapping[str, str] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "winnow.cli", *self.words.split()]

    def begin(self, out: Path, **more: str) -> subprocess.Popen[str]:
        """The command, in a session of its own."""
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
        given = {name: value.format(out=out) for name, value in self.surroundings.items()}
        return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | given

    def run(self, out: Path, **more: str) -> None:
        """The command from beginning to end, which must be good."""
        child = self.begin(out, **more)
        said = child.communicate(timeout=300)[1]
        assert child.returncode == 0, said

    def left(self, out: Path) -> dict[str, Any]:
        """Everything that must be the same in the end; and nothing half-written beside it."""
        assert not list(out.rglob("*.winnow-tmp*"))
        return {"files": dict(self.files(out)), "lines": dict(self.lines(out))}


def stage(base: Path) -> dict[str, Scene]:
    """All scenes that need no cluster, and in `base` what they read."""
    base.mkdir(parents=True, exist_ok=True)
    rng, rows = np.random.default_rng(0), 100_000
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
    scenes = [
        Scene("data import", f"data import {base}/recording.npz --max-steps 1000 --out mine", finals, nothing, quick),
        Scene("data make", f"data make {POOLS} --out made", finals, nothing, quick | {"WINNOW_DATA": "{out}"}),
        Scene("train", f"{hops} --steps 600 --checkpoint-seconds 0 {trains}", finals, grown, quick),
        Scene(
            "evaluate",
            f"evaluate {base}/train/runs --episodes 40 --processes 1 --out returns.json",
            finals,
            nothing,
            quick,
        ),
        Scene(
            "tune", f"{search} --steps {CHUNK} --batch-size 16 --hidden 8 {fits}", without_values, with_values, quick
        ),
        Scene("bench run", f"{grid} {trains}", results, nothing, quick),
        Scene(
            "report",
            f"report {base}/scored --html page.html --csv runs.csv --markdown table.md",
            finals,
            nothing,
            quick,
        ),
    ]
    return {scene.name: scene for scene in scenes}


def finals(out: Path) -> dict[str, bytes]:
    """Files under a folder that have their final names, without checkpoints, what waits to be played, and locks."""
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


def grown(out: Path) -> dict[str, Any]:
    """The lines of metrics and returns; those of several packs come in any order."""
    found = [path for path in out.rglob("*.jsonl") if path.name in ("metrics.jsonl", "returns.jsonl")]
    return {str(path.relative_to(out)): sorted(map(json.dumps, read_metrics(path))) for path in found}


VALUES = "search/values.safetensors"
"""What candidates are worth: written again with every round of a search."""


def without_values(out: Path) -> dict[str, bytes]:
    return {name: held for name, held in finals(out).items() if name != VALUES}


def with_values(out: Path) -> dict[str, Any]:
    return grown(out) | {VALUES: (out / VALUES).read_bytes()}


def results(out: Path) -> dict[str, Any]:
    """The results of a grid, but for the times they took."""
    return outcomes(out)


def behind(out: Path) -> int:
    """Updates that were reported and are not in a checkpoint: what a killed training has to do again."""
    most = 0
    for metrics in out.rglob("metrics.jsonl"):
        folder = metrics.parent
        packs = [read_record(path)["step"] for path in folder.glob("pack-*.safetensors")]
        for line in read_metrics(metrics):
            if not (folder / f"{line['run']}.safetensors").exists():
                most = max(most, line["step"] - max(packs, default=0))
    return most
