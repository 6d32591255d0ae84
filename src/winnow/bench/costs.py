"""Memory and time of packs, measured with programs of the same shape on a few made-up rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import jaxprs_in_params

from winnow.bench.plan import Planned, cut
from winnow.data.names import parse
from winnow.envs import Environment, shape
from winnow.envs.play import play
from winnow.errors import BadInput
from winnow.evaluation.candidates import resolve_environment
from winnow.packs.pack import Pack, traced
from winnow.packs.run import Drawn, Run
from winnow.system.cores import cores_here
from winnow.types import Spec

MEMORY_SHARE = 0.85
"""Fraction of an accelerator's memory that packs may fill by this estimate: programs and fragmentation take some
too."""
MAX_CPU_PACK = 16
"""Maximum number of runs in one pack on a CPU, which steps its runs one after another."""
MEASURED_STEPS = 100
"""Steps in one call when an accelerator is measured: its programs are compiled for a fixed number of steps."""
MAX_COMPILING = 16
"""Maximum number of packs whose programs are compiled at the same time for a dry run on an accelerator."""
UNKNOWN_ROWS = 2_000_000
"""Assumed rows of a D4RL file that has not been opened yet: as many as the largest has."""


@dataclass
class Costs:
    """Measurements on one device, each made once for a shape."""

    device: Any
    _bytes: dict[Hashable, int] = field(default_factory=dict)
    _speeds: dict[Hashable, tuple[float, float]] = field(default_factory=dict)

    @property
    def on_cpu(self) -> bool:
        return self.device.platform == "cpu"

    def memory(self, pack: Sequence[Planned]) -> int:
        """Bytes that a pack takes on the device."""
        run = _longest(pack)
        state = self._state_bytes(run)
        each = 2 * state if self.on_cpu else state + self._step_bytes(run, len(pack))
        return table_bytes(pack) + len(pack) * each

    def fitting(self, pack: Sequence[Planned]) -> int:
        """How many runs of a pack fit into the device's memory, at least one.

        On a CPU runs go through the program one by one: only their states count, and the copy that is made when they
        are stacked again.
        """
        available = self._free()
        if available is None:
            return len(pack)
        free = available - table_bytes(pack)
        run = _longest(pack)
        state = self._state_bytes(run)
        if self.on_cpu:
            return max(1, min(free // (2 * state), MAX_CPU_PACK))
        if len(pack) * (state + self._step_bytes_bound(run, len(pack))) <= free:
            return len(pack)  # without asking the compiler, which is slow
        return max(1, free // (state + self._step_bytes(run)))

    def _free(self) -> int | None:
        if self.on_cpu:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 if hasattr(os, "sysconf") else None
        stats = self.device.memory_stats()
        return int(MEMORY_SHARE * stats["bytes_limit"]) - stats["bytes_in_use"] if stats else None

    def _state_bytes(self, run: Planned) -> int:
        """Bytes of a run's state, and of a copy that is being written to disk."""
        key = "state", run.shape, run.entry.rows
        if key not in self._bytes:
            spec = Spec(*run.entry.sizes, run.entry.rows or UNKNOWN_ROWS)
            state = jax.eval_shape(
                lambda key: (run.weighter.init(key, spec), run.algorithm.init(key, spec)), jax.random.key(0)
            )
            self._bytes[key] = 2 * sum(_bytes(leaf) for leaf in jax.tree.leaves(state))
        return self._bytes[key]

    def _step_bytes_bound(self, run: Planned, count: int = 4) -> int:
        """An upper bound on the bytes that a step of a run works with, in a pack of `count`: twice all that it
        computes. JAX caches the trace, so the program of such a pack is not traced again."""
        key = "bound", run.shape, run.how.batch_size, count
        if key not in self._bytes:
            self._bytes[key] = -(-2 * _computed_bytes(self._programs(run, count)[1].jaxpr.jaxpr) // count)
        return self._bytes[key]

    def _step_bytes(self, run: Planned, count: int = 4) -> int:
        """Bytes that a step of a run works with: its part of what the compiler reserves for a pack of `count`."""
        key = "step", run.shape, run.how.batch_size, count
        if key not in self._bytes:
            with jax.default_device(self.device):
                analyses = [program.lower().compile().memory_analysis() for program in self._programs(run, count)]
            self._bytes[key] = -(-max(int(each.temp_size_in_bytes) if each else 0 for each in analyses) // count)
        return self._bytes[key]

    def _programs(self, run: Planned, count: int) -> tuple[Any, Any]:
        runs, drawn = self._stand_ins(run, count)
        with jax.default_device(self.device):
            return traced(runs, run.how.steps, run.how.batch_size, MEASURED_STEPS, drawn)

    def _stand_ins(self, run: Planned, count: int) -> tuple[list[Run], Drawn]:
        """Runs of the same shape on made-up rows, sampled uniformly: a sampler changes no shape, and may be slow."""
        rows = run.entry.stand_in()
        runs = [Run(rows, run.algorithm, run.sampler, run.weighter, seed, f"run{seed}") for seed in range(count)]
        return runs, {runs[0].drawing: np.full(len(rows), 1 / len(rows))}

    def need(self, pack: list[Planned], memory: int) -> Need:
        """What a pack of so many bytes will take: compilation and training, without data, evaluation and
        checkpoints."""
        count = min(len(pack), cores_here()) if self.on_cpu else len(pack)
        compiling, rate = self.speed(pack[0], count)
        return Need(pack, memory, compiling + pack[0].how.steps * len(pack) / rate, rate)

    def speed(self, run: Planned, count: int, least: float = 1.0) -> tuple[float, float]:
        """Seconds before the first step is done, and run-steps a second after that, of a pack of `count`."""
        key = run.shape, run.how.batch_size, count
        if key not in self._speeds:
            began = time.perf_counter()
            steps = 2 if self.on_cpu else MEASURED_STEPS
            runs, drawn = self._stand_ins(run, count)
            with jax.default_device(self.device):
                pack = Pack(runs, run.how.steps, run.how.batch_size, drawn=drawn)
                pack.advance(steps)
                pack.wait()
                compiling = time.perf_counter() - began
                self._speeds[key] = (compiling, count * pace(pack, steps, least, growing=self.on_cpu))
        return self._speeds[key]


def pace(pack: Pack, steps: int, least: float, growing: bool = False) -> float:
    """Steps per second of a compiled pack, measured over at least so many seconds. Each call makes so many steps, or
    twice as many as the last if `growing`."""
    seconds = 0.0
    done = 0
    while seconds < least:
        began = time.perf_counter()
        pack.advance(steps)
        pack.wait()
        seconds += time.perf_counter() - began
        done += steps
        steps = 2 * steps if growing else steps
    return done / seconds


class Need(NamedTuple):
    """What a pack takes."""

    pack: list[Planned]
    memory: int
    seconds: float
    rate: float
    """Run-steps a second."""


@dataclass(frozen=True)
class Measured:
    """What a grid takes."""

    kind: str
    """The kind of device that it was measured on."""
    devices: int
    """How many packs are trained at a time."""
    needs: list[Need]

    @property
    def seconds(self) -> float:
        """Until the last pack is trained."""
        each = [need.seconds for need in self.needs]
        return max(sum(each) / self.devices, max(each, default=0.0))


def measure_packs(
    device: Any,
    begun: Sequence[list[Planned]],
    new: Sequence[list[Planned]],
    devices: int,
    on_pack: Callable[[str], None] = lambda text: None,
) -> Measured:
    """What packs will take: begun packs as they are, the others divided so that each part fits the device.

    on_pack: called with a line for each pack that is compiled or measured
    """
    costs = Costs(device)
    needs = []

    def sized(pack: list[Planned], whole: bool) -> list[tuple[list[Planned], int]]:
        parts = [pack] if whole else cut(pack, -(-len(pack) // costs.fitting(pack)))
        return [(part, costs.memory(part)) for part in parts]

    # On an accelerator, all programs are compiled first, in parallel: rates that are measured while other programs
    # compile would be too low. A CPU compiles each program when it is measured.
    packs: list[tuple[list[Planned], int]] = []
    count = len(begun) + len(new)
    with ThreadPoolExecutor(1 if costs.on_cpu else min(MAX_COMPILING, cores_here())) as pool:
        every = pool.map(sized, [*begun, *new], [True] * len(begun) + [False] * len(new))
        for number, parts in enumerate(every, 1):
            packs += parts
            on_pack(f"compiled {number} of {count} packs")
    for number, (pack, size) in enumerate(packs, 1):
        on_pack(f"measuring pack {number} of {len(packs)}")
        needs.append(costs.need(pack, size))
    return Measured(device.device_kind, devices, needs)


@dataclass(frozen=True)
class EvaluationTime:
    """What the evaluation of a grid takes on all cores of this machine, beside the training."""

    seconds: float
    """Upper bound: every episode at its full length."""
    unknown: dict[str, str]
    """Environments that can't be played here, and why."""


def evaluation_time(
    packs: Sequence[list[Planned]], on_environment: Callable[[str], None] = lambda environment: None
) -> EvaluationTime:
    """How long the evaluation of packs takes, from a few episodes in each of their environments.

    on_environment: called with the name of each environment before it is measured
    """
    rounds: dict[str, list[Planned]] = {}
    for run in (run for pack in packs for run in pack):
        rounds.setdefault(run.entry.environment, []).append(run)
    seconds = 0.0
    unknown = {}
    for environment, runs in rounds.items():
        on_environment(environment)
        try:
            entry = resolve_environment(environment, Spec(*runs[0].entry.sizes, 1))
            limit = shape(entry).time_limit or 0
            episodes = sum(run.how.evaluation.episodes * len(run.how.evaluation.steps(run.how.steps)) for run in runs)
            seconds += limit * episodes / _steps_per_second(entry)
        except BadInput as error:
            unknown[environment] = str(error)
    return EvaluationTime(seconds, unknown)


def _steps_per_second(entry: Environment, episodes: int = 4) -> float:
    """Steps per second of an environment on all cores, with policies that do nothing."""
    idle = np.zeros(len(shape(entry).low), np.float32)

    def act(obs: np.ndarray, _: slice) -> np.ndarray:
        return np.broadcast_to(idle, (*obs.shape[:2], len(idle)))

    return play(entry, act, range(2 * cores_here()), episodes).rate


def _bytes(array: Any) -> int:
    return array.size * array.dtype.itemsize if hasattr(array, "dtype") else 0


def _computed_bytes(jaxpr: Any) -> int:
    """Bytes of all that a program computes; a loop counts once, because each iteration overwrites the last."""
    return sum(
        sum(_bytes(variable.aval) for variable in equation.outvars)
        + sum(map(_computed_bytes, jaxprs_in_params(equation.params)))
        for equation in jaxpr.eqns
    )


def _longest(pack: Sequence[Planned]) -> Planned:
    """The run with the most rows: per-row state of all runs in a pack is padded to its length."""
    return max(pack, key=lambda run: run.entry.rows or UNKNOWN_ROWS)


def table_bytes(pack: Sequence[Planned]) -> int:
    """Bytes of the tables that the runs of a pack share: rows of their sources, row numbers and alias tables."""
    sizes = sum(pack[0].entry.sizes) + 2
    sources = {source: parse(source) for run in pack for source in run.entry.name.sources or (run.entry.text,)}
    slots = sum(UNKNOWN_ROWS if source.kind == "d4rl" else source.pool_rows for source in sources.values())
    rows = {run.entry.text: run.entry.rows or UNKNOWN_ROWS for run in pack}
    drawn = {(run.entry.text, run.sampler) for run in pack}
    # Up to 5 % more slots hold the final observations of episodes. Each row has two numbers: its slot and its episode.
    return int(1.05 * 4 * sizes * slots) + 8 * sum(rows.values()) + 8 * sum(rows[text] for text, _ in drawn)
