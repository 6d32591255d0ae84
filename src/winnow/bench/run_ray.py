"""Runs a grid on a Ray cluster: one task for each pack, on any free device.

This process plans, shows one bar over all tasks, and writes the results that they return: the nodes need winnow, and no
shared folder. Each node makes the datasets that its packs name. A pack whose node dies is trained again on another
node: from its last checkpoint if all nodes see the grid's folder (`shared`), from the start otherwise.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from winnow.bench.costs import Measured
from winnow.bench.plan import Planned, cut
from winnow.bench.remaining import Todo, lock_of, work_of
from winnow.bench.results import Result, load
from winnow.bench.run_local import Done, claimed, run_pack
from winnow.errors import BadInput
from winnow.system.locks import locked
from winnow.system.progress import Progress
from winnow.system.ray import (
    RETRIES,
    NodeAffinitySchedulingStrategy,
    RayError,
    RayTaskError,
    connected,
    ray,
)
from winnow.training.hooks import Hooks

POLL_SECONDS = 0.5
"""Seconds between two looks at the cluster, and between two reports of a task."""


def run(
    packs: Sequence[Sequence[Planned]],
    folder: Path,
    *,
    address: str = "auto",
    shared: bool = False,
    shard: tuple[int, int] = (1, 1),
    retry_failed: bool = False,
    progress: bool = True,
) -> Done:
    """Do what is missing of these packs on a cluster, and write a result for each run.

    address: HOST:PORT of the cluster, ray://HOST:PORT, or auto: $RAY_ADDRESS, or the one that this machine is part of
    shared: the folder has the same path on every node: unfinished packs are kept there and continue where they stopped
    shard: (number, count) of this process's shard of the grid
    retry_failed: train failed runs again
    """
    with claimed(packs, folder, shard, retry_failed) as left:
        if not left.packs:
            return Done(left.done, [])
        total = sum(run.how.steps for run in left.runs)
        with connected(address), Progress(total, shown=progress) as bar:
            return Done(left.done, _Grid(left, folder, shared, total, bar).run())


def measure_packs(left: Todo, address: str = "auto") -> Measured:
    """What these packs will take on a cluster, measured on one of its devices."""
    with connected(address):
        options, count = share_of_a_node(ray.nodes())
        task: Any = ray.remote(max_retries=RETRIES, **options)(measure)
        try:
            return ray.get(task.remote(left.begun, left.spread(count), max(1, count)))
        except RayError as error:
            raise BadInput(f"--ray-address {address}: the cluster can't measure packs ({error})") from error


# ------------------------------------------------------------------------------------------------ on the nodes


def work(pack: Sequence[Planned], number: int, folder: Path | None, data: str | None, tally: Any) -> list[Result]:
    """The task: train and evaluate the first runs of a pack, as many as fit the device. The driver submits the rest
    again.

    number: identifies the task when it reports its progress
    folder: the grid's folder, if this node sees it
    data: the driver's $WINNOW_DATA
    """
    import jax

    from winnow.bench.costs import Costs

    node = ray.get_runtime_context().get_node_id()
    bar = _Reported(lambda steps: tally.report.remote(number, node, steps))
    bar.count(0)
    hooks = Hooks(bar)
    if data:
        os.environ["WINNOW_DATA"] = data
    if folder and (work_of(folder, pack) / "pack.json").exists():
        first = list(pack)  # it was begun, so it continues with the same runs
    else:
        first = cut(pack, -(-len(pack) // Costs(jax.local_devices()[0]).fitting(pack)))[0]
    if folder:
        with locked(lock_of(work_of(folder, first)), wait=True):
            pass  # the process of a lost node may still be running for a moment
        return run_pack(first, folder, hooks=hooks)
    with tempfile.TemporaryDirectory(prefix="winnow-", ignore_cleanup_errors=True) as own_folder:
        return run_pack(first, Path(own_folder), hooks=hooks)


def measure(begun: Sequence[list[Planned]], new: Sequence[list[Planned]], devices: int) -> Measured:
    """The task of a dry run."""
    import jax

    from winnow.bench.costs import measure_packs

    return measure_packs(jax.local_devices()[0], begun, new, devices)


class _Reported(Progress):
    """A bar that is shown by another process: reports every `POLL_SECONDS` how many run-steps are done."""

    def __init__(self, report: Any) -> None:
        super().__init__(1, shown=False)
        self._report = report
        self._last = 0.0

    def count(self, steps: int) -> None:
        super().count(steps)
        if time.monotonic() - self._last > POLL_SECONDS:
            self._last = time.monotonic()
            self._report(self._done)


class Tally:
    """An actor on the driver's node that knows where each task runs, and how many run-steps it has done there."""

    def __init__(self) -> None:
        self.reports: dict[int, tuple[str, int]] = {}

    def report(self, number: int, node: str, steps: int) -> None:
        self.reports[number] = (node, steps)

    def all(self) -> dict[int, tuple[str, int]]:
        return self.reports


