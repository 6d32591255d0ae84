"""What packs take: bytes on a device and seconds, measured with programs of the same shape on a few made-up rows."""

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

MARGIN = 0.85
"""The part of an accelerator's memory that packs may fill by this reckoning: programs and fragments take some too."""
ON_A_CPU = 16
"""Runs in one pack at the most where they do not step together anyway."""
TURN = 100
"""Steps that an accelerator is measured with at a time: its programs are compiled for a number of steps."""
AHEAD = 16
"""Packs whose programs are compiled side by side for a dry run on an accelerator."""
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
        run = _longest(pack)
        each = 2 * self._kept(run) if self.on_cpu else self._kept(run) + self._workings(run, len(pack))
        return table_bytes(pack) + len(pack) * each

    def fitting(self, pack: Sequence[Planned]) -> int:
        """How many runs of a pack fit into the device's memory, at least one.

        On a CPU runs go through the program one by one: what counts is their states, which are copied as they are put
        together again.
        """
        free = self._free()
        if free is None:
            return len(pack)
        free, run = free - table_bytes(pack), _longest(pack)
        kept = self._kept(run)
        if self.on_cpu:
            return max(1, min(free // (2 * kept), ON_A_CPU))
        if len(pack) * (kept + self._most(run, len(pack))) <= free:
            return len(pack)  # without asking the compiler, which takes its time
        return max(1, free // (kept + self._workings(run)))

    def _free(self) -> int | None:
        if self.on_cpu:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 if hasattr(os, "sysconf") else None
        said = self.device.memory_stats()
        return int(MARGIN * said["bytes_limit"]) - said["bytes_in_use"] if said else None

    def _kept(self, run: Planned) -> int:
        """Bytes of a run's state, and of a copy that is being written to disk."""
        key = "kept", run.shape, run.entry.rows
        if key not in self._bytes:
            spec = Spec(*run.entry.sizes, run.entry.rows or UNKNOWN_ROWS)
            state = jax.eval_shape(
                lambda key: (run.weighter.init(key, spec), run.algorithm.init(key, spec)), jax.random.key(0)
            )
            self._bytes[key] = 2 * sum(_bytes(leaf) for leaf in jax.tree.leaves(state))
        return self._bytes[key]

    def _most(self, run: Planned, count: int = 4) -> int:
        """More bytes than a step of a run works with, in a pack of `count`: as if all that it computes were kept, and
        that twice. JAX keeps what it traced, so that the program of such a pack is not traced again."""
        key = "most", run.shape, run.how.batch_size, count
        if key not in self._bytes:
            self._bytes[key] = -(-2 * _made(self._programs(run, count)[1].jaxpr.jaxpr) // count)
        return self._bytes[key]

    def _workings(self, run: Planned, count: int = 4) -> int:
        """Bytes that a step of a run works with: its part of what the compiler has set aside for a pack of `count`."""
        key = "workings", run.shape, run.how.batch_size, count
        if key not in self._bytes:
            with jax.default_device(self.device):
                made = [program.lower().compile().memory_analysis() for program in self._programs(run, count)]
            self._bytes[key] = -(-max(int(each.temp_size_in_bytes) if each else 0 for each in made) // count)
        return self._bytes[key]

    def _programs(self, run: Planned, count: int) -> tuple[Any, Any]:
        runs, drawn = self._stand_ins(run, count)
        with jax.default_device(self.device):
            return traced(runs, run.how.steps, run.how.batch_size, TURN, drawn)

    def _stand_ins(self, run: Planned, count: int) -> tuple[list[Run], Drawn]:
        """Runs of the same shape on made-up rows, all drawn alike: a sampler changes no shape, and may take long."""
        rows = run.entry.stand_in()
        runs = [Run(rows, run.algorithm, run.sampler, run.weighter, seed, f"run{seed}") for seed in range(count)]
        return runs, {runs[0].drawing: np.full(len(rows), 1 / len(rows))}

    def need(self, pack: list[Planned], memory: int) -> Need:
        """What a pack of so many bytes will take, its compilation included and its data, evaluation and checkpoints
        not."""
        compiling, rate = self.speed(pack[0], min(len(pack), cores_here()) if self.on_cpu else len(pack))
        return Need(pack, memory, compiling + pack[0].how.steps * len(pack) / rate, rate)

    def speed(self, run: Planned, count: int, least: float = 1.0) -> tuple[float, float]:
        """Seconds before the first step is done, and run-steps a second after that, of a pack of `count`."""
        key = run.shape, run.how.batch_size, count
        if key not in self._speeds:
            began = time.perf_counter()
            turn = 2 if self.on_cpu else TURN
            runs, drawn = self._stand_ins(run, count)
            with jax.default_device(self.device):
                pack = Pack(runs, run.how.steps, run.how.batch_size, drawn=drawn)
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
    rate: float
    """Run-steps a second."""


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
    told: Callable[[str], None] = lambda text: None,
) -> Reckoned:
    """What packs will take: those that were begun as they are, the others in as many parts as fit the device.

    told: hears which pack is being compiled or measured, of how many
    """
    costs, needs = Costs(device), []

    def sized(pack: list[Planned], whole: bool) -> list[tuple[list[Planned], int]]:
        parts = [pack] if whole else cut(pack, -(-len(pack) // costs.fitting(pack)))
        return [(part, costs.memory(part)) for part in parts]

    # An accelerator's programs are compiled side by side first, for what they work with. Measured meanwhile, the rates
    # would be those of a machine that compiles. A CPU compiles each as it is measured.
    packs: list[tuple[list[Planned], int]] = []
    count = len(begun) + len(new)
    with ThreadPoolExecutor(1 if costs.on_cpu else min(AHEAD, cores_here())) as pool:
        every = pool.map(sized, [*begun, *new], [True] * len(begun) + [False] * len(new))
        for number, parts in enumerate(every, 1):
            packs += parts
            told(f"compiled {number} of {count} packs")
    for number, (pack, size) in enumerate(packs, 1):
        told(f"measuring pack {number} of {len(packs)}")
        needs.append(costs.need(pack, size))
    return Reckoned(device.device_kind, places, needs)


@dataclass(frozen=True)
class Playing:
    """What the evaluation of a grid takes on all cores of this machine, beside the training."""

    seconds: float
    """At the most: with every episode at its full length."""
    unknown: dict[str, str]
    """Environments that can't be played here, and why."""


def playing(packs: Sequence[list[Planned]], told: Callable[[str], None] = lambda environment: None) -> Playing:
    """The evaluation of packs, from a moment's play in each of their environments.

    told: hears which environment that is
    """
    rounds: dict[str, list[Planned]] = {}
    for run in (run for pack in packs for run in pack):
        rounds.setdefault(run.entry.environment, []).append(run)
    seconds, unknown = 0.0, {}
    for environment, runs in rounds.items():
        told(environment)
        try:
            entry = resolve_environment(environment, Spec(*runs[0].entry.sizes, 1))
            limit = shape(entry).time_limit or 0
            episodes = sum(run.how.evaluation.episodes * len(run.how.evaluation.steps(run.how.steps)) for run in runs)
            seconds += limit * episodes / _played(entry)
        except BadInput as error:
            unknown[environment] = str(error)
    return Playing(seconds, unknown)


def _played(entry: Environment, episodes: int = 4) -> float:
    """Steps a second of an environment on all cores, with policies that do nothing."""
    idle = np.zeros(len(shape(entry).low), np.float32)

    def act(obs: np.ndarray, _: slice) -> np.ndarray:
        return np.broadcast_to(idle, (*obs.shape[:2], len(idle)))

    return play(entry, act, range(2 * cores_here()), episodes).rate


def _bytes(array: Any) -> int:
    return array.size * array.dtype.itemsize if hasattr(array, "dtype") else 0


def _made(jaxpr: Any) -> int:
    """Bytes of all that a program computes, each iteration of a loop in the place of the last."""
    return sum(
        sum(_bytes(made.aval) for made in equation.outvars) + sum(map(_made, jaxprs_in_params(equation.params)))
        for equation in jaxpr.eqns
    )


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
