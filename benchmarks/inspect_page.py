"""Cost of `winnow inspect --html` on a million rows: seconds (wall clock and processor) and bytes of the page.

    python benchmarks/inspect_page.py [--rows N] [--keep DIR] [--write results/speed/inspect.json]

The dataset is made up: as wide as hopper's (11 observations, 3 actions), with 95 % short episodes of a bad source and
5 % long ones of a good one. The page is made once without a run and once with a run whose weighter has the usual size
(untrained: weighing rows takes as long). The goal is less than 30 s on two cores, and 8 MB. If Chromium is installed,
the script also opens the page and changes the colours of its map.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from browser import CHROMIUM, Browser

from winnow.data import store
from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset, combine
from winnow.errors import run_script

TIMED = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
    "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime, used.ru_maxrss)"
)


def made_up(rows: int, length: int, reward: float, seed: int) -> Dataset:
    """Random walks in episodes of about `length` steps, with a reward of about `reward` per step."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(length // 2, 2 * length, max(1, rows // length))
    lengths = lengths[: max(1, int(np.searchsorted(np.cumsum(lengths), rows)))]
    n = int(lengths.sum())
    last = np.cumsum(lengths) - 1
    terminal = np.zeros(n, bool)
    terminal[last] = True
    walk = np.cumsum(rng.normal(size=(n, 11)).astype(np.float32), axis=0)
    walk -= np.repeat(walk[np.append(0, last[:-1] + 1)], lengths, axis=0)
    # the final observation of an episode is a copy of the one before
    following = np.where(terminal[:, None], walk, np.roll(walk, -1, axis=0))
    actions = rng.uniform(-1, 1, (n, 3)).astype(np.float32)
    rewards = rng.normal(reward, 0.3, n).astype(np.float32)
    return from_arrays(walk, actions, rewards, terminal, np.zeros(n, bool), following, action_bounds=(-1, 1))


def finished(path: Path, data: Dataset) -> None:
    """Save an untrained run of DW with AW, of the usual sizes."""
    import jax

    from winnow.methods import make_algorithm, method
    from winnow.packs.run import Run
    from winnow.policy import Policy
    from winnow.training.trained import Trained

    run = Run(data, make_algorithm("iql"), *method("dw-aw", "iql"), 0, "made-up.iql.dw-aw.seed0")
    learner, state = (part.init(jax.random.key(0), run.spec) for part in (run.algorithm, run.weighter))
    sizes = (data.obs_dim, data.obs_dim, data.action_dim, data.action_dim)
    Trained(run, 0, None, Policy(run.algorithm, learner, *(np.ones(size) for size in sizes)), state).save(path)


def timed(file: Path, page: Path, runs: list[Path]) -> dict[str, Any]:
    command = [sys.executable, "-m", "winnow.cli", "inspect", str(file), "--html", str(page)]
    command += ["--run", *map(str, runs)] if runs else []
    load = os.getloadavg()[0]
    began = time.perf_counter()
    output = subprocess.run([sys.executable, "-c", TIMED, *command], check=True, capture_output=True, text=True).stdout
    wall = time.perf_counter() - began
    processor, memory = map(float, output.split()[-2:])
    return {
        "wall, s": round(wall, 1),
        "processor, s": round(processor, 1),
        "memory, MB": round(memory / 1024),
        "page, MB": round(page.stat().st_size / 1e6, 2),
        "load average before": round(load, 1),
    }


def opened(page: Path, profile: Path) -> dict[str, Any]:
    with Browser(profile) as browser:
        browser.look()
        began = time.perf_counter()
        browser.open(page)
        seconds = time.perf_counter() - began
        coloured = browser.run(
            "(b => { const t = performance.now(); b.click(); return performance.now() - t; })"
            "(document.querySelector('#colouring input[value=source]'))"
        )
        assert not browser.complaints
    return {"opened, s": round(seconds, 2), "coloured anew, ms": round(coloured)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time, memory and size of the page of a large dataset")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="a folder for the data and the pages")
    parser.add_argument("--write", type=Path, help="a JSON file for the numbers")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "made-up.safetensors"
        run = folder / "run.safetensors"
        bad = made_up(int(0.95 * args.rows), 22, 0.5, 0)
        good = made_up(int(0.05 * args.rows) + 2000, 500, 3.0, 1)
        store.save(combine({"bad": bad, "good": good}, name="made-up"), file)
        data = store.load(file)
        finished(run, data)
        numbers: dict[str, Any] = {"rows": len(data), "episodes": len(data.episodes), "cores": os.cpu_count()}
        numbers["without a run"] = timed(file, folder / "plain.html", [])
        numbers["with one run"] = timed(file, folder / "page.html", [run])
        if CHROMIUM:
            numbers["in Chromium"] = opened(folder / "page.html", Path(temporary) / "profile")
    print(json.dumps(numbers, indent=1))
    if args.write:
        args.write.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_script(main)