# ------------------------------------------------------------------------------------------------ in the driver


def share_of_a_node(nodes: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], int]:
    """What a task requests, and how many tasks fit the cluster: a GPU and its share of the cores if there are GPUs;
    otherwise the cores of the smallest node, because a pack uses all of them."""
    kinds = [node["Resources"] for node in nodes if node["Alive"]]
    with_gpu = [kind for kind in kinds if kind.get("GPU", 0) >= 1]
    if with_gpu:
        cores = min(kind.get("CPU", 0) // kind["GPU"] for kind in with_gpu)
        return {"num_gpus": 1, "num_cpus": cores}, int(sum(kind["GPU"] for kind in with_gpu))
    sizes = [kind["CPU"] for kind in kinds if kind.get("CPU", 0) >= 1]
    cores = min(sizes, default=1)
    return {"num_gpus": 0, "num_cpus": cores}, int(sum(size // cores for size in sizes))


class _Grid:
    """The running tasks, and the results that they have returned."""

    def __init__(self, left: Todo, folder: Path, shared: bool, total: int, bar: Progress) -> None:
        self.folder = folder.resolve()
        self.shared = shared
        self.total = total
        self.bar = bar
        self.results: list[Result] = []
        self.steps = 0  # of finished runs
        self.number = 0
        self.tasks: dict[Any, tuple[int, Sequence[Planned]]] = {}
        options, count = share_of_a_node(ray.nodes())
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self.tally: Any = ray.remote(num_cpus=0)(Tally).options(scheduling_strategy=here).remote()
        self.task: Any = ray.remote(max_retries=RETRIES, scheduling_strategy="SPREAD", **options)(work)
        self.waiting = [*left.begun, *left.spread(count)]

    def run(self) -> list[Result]:
        try:
            for pack in self.waiting:
                self._submit(pack)
            while self.tasks:
                for task in ray.wait(list(self.tasks), timeout=POLL_SECONDS)[0]:
                    self._take(task)
                self._show(ray.get(self.tally.all.remote()))
        except BaseException as error:
            self._stop()
            if isinstance(error, RayTaskError) and isinstance(error.cause, BadInput):
                raise BadInput(str(error.cause)) from error
            if isinstance(error, RayError) and not isinstance(error, RayTaskError):
                raise BadInput(f"the cluster gave up ({error}); run the same command to continue") from error
            raise
        return self.results

    def _submit(self, pack: Sequence[Planned]) -> None:
        self.number += 1
        where = self.folder if self.shared else None
        task = self.task.remote(pack, self.number, where, os.environ.get("WINNOW_DATA"), self.tally)
        self.tasks[task] = self.number, pack

    def _take(self, task: Any) -> None:
        """Write the results of a task, and submit again the runs that did not fit its device."""
        _, pack = self.tasks.pop(task)
        results: list[Result] = ray.get(task)
        returned = {result.id for result in results}
        if not returned or not returned <= {run.id for run in pack}:
            raise BadInput(
                f"{pack[0].name}: a node returned other runs than it was given; install the same winnow on all nodes"
            )
        for result in results:
            load(result.save(self.folder))
        self.results += results
        self.steps += sum(run.how.steps for run in pack if run.id in returned)
        if rest := [run for run in pack if run.id not in returned]:
            for part in cut(rest, -(-len(rest) // len(results))):
                self._submit(part)

    def _show(self, reports: dict[int, tuple[str, int]]) -> None:
        """One bar over all tasks. It goes back when a node dies and its work is lost."""
        at_work = [reports[number] for number, _ in self.tasks.values() if number in reports]
        nodes = len({node for node, _ in at_work})
        self.bar.describe(f"{len(at_work)} packs on {nodes} nodes, {len(self.tasks) - len(at_work)} wait")
        self.bar.reach(min(self.total, self.steps + sum(steps for _, steps in at_work)), self.total)

    def _stop(self) -> None:
        """Stop all tasks: after a checkpoint if the folder is shared, otherwise at once, since it would be lost."""
        if not self.tasks:
            return
        running = ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=0)[1]
        for task in running:  # and no finished one: Ray 2.60 aborts this process when a task is cancelled as it ends
            ray.cancel(task, force=not self.shared)
        if self.shared and running:
            self.bar.say("stopping after a checkpoint; Ctrl-C again stops at once. Run the same command to continue")
            ray.wait(running, num_returns=len(running))
