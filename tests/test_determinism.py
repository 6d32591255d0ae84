"""The same seed gives the same bits, on any number of cores and after a stop; on another kind of CPU, nearly the same.

What is tested is the command line, in processes of its own: XLA looks for cores and instructions once, when it starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from winnow import envs, toy
from winnow.data import pools, store
from winnow.system.metrics import read_metrics

NAME = "hopper-random-expert-20%@1500"
TRAIN = f"train {NAME} --algorithm bc --method dual-aw --seeds 2 --steps 30 --chunk 10 --no-evaluate --out out"
ALL_OF_IT = (f"data make {NAME}", TRAIN, "evaluate out --episodes 2 --out returns.jsonl")
CORES = sorted(os.sched_getaffinity(0))
OTHER_THREADS = {
    "PJRT_NPROC": "5",
    "OMP_NUM_THREADS": "3",
    "OPENBLAS_NUM_THREADS": "3",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}
OLD_CPU = {"XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2"}
"""XLA's programs as for a CPU of 2008: no fused multiply-add, vectors of a quarter of the width."""
STOP = 17

CHILD = """
import os, signal, sys
cores, stop, *commands = sys.argv[1:]
os.sched_setaffinity(0, map(int, cores.split(",")))
from winnow.cli import main
if stop != "0":
    from winnow.training import pace
    from winnow.packs.pack import Pack
    advance, pace.CALL_SECONDS = Pack.advance, 1e-9  # a step at a time
    def stopped(pack, count):
        advance(pack, count)
        if pack.step == int(stop):
            os.kill(os.getpid(), signal.SIGINT)
    Pack.advance = stopped
sys.exit(max(main(command.split()) for command in commands))
"""


class Child:
    """Commands of winnow, one after another, in a folder and a process that may use some cores."""

    def __init__(
        self, folder: Path, cores: list[int], *commands: str, stop: int = 0, settings: dict[str, str] | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        places = {"WINNOW_DATA": str(folder / "data"), "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, ",".join(map(str, cores)), str(stop), *commands],
            cwd=folder,
            env=os.environ | places | (settings or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def ends(self, code: int = 0) -> None:
        said, _ = self.process.communicate(timeout=300)
        assert self.process.returncode == code, said.decode()


def metrics(folder: Path) -> list[dict[str, Any]]:
    return read_metrics(folder / "out" / "metrics.jsonl")


def differing(one: Path, other: Path, *names: str) -> list[str]:
    return [name for name in names if (one / name).read_bytes() != (other / name).read_bytes()]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Data made, policies trained and played: on one core, and on all of them with other numbers of threads."""
    one, many = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("many")
    for child in (Child(one, CORES[:1], *ALL_OF_IT), Child(many, CORES, *ALL_OF_IT, settings=OTHER_THREADS)):
        child.ends()
    return one, many


def test_the_number_of_cores_and_threads_changes_no_bit(folders):
    one, many = folders
    files = [str(path.relative_to(one)) for path in one.rglob("*.safetensors")]
    assert len(files) == 4  # two pools and two runs
    assert not differing(one, many, *files, "returns.jsonl")
    assert metrics(one) == metrics(many)


def test_stopped_on_one_core_and_resumed_on_all_changes_no_bit(folders, tmp_path):
    one, _ = folders
    (tmp_path / "data").symlink_to(one / "data")
    Child(tmp_path, CORES[:1], TRAIN, stop=STOP).ends(130)
    assert {line["step"] for line in metrics(tmp_path)} == {10}
    Child(tmp_path, CORES, f"{TRAIN} --resume").ends()
    runs = [f"out/{path.name}" for path in (one / "out").glob("*.safetensors")]
    assert len(runs) == 2
    assert not differing(one, tmp_path, *runs)
    assert metrics(one) == metrics(tmp_path)


# -------------------------------------------------------------------------------------------- other machines

SHORT = (
    "train dome.safetensors --algorithm iql --sampler aw --sampler.temperature 5 --weighter dual "
    "--weighter.average row --weighter.budget 1.0 --seeds 1 --steps 50 --chunk 50 --no-evaluate --out out"
)
RECORDED = {
    "loss/actor": 1.9636474,
    "loss/critic": 33.333683,
    "loss/value": 0.00046050057,
    "q": 0.53744513,
    "weight/ess": 0.61171633,
    "weight/flow": 0.059706241,
    "weight/kl": 0.37627289,
    "weight/max": 2.5274775,
    "weight/reward": 0.96645063,
    "weighter/loss": 1.0192127,
    "weighter/temperature": 0.079850227,
}
"""Metrics of the last step of `SHORT`, with jax 0.10.2 on an AMD EPYC with AVX-512."""
TOLERANCE = 0.005
"""How far they may be off on another machine or with another jax, as a part of their size. An old CPU's programs and
jax 0.11 and 0.12 are off by 0.00005 at the most."""


@pytest.mark.parametrize("settings", [{}, OLD_CPU], ids=["this CPU", "an old CPU"])
def test_a_short_training_gives_the_recorded_numbers(tmp_path, settings):
    store.save(toy.imbalanced(2000, 0.2), tmp_path / "dome.safetensors")
    Child(tmp_path, CORES, SHORT, settings=settings).ends()
    (line,) = metrics(tmp_path)
    assert {name: line[name] for name in RECORDED} == pytest.approx(RECORDED, rel=TOLERANCE)


PHYSICS = "mujoco 3.17.0, gymnasium 1.4.0"
RANDOM, EXPERT = "597988ac24893114854708dc638e4b73", 3489.0
"""The fingerprint of 2,000 rows of random actions under that physics; the mean return of as many of the expert's."""


def test_pools_are_the_recorded_ones(tmp_path, monkeypatch):
    """Random actions need no matrix product, so their episodes are the same on every CPU. What the expert does hangs
    on how its CPU adds up, so its episodes are of equal worth and no more."""
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path))
    pool, other = pools.pool("hopper", "random", 2000), pools.pool("hopper", "expert", 2000)
    assert (pool.fingerprint == RANDOM) == (envs.physics("hopper") == PHYSICS)
    assert other.returns.mean() == pytest.approx(EXPERT, rel=0.02)
