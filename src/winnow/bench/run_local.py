"""Runs a grid on this machine: packs one after another on each of its devices, results as they are finished.

DIR/results/ID.json    finished runs; those in DIR.jsonl.gz are finished too (see `winnow.bench.results`)
DIR/work/HASH/         an unfinished pack: checkpoints, metrics, policies that are not evaluated yet
DIR/locks/             held by the processes that work here

A process may be killed at any moment: a second call does what is missing, and a pack loses at most one chunk.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from winnow.bench.costs import Costs
from winnow.bench.datasets import OpenDatasets, make_ready
from winnow.bench.make_result import facts, result_of
from winnow.bench.plan import Planned, cut
from winnow.bench.remaining import Todo, begin, lock_of, tidy, todo, work_of
from winnow.bench.results import Result, collect
from winnow.data.catalogue import Watch, unwatched
from winnow.errors import BadInput, out_of_memory
from winnow.evaluation.candidates import resolve_environment
from winnow.packs.run import Run, probabilities
from winnow.plugins import record
from winnow.system.files import sweep
from winnow.system.locks import Taken, is_held, locked
from winnow.system.metrics import read_metrics
from winnow.system.progress import Progress, say
from winnow.training import train_runs
from winnow.training.hooks import Hooks
from winnow.types import Spec

# ----------------------------------------------------------------------------------------------------- a pack


def run_pack(
    pack: Sequence[Planned], folder: Path, *, opened: OpenDatasets | None = None, hooks: Hooks | None = None
) -> list[Result]:
    """Train and play the runs of one pack on jax's default device, and write their results.

    An interrupted pack continues where it stopped. A pack that runs out of memory is halved and tried again. Other
    processes may work on other packs in the same folder: a worker on another machine has to call only this.

    opened: datasets that may be open already
    hooks: callbacks of training; without any it is silent
    """
    work = work_of(folder, pack)
    make_ready(pack, say=say)
    try:
        with locked(lock_of(work)):
            return _run_pack(pack, folder, work, opened or OpenDatasets(), hooks)
    except Exception as error:
        if not out_of_memory(error):
            raise
    if len(pack) == 1:
        raise BadInput(
            f"{pack[0].name}: does not fit into the free memory of the device; stop what else uses it (nvidia-smi), "
            "or choose a smaller --batch-size"
        )
    shutil.rmtree(work, ignore_errors=True)
    gc.collect()  # frees the device memory of the failed attempt
    halves = [run_pack(half, folder, opened=opened, hooks=hooks) for half in cut(pack, 2)]
    return [result for results in halves for result in results]


def _run_pack(
    pack: Sequence[Planned], folder: Path, work: Path, opened: OpenDatasets, hooks: Hooks | None
) -> list[Result]:
    begin(work, pack)
    began = time.monotonic()
    how = pack[0].how
    with opened.opened(pack) as datasets:
        trained = train_runs(
            [
                Run(
                    datasets[planned.entry.text],
                    planned.algorithm,
                    planned.sampler,
                    planned.weighter,
                    planned.seed,
                    planned.name,
                    planned.method,
                )
                for planned in pack
            ],
            steps=how.steps,
            batch_size=how.batch_size,
            chunk=how.chunk,
            out=work,
            resume=True,
            checkpoint_seconds=0,
            progress=False,
            hooks=hooks,
            evaluate=how.evaluation,
            held_out=how.held_out,
        )
        lines: dict[str, list[dict[str, Any]]] = {}
        for line in read_metrics(work / "metrics.jsonl"):
            lines.setdefault(line["run"], []).append(line)
        seconds = (time.monotonic() - began) / len(pack)
        chance = probabilities([finished.run for finished in trained])
        known = {text: facts(data) for text, data in datasets.items()}
        results = [
            result_of(
                planned,
                finished,
                lines.get(planned.name, []),
                seconds,
                chance[finished.run.drawing],
                known[planned.entry.text],
            )
            for planned, finished in zip(pack, trained, strict=True)
        ]
    for result in results:
        result.save(folder)
    shutil.rmtree(work, ignore_errors=True)
    return results


# ------------------------------------------------------------------------------------------------- all packs


@dataclass(frozen=True)
class Done:
    """What a call has done."""

    before: int
    """Runs of the plan that had results already."""
    results: list[Result]


def run(
    packs: Sequence[Sequence[Planned]],
    folder: Path,
    *,
    shard: tuple[int, int] = (1, 1),
    retry_failed: bool = False,
    devices: Sequence[Any] | None = None,
    watch: Watch = unwatched,
    progress: bool | Progress = True,
) -> Done:
    """Do what is missing of these packs on all local devices, and write a result for each run.

    shard: (number, count): several processes may share the folder, one for each shard of the grid
    retry_failed: train failed runs again
    watch: shows progress while datasets are made
    progress: whether to show a bar over all run-steps; or the caller's own bar
    """
    devices = devices or jax.local_devices()
    with claimed(packs, folder, shard, retry_failed) as left:
        if not left.packs:
            return Done(left.done, [])
        for entry in {run.entry.environment: run.entry for run in left.runs}.values():
            resolve_environment(entry.environment, Spec(*entry.sizes, 1))
        make_ready(left.runs, watch, say=say)
        total = sum(run.how.steps for run in left.runs)
        with Progress(total, shown=progress) if isinstance(progress, bool) else progress as bar:
            return Done(left.done, _Grid(left, folder, bar, len(devices)).run(devices))


def finished(folder: Path, *, retry_failed: bool = False, move: bool = True) -> set[str]:
    """The ids of runs that have results. Bad files are named and set aside (or, without `move`, left where they
    are)."""
    return {result.id for result in collect(folder, say, move=move) if result.finished or not retry_failed}


@contextlib.contextmanager
def claimed(
    packs: Sequence[Sequence[Planned]], folder: Path, shard: tuple[int, int], retry_failed: bool
) -> Iterator[Todo]:
    """What is missing of these packs, locked for this process. Leftovers of earlier processes are removed first."""
    with alone(folder, *shard):
        if shard[1] == 1:
            sweep(folder / "results")
        done = finished(folder, retry_failed=retry_failed)
        tidy(folder, done)
        yield todo(packs, folder, done)


@contextlib.contextmanager
def alone(folder: Path, number: int, count: int) -> Iterator[None]:
    """Lock out processes that would train the same runs: those of the same shard, or of another number of shards."""
    locks = folder / "locks"
    with locked(locks / f"{number}-of-{count}.lock"):
        for path in locks.glob("*-of-*.lock"):
            if not path.name.endswith(f"-of-{count}.lock") and is_held(path):
                shard = path.stem.replace("-of-", "/")
                raise Taken(f"{folder}: another process is running shard {shard} here; use the same number of shards")
        yield


class _Grid:
    """Waiting packs, and the threads that run them: two for each device, so that one trains while the other's policies
    are still being evaluated."""

    def __init__(self, left: Todo, folder: Path, bar: Progress, devices: int) -> None:
        new = [(pack, True) for pack in left.spread(devices)]
        self.waiting = deque([(pack, False) for pack in left.begun] + new)
        self.folder = folder
        self.bar = bar
        self.datasets = OpenDatasets()
        self.number = 0  # of the last pack that was begun
        self.count = len(self.waiting)
        self.results: list[Result] = []
        self.errors: list[BaseException] = []
        self.stopping = False
        self.active: set[_PackHooks] = set()
        self.lock = threading.Lock()

    def run(self, devices: Sequence[Any]) -> list[Result]:
        threads = []
        for device in devices:
            arguments = (threading.Lock(), Costs(device))
            threads += [threading.Thread(target=self._work, args=arguments, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            self._join(threads)
        except KeyboardInterrupt:
            self.bar.say("stopping after a checkpoint; Ctrl-C again stops at once. Run the same command to continue")
            self.stop()
            try:
                self._join(threads)
            except KeyboardInterrupt:
                self.bar.say("stopped at once")
                os._exit(130)  # a thread inside a compiled program can't be stopped: a normal exit would abort
            raise
        if self.errors:
            raise self.errors[0]
        return self.results

    def _join(self, threads: Sequence[threading.Thread]) -> None:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # with a timeout: an endless wait ignores Ctrl-C on some systems

    def stop(self) -> None:
        """Let every pack stop at its next checkpoint, and begin no other."""
        with self.lock:
            self.stopping = True
            for hooks in self.active:
                hooks.ask_to_stop()

    def _work(self, gate: threading.Lock, costs: Costs) -> None:
        """Run packs on a device. The thread that has the gate may train on it."""
        try:
            with jax.default_device(costs.device):
                while True:
                    gate.acquire()
                    hooks = _PackHooks(self, gate)
                    try:
                        if (pack := self._next(costs)) is None:
                            return
                        hooks.name(pack)
                        results = run_pack(pack, self.folder, opened=self.datasets, hooks=hooks)
                        hooks.count_rest(sum(run.how.steps for run in pack))
                        with self.lock:
                            self.results += results
                    finally:
                        hooks.release()
        except BaseException as error:
            with self.lock:
                self.errors.append(error)
            self.stop()

    def _next(self, costs: Costs) -> list[Planned] | None:
        """A pack that fits the device. The rest of a larger pack goes back to the waiting ones."""
        with self.lock:
            if self.stopping or not self.waiting:
                return None
            pack, divisible = self.waiting.popleft()
        parts = cut(pack, -(-len(pack) // costs.fitting(pack))) if divisible else [pack]
        with self.lock:
            self.waiting.extendleft((part, True) for part in reversed(parts[1:]))
            self.number += 1
            self.count += len(parts) - 1
        return parts[0]


class _PackHooks(Hooks):
    """One pack's share of the grid's bar. It opens the gate for the next pack when only this one's evaluation is left,
    and stops with the grid."""

    def __init__(self, grid: _Grid, gate: threading.Lock) -> None:
        super().__init__(grid.bar)
        self.grid = grid
        self.gate = gate
        self.has_gate = True
        self.counted = 0
        with grid.lock:
            grid.active.add(self)

    def name(self, pack: Sequence[Planned]) -> None:
        algorithm = record(pack[0].algorithm)["name"]
        weighter = record(pack[0].weighter)["name"]
        environments = dict.fromkeys(run.entry.environment for run in pack)
        title = f"pack {self.grid.number} of {self.grid.count}: {len(pack)} × {algorithm}, weights {weighter}"
        self.bar.describe(f"{title}, {', '.join(environments)}")

    def say(self, text: str) -> None:
        if not self.grid.stopping:
            super().say(text)

    def warn(self, text: str) -> None:
        if not self.grid.stopping:
            super().warn(text)

    def on_begin(self) -> None:
        """When a pack did not fit and was halved, its second half waits here until the device is free again."""
        if not self.has_gate:
            self.gate.acquire()
            self.has_gate = True
        with self.grid.lock:
            if self.grid.stopping:
                self.ask_to_stop()

    def on_pack(self, title: str) -> None:
        """The grid has shown its title already."""

    def on_skipped(self, run_steps: int) -> None:
        super().on_skipped(run_steps)
        self.counted += run_steps

    def on_steps(self, run_steps: int) -> None:
        super().on_steps(run_steps)
        self.counted += run_steps

    def on_trained(self) -> None:
        self._open_gate()

    def on_evaluating(self, text: str) -> None:
        """The bar keeps the title of the pack that trains."""

    def on_end(self) -> None:
        """The grid closes the bar."""

    def count_rest(self, total: int) -> None:
        """Count the updates that a pack did not make because its runs failed."""
        self.bar.skip(total - self.counted)

    def release(self) -> None:
        with self.grid.lock:
            self.grid.active.discard(self)
        self._open_gate()

    def _open_gate(self) -> None:
        if self.has_gate:
            self.has_gate = False
            self.gate.release()
