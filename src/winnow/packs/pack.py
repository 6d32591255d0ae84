"""Many runs as one compiled program.

Runs whose algorithm and weighter agree in everything but numbers are packed: stacked along a leading axis and stepped
together. `winnow.packs.tables` says where their rows are, `winnow.packs.step` what a step is.

This module knows no plug-in by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winnow.packs.precision import Precision, best_precision, keep_programs, side_by_side, verified_precision
from winnow.packs.run import Drawn, Run
from winnow.packs.step import Learner, advance, inspect, refresh, score, start_learners
from winnow.packs.tables import Lane, Tables, lay_out
from winnow.system.cores import cores_here
from winnow.types import Spec, State


class Pack:
    """Runs of one shape on the device: advance them, read their metrics, take out what they learnt.

    An accelerator steps all lanes as one batch. A CPU multiplies single matrices faster than batches of them, so there
    each lane runs through the program alone, on as many cores as there are.

    block: number of runs stepped as one batch; default: all on an accelerator, one on a CPU
    precision: what networks multiply in; default: the fastest that matches the reference
    held_out: fraction of each dataset's rows that is never sampled
    """

    def __init__(
        self,
        runs: Sequence[Run],
        steps: int,
        batch_size: int,
        block: int | None = None,
        drawn: Drawn | None = None,
        precision: Precision | None = None,
        held_out: float = 0.0,
    ) -> None:
        keep_programs()
        self.runs = list(runs)
        self.steps = steps
        self.batch_size = batch_size
        self.block = block or (1 if jax.default_backend() == "cpu" else len(runs))
        self.step = 0
        self.since = 0  # steps summed in the metrics
        self.refreshes = bool(getattr(runs[0].weighter, "refreshes", False))
        self.tables, self.lanes = lay_out(runs, with_episodes=self.refreshes, drawn=drawn, held_out=held_out)
        self.spec = _spec(runs)
        self.learners: Learner = _starting()(self.tables, self.lanes, **_start_options(runs, batch_size))
        self.precision = precision or verified_precision(best_precision(min(self.block, len(runs))), self.learners)

    @cached_property
    def _refresh(self) -> Any:
        return jax.jit(refresh, static_argnames=("rows",), donate_argnames=("learners",))

    def advance(self, count: int) -> None:
        """Train every run for `count` more steps. An accelerator may still be working when this returns."""
        first = jnp.asarray(self.step)
        total = jnp.asarray(self.steps)

        # On an accelerator a loop of fixed length saves a transfer of its counter in every step. On a CPU that transfer
        # is free, and a variable length lets progress be shown at any time.
        advancing = _advancing(fixed=jax.default_backend() != "cpu")

        def go(lanes: Lane, learners: Learner) -> Learner:
            how = {"batch_size": self.batch_size, "precision": self.precision}
            return advancing(self.tables, lanes, learners, first, total, count=count, **how)

        if self.block >= len(self.runs):
            self.learners = go(self.lanes, self.learners)
        else:
            pairs = [
                _part((self.lanes, self.learners), low, self.block) for low in range(0, len(self.runs), self.block)
            ]
            with ThreadPoolExecutor(cores_here()) as cores:
                done = list(cores.map(lambda pair: jax.block_until_ready(go(*pair)), pairs))
            self.learners = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *done)
        self.step += count
        self.since += count

    def wait(self) -> None:
        jax.block_until_ready(self.learners.sums)

    def end_chunk(self) -> dict[str, np.ndarray]:
        """Mean metrics of each run since the last call, with its algorithm's diagnostics of some rows (see
        `step.inspect`). Then refresh the weighters that ask for it."""
        means = {name: np.asarray(total) / max(self.since, 1) for name, total in self.learners.sums.items()}
        if hasattr(self.runs[0].algorithm, "inspect"):
            seen = _inspecting()(self.tables, self.lanes, self.learners._replace(sums={}))
            means |= {name: np.asarray(value) for name, value in seen.items()}
        self.since = 0
        self.learners = self.learners._replace(sums=jax.tree.map(jnp.zeros_like, self.learners.sums))
        if self.refreshes:
            self.learners = self._refresh(self.tables, self.lanes, self.learners, rows=self.spec.rows)
        return means

    def lane(self, number: int) -> tuple[Lane, Learner]:
        """One run's settings and states, taken out of the pack."""
        lane, learner = jax.tree.map(lambda leaf: leaf[number], (self.lanes, self.learners))
        return lane, learner

    def log_weights(self, number: int) -> np.ndarray:
        """[rows] log w of every row of one run's dataset, up to a constant."""
        lane, learner = self.lane(number)
        return _scores(self.tables, lane, learner.weighter, len(self.runs[number].dataset))


def traced(runs: Sequence[Run], steps: int, batch_size: int, count: int, drawn: Drawn | None = None) -> tuple[Any, Any]:
    """The two programs of a pack on an accelerator, traced from shapes alone: its initial states, and `count` steps.

    Use them to compile before the pack exists, or to see what the pack needs: inspect `.jaxpr`, or
    `.lower().compile().memory_analysis()`.
    """
    with_episodes = bool(getattr(runs[0].weighter, "refreshes", False))
    tables, lanes = lay_out(runs, with_episodes=with_episodes, drawn=drawn)
    start = _starting().trace(tables, lanes, **_start_options(runs, batch_size))
    learners = start.out_info
    step = (jnp.asarray(0), jnp.asarray(steps))
    how = {"batch_size": batch_size, "precision": verified_precision(best_precision(len(runs)), learners)}
    return start, _advancing(fixed=True).trace(tables, lanes, learners, *step, count=count, **how)


@cache
def _starting() -> Any:
    return jax.jit(start_learners, static_argnames=("spec", "batch_size", "stamp"))


@cache
def _advancing(fixed: bool) -> Any:
    """The program that makes a number of steps; `fixed`: compiled for that number."""
    static = ("batch_size", "precision", *(("count",) if fixed else ()))
    options: Any = side_by_side() or None
    return jax.jit(advance, static_argnames=static, donate_argnames=("learners",), compiler_options=options)


@cache
def _inspecting() -> Any:
    return jax.jit(inspect)


def _start_options(runs: Sequence[Run], batch_size: int) -> dict[str, Any]:
    return {"spec": _spec(runs), "batch_size": batch_size, "stamp": getattr(runs[0].weighter, "stamp", None)}


def _spec(runs: Sequence[Run]) -> Spec:
    return runs[0].spec._replace(rows=max(len(run.dataset) for run in runs))


def log_weights(run: Run, weighter: State, drawn: Drawn | None = None) -> np.ndarray:
    """[rows] log w of a run that is no longer in a pack, from its weighter's state."""
    tables, lanes = lay_out([run], with_episodes=False, drawn=drawn)
    return _scores(tables, jax.tree.map(lambda leaf: leaf[0], lanes), weighter, len(run.dataset))


def _scores(tables: Tables, lane: Lane, weighter: State, rows: int, block: int = 65_536) -> np.ndarray:
    scorer = jax.jit(score)
    parts = []
    for low in range(0, rows, block):
        index = np.minimum(np.arange(low, low + min(block, rows)), rows - 1)
        parts.append(np.asarray(scorer(tables, lane, weighter, index)))
    return np.concatenate(parts)[:rows]


def _part(tree: Any, low: int, size: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[low : low + size], tree)
