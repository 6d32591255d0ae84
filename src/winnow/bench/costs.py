"""What packs take: bytes on a device and seconds, measured with programs of the same shape on a few made-up rows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from winnow.bench.plan import Planned, cut
from winnow.data.names import parse
from winnow.envs import cores_here
from winnow.pack import Pack
from winnow.programs import advance
from winnow.runs import Run
from winnow.types import Spec

MARGIN = 0.85
"""The part of an accelerator's memory that packs may fill by this reckoning: programs and fragments take some too."""
ON_A_CPU = 16
"""Runs in one pack at the most where they do not step together anyway."""
UNKNOWN_ROWS = 2_000_000
"""Rows that a file of D4RL is taken to hold before it is opened: as many as the largest."""


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
        return table_bytes(pack) + len(pack) * self.of_a_run(_longest(pack))

    def fitting(self, pack: Sequence[Planned]) -> int:
        """How many runs of a pack fit into the device's memory, at least one."""
        free = self._free()
        if free is None:
            return len(pack)
        fits = max(1, int(free - table_bytes(pack)) // self.of_a_run(_longest(pack)))
        return min(fits, ON_A_CPU) if self.on_cpu else fits

    def _free(self) -> int | None:
        if self.on_cpu:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 if hasattr(os, "sysconf") else None
        said = self.device.memory_stats()
        return int(MARGIN * said["bytes_limit"]) - said["bytes_in_use"] if said else None

    def of_a_run(self, run: Planned) -> int:
        """Bytes that one run of a pack takes: its state, a copy that is being written to disk, and a step's workings.

        An accelerator's workings are those that the compiler has set aside for a pack of 4. On a CPU runs go through
        the program one by one: what counts is their states, which are copied as they are put together again.
        """
        key = run.shape, run.how.batch_size, run.entry.rows
        if key not in self._bytes:
            spec = Spec(*run.entry.sizes, run.entry.rows or UNKNOWN_ROWS)
            state = jax.eval_shape(
                lambda key: (run.weighter.init(key, spec), run.algorithm.init(key, spec)), jax.random.key(0)
            )
            size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
            self._bytes[key] = 4 * size if self.on_cpu else 2 * size + self._workings(run)
        return self._bytes[key]

    def _workings(self, run: Planned, count: int = 4) -> int:
        pack = self._stand_in(run, count)
        program = jax.jit(advance, static_argnames=("batch_size", "count"), donate_argnames=("learners",))
        step = jnp.asarray(0), jnp.asarray(run.how.steps)
        with jax.default_device(self.device):
            made = program.lower(
                pack.tables, pack.lanes, pack.learners, *step, count=100, batch_size=run.how.batch_size
            ).compile()
        found = made.memory_analysis()
        return -(-int(found.temp_size_in_bytes) // count) if found else 0

    def _stand_in(self, run: Planned, count: int) -> Pack:
        rows = run.entry.stand_in()
        runs = [Run(rows, run.algorithm, run.sampler, run.weighter, seed, f"run{seed}") for seed in range(count)]
        with jax.default_device(self.device):
            return Pack(runs, run.how.steps, run.how.batch_size)

    def seconds(self, pack: Sequence[Planned]) -> float:
        """The time that a pack will take, its compilation included and its data, evaluation and checkpoints not."""
        compiling, rate = self.speed(pack[0], min(len(pack), cores_here()) if self.on_cpu else len(pack))
        return compiling + pack[0].how.steps * len(pack) / rate

    def speed(self, run: Planned, count: int, least: float = 1.0) -> tuple[float, float]:
        """Seconds before the first step is done, and run-steps a second after that, of a pack of `count`."""
        key = run.shape, run.how.batch_size, count
        if key not in self._speeds:
            began = time.perf_counter()
            pack = self._stand_in(run, count)
            # An accelerator's programs are compiled for a number of steps, a CPU's for any.
            turn = 2 if self.on_cpu else 100
            with jax.default_device(self.device):
                pack.advance(turn)
                pack.wait()
                compiling = time.perf_counter() - began
                self._speeds[key] = compiling, count * pace(pack, turn, least, growing=self.on_cpu)
        return self._speeds[key]


def pace(pack: Pack, turn: int, least: float, growing: bool = False) -> float:
    """Steps a second of a compiled pack, over at least so many seconds of turns, each twice the last if `growing`."""
    spent, done = 0.0, 0
    while spent < least:
        began = time.perf_counter()
        pack.advance(turn)
        pack.wait()
        spent, done = spent + time.perf_counter() - began, done + turn
        turn = 2 * turn if growing else turn
    return done / spent


class Need(NamedTuple):
    """What a pack takes."""

    pack: list[Planned]
    memory: int
    seconds: float


@dataclass(frozen=True)
class Reckoned:
    """What a grid takes."""

    kind: str
    """The device that it was measured on."""
    places: int
    """How many packs are trained at a time."""
    needs: list[Need]

    @property
    def seconds(self) -> float:
        """Until the last pack is trained."""
        each = [need.seconds for need in self.needs]
        return max(sum(each) / self.places, max(each, default=0.0))


def reckon(
    device: Any,
    begun: Sequence[list[Planned]],
    new: Sequence[list[Planned]],
    places: int,
    told: Callable[[int, int], None] = lambda number, count: None,
) -> Reckoned:
    """What packs will take: those that were begun as they are, the others in as many parts as fit the device.

    told: hears which pack is being measured, of how many
    """
    costs, needs = Costs(device), []
    packs = list(begun)
    for pack in new:
        packs += cut(pack, -(-len(pack) // costs.fitting(pack)))
    for number, pack in enumerate(packs, 1):
        told(number, len(packs))
        needs.append(Need(pack, costs.memory(pack), costs.seconds(pack)))
    return Reckoned(device.device_kind, places, needs)


def _longest(pack: Sequence[Planned]) -> Planned:
    """A run with the most rows: what is kept for every row is as long as that for all runs of its pack."""
    return max(pack, key=lambda run: run.entry.rows or UNKNOWN_ROWS)


def table_bytes(pack: Sequence[Planned]) -> int:
    """Bytes of the tables that the runs of a pack share: the rows of their sources, row lists and alias tables."""
    sizes = sum(pack[0].entry.sizes) + 2
    sources = {source: parse(source) for run in pack for source in run.entry.name.sources or (run.entry.text,)}
    slots = sum(UNKNOWN_ROWS if source.kind == "d4rl" else source.pool_rows for source in sources.values())
    rows = {run.entry.text: run.entry.rows or UNKNOWN_ROWS for run in pack}
    drawn = {(run.entry.text, run.sampler) for run in pack}
    # 5 % of the slots hold final observations, where episodes are short; a row's entries are its slot and its episode.
    return int(1.05 * 4 * sizes * slots) + 8 * sum(rows.values()) + 8 * sum(rows[text] for text, _ in drawn)
