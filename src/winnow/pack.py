"""Many runs as one compiled program.

Runs whose algorithm and weighter agree in everything but numbers are packed: stacked along a leading axis and stepped
together. They share one arena of rows on the device. A run is a *lane*: its key, its float settings, and where in the
shared tables its rows, its alias table and its initial states begin.

This module knows no plug-in by name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from winnow.data.dataset import Arena, Dataset, Rows
from winnow.data.home import home
from winnow.data.scaling import Scaling, action_transform, reward_transform, unit_transform
from winnow.envs import cores_here
from winnow.errors import BadInput
from winnow.nets import with_copies, without_copies
from winnow.samplers import Sampler, alias_table
from winnow.types import Algorithm, Array, Batch, Metrics, Spec, State, Weighter


@dataclass(frozen=True)
class Run:
    """One training run: a dataset, how it is drawn from, how rows are weighed, what is learnt, and a seed."""

    dataset: Dataset
    algorithm: Algorithm
    sampler: Sampler
    weighter: Weighter
    seed: int = 0
    name: str = "run"

    @property
    def spec(self) -> Spec:
        return Spec(self.dataset.obs_dim, self.dataset.action_dim, len(self.dataset))

    @property
    def shape(self) -> Hashable:
        """Runs with the same one are compiled into one program."""
        structure = jax.tree.structure((self.algorithm, self.weighter))
        return structure, self.dataset.obs_dim, self.dataset.action_dim

    @property
    def drawing(self) -> Hashable:
        """Runs with the same one draw rows with the same probabilities."""
        return id(self.dataset), self.sampler

    @property
    def weighs_any_row(self) -> bool:
        """Whether the weighter can weigh rows that are not in the dataset: its state has no number for each row."""

        def shapes(rows: int) -> Any:
            spec = self.spec._replace(rows=rows)
            state = jax.eval_shape(lambda key: self.weighter.init(key, spec), jax.random.key(0))
            return jax.tree.map(lambda leaf: leaf.shape, state)

        return shapes(self.spec.rows) == shapes(self.spec.rows + 1)


Drawn = Mapping[Hashable, np.ndarray]
"""Samplers' probabilities, under `Run.drawing`."""


def probabilities(runs: Sequence[Run]) -> Drawn:
    """How often each row of each run's dataset is drawn: once for every dataset and sampler, not for every seed."""
    each = {run.drawing: run for run in runs}
    return {drawing: run.sampler.probabilities(run.dataset) for drawing, run in each.items()}


class Tables(NamedTuple):
    """What all lanes read: rows in slots, and for each dataset and sampler a stretch of the flat tables."""

    obs: Array  # [S, O]
    action: Array  # [S, A]
    reward: Array  # [S]
    terminal: Array  # [S]
    slot: Array  # [rows of all datasets] the slot of each row
    episode: Array  # [rows of all datasets] the episode of each row; empty where no weighter asks for it
    start: Array  # [starts of all datasets] slots of initial states
    keep: Array  # [rows of all dataset × sampler pairs] alias tables
    other: Array
    frequency: Array  # [the same] how often each row is drawn, in units of 1/rows; empty where no weighter asks for it


class Lane(NamedTuple):
    """What differs between the runs of a pack, and does not change while they train."""

    key: Array
    algorithm: Any
    weighter: Any
    first_row: Array  # where its dataset begins in `slot` and `episode`
    rows: Array
    first_start: Array
    starts: Array
    first_alias: Array
    mean: Array  # [O] of the dataset's observations: weighters read standardised ones
    std: Array
    shift: Array  # [O] for the algorithm: mean and std, or 0 and 1 where it reads raw observations
    scale: Array
    reward: Array  # [2] scale and shift of the algorithm's reward
    unit: Array  # [2] scale and shift to the weighter's reward in [0, 1]
    action_centre: Array  # [A]
    action_half: Array


class Learner(NamedTuple):
    """What changes: the two states, and the sums of the metrics since the last report."""

    weighter: State
    algorithm: State
    sums: Metrics


# ------------------------------------------------------------------------------------------------- batches


def gather(tables: Tables, lane: Lane, row: Array, start: Array, step: Array, progress: Array) -> Batch:
    """Rows by number, with raw observations."""
    slot = tables.slot[lane.first_row + row]
    raw = tables.reward[slot]
    return Batch(
        obs=tables.obs[slot],
        action=(tables.action[slot] - lane.action_centre) / lane.action_half,
        reward=lane.reward[0] * raw + lane.reward[1],
        next_obs=tables.obs[slot + 1],
        terminal=tables.terminal[slot],
        unit_reward=lane.unit[0] * raw + lane.unit[1],
        start_obs=tables.obs[tables.start[lane.first_start + start]],
        row=row,
        step=step,
        progress=progress,
        frequency=tables.frequency[lane.first_alias + row] if len(tables.frequency) else None,
    )


def read(rows: Rows, start: np.ndarray, like: Scaling, *, row: np.ndarray, step: int = 0, progress: float = 0) -> Batch:
    """Rows as a weighter reads them, without tables: scaled like its dataset, each with an initial state."""
    mean, std, centre, half, unit = like
    columns = {
        "obs": (rows.obs - mean) / std,
        "action": (rows.action - centre) / half,
        "reward": rows.reward,
        "next_obs": (rows.next_obs - mean) / std,
        "terminal": rows.terminal,
        "unit_reward": unit[0] * rows.reward + unit[1],
        "start_obs": (start - mean) / std,
        "progress": progress,
    }
    arrays: dict[str, Any] = {name: np.asarray(column, np.float32) for name, column in columns.items()}
    return Batch(**arrays | {"row": row.astype(np.int32), "step": np.asarray(step)})


def start_of(row: Any, starts: Any) -> Any:
    """Which of so many initial states rows [n] have where none is drawn: spread by a fixed odd multiplier."""
    return (row.astype("uint32") * np.uint32(2654435761)) % starts


@jax.jit
def weigh(weighter: Any, state: State, batch: Batch) -> Array:
    """log w of the rows of such a batch."""
    return weighter.log_weight(state, batch)


def scaled(batch: Batch, shift: Array, scale: Array) -> Batch:
    """The batch with its observations as (obs − shift) / scale."""
    obs, following, start = ((x - shift) / scale for x in (batch.obs, batch.next_obs, batch.start_obs))
    return batch._replace(obs=obs, next_obs=following, start_obs=start)


def draw(tables: Tables, lane: Lane, key: Array, size: int, step: Array, progress: Array) -> Batch:
    """`size` rows with replacement, each in two look-ups of the alias table, and as many initial states.

    A number below n is a random word modulo n: of n = 10⁶ rows the first are drawn 2·10⁻⁴ more often than the last.
    """
    words = jax.random.bits(key, (3, size), jnp.uint32)
    column = (words[0] % lane.rows.astype(jnp.uint32)).astype(jnp.int32)
    start = (words[1] % lane.starts.astype(jnp.uint32)).astype(jnp.int32)
    kept = (words[2] >> 8).astype(jnp.float32) * 2.0**-24 < tables.keep[lane.first_alias + column]
    row = jnp.where(kept, column, tables.other[lane.first_alias + column])
    return gather(tables, lane, row, start, step, progress)


# ------------------------------------------------------------------------------------------------ programs

Precision = Literal["float32", "default", "half"]
"""What networks multiply in. float32: float32 throughout, the reference. default: as the device multiplies float32
unless it is told otherwise: TF32 on NVIDIA GPUs, float32 on a CPU. half: the kernels of `winnow.fused`, and default
for networks that these can't take. Parameters, Adam and sums are float32 in all of them."""

FEWEST_LANES = 32
"""With fewer lanes the fused kernels have too little work to fill a GPU, and are not chosen."""


def best_precision(lanes: int) -> Precision:
    """$WINNOW_PRECISION, or the fastest here whose results match the reference."""
    given: Any = os.environ.get("WINNOW_PRECISION") or None
    if given not in (None, *get_args(Precision)):
        raise BadInput(f"WINNOW_PRECISION is {given!r}; choose one of {', '.join(get_args(Precision))}")
    if given == "half" or (given is None and lanes >= FEWEST_LANES and jax.default_backend() == "gpu"):
        from winnow import fused  # Pallas takes a second to import

        if fused.available():
            return "half"
        if given:
            raise BadInput("WINNOW_PRECISION is half, which needs an NVIDIA GPU of compute capability 9; leave it out")
    return given or "default"


def keep_programs() -> None:
    """Let JAX keep compiled programs for accelerators on disk, in the data folder, so that the next call need not
    compile them again. Left alone where JAX's own setting says where, and with WINNOW_KEEP_PROGRAMS=0."""
    if jax.default_backend() == "cpu" or os.environ.get("WINNOW_KEEP_PROGRAMS") == "0":
        return
    if not jax.config.values.get("jax_compilation_cache_dir"):
        jax.config.update("jax_compilation_cache_dir", str(home() / "programs"))


def update(tables: Tables, lane: Lane, learner: Learner, step: Array, progress: Array, batch_size: int) -> Learner:
    """One step of one run: draw, weigh, learn. The algorithm sees the weights from before the weighter's update."""
    k_draw, k_weighter, k_algorithm = jax.random.split(jax.random.fold_in(lane.key, step), 3)
    batch = draw(tables, lane, k_draw, batch_size, step, progress)
    weighter, weights, weighed = lane.weighter.update(learner.weighter, scaled(batch, lane.mean, lane.std), k_weighter)
    algorithm, learnt = lane.algorithm.update(
        learner.algorithm, scaled(batch, lane.shift, lane.scale), weights, k_algorithm
    )
    sums = jax.tree.map(jnp.add, learner.sums, weighed | learnt) if learner.sums else weighed | learnt
    return Learner(weighter, algorithm, sums)


def advance(
    tables: Tables,
    lanes: Lane,
    learners: Learner,
    first: Array,
    total: Array,
    count: int | Array,
    *,
    batch_size: int,
    precision: Precision = "default",
) -> Learner:
    """`count` steps of every lane, beginning with step `first`."""
    alone = lanes.rows.shape[0] == 1  # one run needs no batched products: it is the plain loop

    def step_all(i: Array, learners: Learner) -> Learner:
        step = first + i
        one = partial(update, step=step, progress=step / total, batch_size=batch_size)
        return one(tables, lanes, learners) if alone else jax.vmap(one, (None, 0, 0))(tables, lanes, learners)

    if alone:
        lanes, learners = (jax.tree.map(lambda leaf: leaf[0], tree) for tree in (lanes, learners))
    if precision == "half":
        learners = with_copies(learners)
    with jax.default_matmul_precision("float32") if precision == "float32" else contextlib.nullcontext():
        learners = without_copies(jax.lax.fori_loop(0, count, step_all, learners))
    return jax.tree.map(lambda leaf: leaf[None], learners) if alone else learners


def start_learners(tables: Tables, lanes: Lane, spec: Spec, batch_size: int, stamp: Hashable = None) -> Learner:
    """Fresh states and empty sums for every lane. `stamp` tells apart what `init` reads from outside the program."""

    def start(lane: Lane) -> Learner:
        k_weighter, k_algorithm = jax.random.split(jax.random.fold_in(lane.key, 2**31 - 1))
        return Learner(lane.weighter.init(k_weighter, spec), lane.algorithm.init(k_algorithm, spec), {})

    learners = jax.vmap(start)(lanes)
    one = partial(update, step=jnp.zeros((), int), progress=jnp.zeros(()), batch_size=batch_size)
    shapes = jax.eval_shape(jax.vmap(one, (None, 0, 0)), tables, lanes, learners)
    return learners._replace(sums=jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes.sums))


def refresh(tables: Tables, lanes: Lane, learners: Learner, rows: int) -> Learner:
    """Let every lane's weighter look at its whole dataset (padded to `rows` rows; the padding has episode `rows`)."""

    def one(lane: Lane, learner: Learner) -> Learner:
        index = jnp.arange(rows)
        inside = index < lane.rows
        episode = jnp.where(inside, tables.episode[lane.first_row + jnp.minimum(index, lane.rows - 1)], rows)
        return learner._replace(weighter=lane.weighter.refresh(learner.weighter, _fetcher(tables, lane), episode))

    return jax.lax.map(lambda pair: one(*pair), (lanes, learners))


def score(tables: Tables, lane: Lane, weighter: State, row: Array) -> Array:
    """log w of the rows with these numbers."""
    return lane.weighter.log_weight(weighter, _fetcher(tables, lane)(row))


def act(lane: Any, state: State, obs: Array) -> Array:
    """The policy's mean action in the environment's units, for raw observations [..., O].

    `lane` is a lane or anything else with an algorithm and these four scalings.
    """
    unit = lane.algorithm.act(state, (obs - lane.shift) / lane.scale)
    return lane.action_centre + lane.action_half * unit


def _fetcher(tables: Tables, lane: Lane) -> Any:
    """Rows by number as the weighter reads them. A row keeps its initial state between calls."""

    def fetch(row: Array) -> Batch:
        row = jnp.minimum(row, lane.rows - 1)
        start = start_of(row, lane.starts.astype(jnp.uint32)).astype(jnp.int32)
        zero = jnp.zeros((), int)
        return scaled(gather(tables, lane, row, start, zero, jnp.zeros(())), lane.mean, lane.std)

    return fetch


# ---------------------------------------------------------------------------------------------------- pack


class Pack:
    """Runs of one shape on the device: advance them, read their metrics, take out what they learnt.

    An accelerator steps all lanes at once. A CPU is faster with plain products than with batched ones, and has cores
    to spare: there each lane goes through the program on its own, as many at a time as there are cores. `block` says
    how many lanes go together, where neither is wanted, and `precision` what networks multiply in.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        steps: int,
        batch_size: int,
        block: int | None = None,
        drawn: Drawn | None = None,
        precision: Precision | None = None,
    ) -> None:
        keep_programs()
        self.runs, self.steps, self.batch_size = list(runs), steps, batch_size
        self.block = block or (1 if jax.default_backend() == "cpu" else len(runs))
        self.precision = precision or best_precision(min(self.block, len(runs)))
        self.step = 0
        self.since = 0  # steps in the sums
        self.refreshes = bool(getattr(runs[0].weighter, "refreshes", False))
        self.tables, self.lanes = lay_out(runs, with_episodes=self.refreshes, drawn=drawn)
        first = runs[0].spec
        self.spec = first._replace(rows=max(len(run.dataset) for run in runs))
        start = jax.jit(start_learners, static_argnames=("spec", "batch_size", "stamp"))
        stamp = getattr(runs[0].weighter, "stamp", None)
        self.learners: Learner = start(self.tables, self.lanes, spec=self.spec, batch_size=batch_size, stamp=stamp)

    @cached_property
    def _advance(self) -> Any:
        # A loop of a known length needs no look at its counter from the host; on the CPU that look is free, and a
        # length that may vary lets progress be shown as often as one likes.
        static = ("batch_size", "precision", *(() if jax.default_backend() == "cpu" else ("count",)))
        return jax.jit(advance, static_argnames=static, donate_argnames=("learners",))

    @cached_property
    def _refresh(self) -> Any:
        return jax.jit(refresh, static_argnames=("rows",), donate_argnames=("learners",))

    def advance(self, count: int) -> None:
        """Train every run for `count` more steps. An accelerator may still be at it when this returns."""
        first, total = jnp.asarray(self.step), jnp.asarray(self.steps)

        def go(lanes: Lane, learners: Learner) -> Learner:
            how = {"batch_size": self.batch_size, "precision": self.precision}
            return self._advance(self.tables, lanes, learners, first, total, count=count, **how)

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
        """Mean metrics of each run since the last call; then refresh the weighters that ask for it."""
        means = {name: np.asarray(total) / max(self.since, 1) for name, total in self.learners.sums.items()}
        self.since = 0
        self.learners = self.learners._replace(sums=jax.tree.map(jnp.zeros_like, self.learners.sums))
        if self.refreshes:
            self.learners = self._refresh(self.tables, self.lanes, self.learners, rows=self.spec.rows)
        return means

    def lane(self, number: int) -> tuple[Lane, Learner]:
        """One run's settings and states, on their own."""
        lane, learner = jax.tree.map(lambda leaf: leaf[number], (self.lanes, self.learners))
        return lane, learner

    def log_weights(self, number: int) -> np.ndarray:
        """[rows] log w of every row of one run's dataset, up to a constant."""
        lane, learner = self.lane(number)
        return _scores(self.tables, lane, learner.weighter, len(self.runs[number].dataset))


def log_weights(run: Run, weighter: State, drawn: Drawn | None = None) -> np.ndarray:
    """The same for a run that is no longer in a pack, from the state of its weighter."""
    tables, lanes = lay_out([run], with_episodes=False, drawn=drawn)
    return _scores(tables, jax.tree.map(lambda leaf: leaf[0], lanes), weighter, len(run.dataset))


def _scores(tables: Tables, lane: Lane, weighter: State, rows: int, block: int = 65_536) -> np.ndarray:
    scorer, parts = jax.jit(score), []
    for low in range(0, rows, block):
        index = np.minimum(np.arange(low, low + min(block, rows)), rows - 1)
        parts.append(np.asarray(scorer(tables, lane, weighter, index)))
    return np.concatenate(parts)[:rows]


def _part(tree: Any, low: int, size: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[low : low + size], tree)


def packs(runs: Sequence[Run], largest: int | None = None) -> list[list[Run]]:
    """Runs grouped by shape, in the order in which shapes first appear, in packs of at most `largest`."""
    groups: dict[Hashable, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.shape, []).append(run)
    size = largest or len(runs)
    return [group[low : low + size] for group in groups.values() for low in range(0, len(group), size)]


def lay_out(runs: Sequence[Run], with_episodes: bool, drawn: Drawn | None = None) -> tuple[Tables, Lane]:
    """The shared tables of a pack and its lanes. Rows, row lists and alias tables that runs share are laid once."""
    arenas: dict[Arena, int] = {}
    size = 0
    for arena in (arena for run in runs for arena in run.dataset.arenas):
        if arena not in arenas:
            arenas[arena] = size
            size += arena.slots
    if size >= 2**31:
        raise BadInput(f"these runs read {size:,} rows, a pack's tables count to {2**31:,}; train on fewer datasets")
    slot, episode, start, alias, often = (_Stretches() for _ in range(5))
    with_frequency = getattr(runs[0].weighter, "reads_frequency", False)
    known = drawn or probabilities(runs)
    lanes: list[Lane] = []
    for run in runs:
        data = run.dataset
        moved = np.asarray([arenas[arena] for arena in data.arenas]) - data.arena_offsets[:-1]
        block = np.repeat(moved[data.episodes.arena], data.episodes.length)
        first_row = slot.add(id(data), lambda d=data, b=block: (d.slot + b).astype(np.int32))
        if with_episodes:
            episode.add(id(data), lambda d=data: d.episode.astype(np.int32))
        where = block if not data.has_episodes else moved[data.episodes.arena]
        first_start = start.add(id(data), lambda d=data, w=where: (d.start_slot + w).astype(np.int32))
        first_alias = alias.add(run.drawing, lambda p=known[run.drawing]: alias_table(p))
        if with_frequency:
            often.add(run.drawing, lambda p=known[run.drawing]: (len(p) * p).astype(np.float32))
        mean, std = data.obs_moments
        shift, scale = (mean, std) if run.algorithm.standardise else (np.zeros_like(mean), np.ones_like(std))
        centre, half = action_transform(data)
        lane: dict[str, Any] = {
            "key": jax.random.key_data(jax.random.key(run.seed)),
            "algorithm": run.algorithm,
            "weighter": run.weighter,
            "first_row": np.int32(first_row),
            "rows": np.int32(len(data)),
            "first_start": np.int32(first_start),
            "starts": np.int32(len(data.start_slot)),
            "first_alias": np.int32(first_alias),
            "mean": mean,
            "std": std,
            "shift": shift,
            "scale": scale,
            "reward": np.array(reward_transform(data, run.algorithm.reward_scaling), np.float32),
            "unit": np.array(unit_transform(data), np.float32),
            "action_centre": centre,
            "action_half": half,
        }
        lanes.append(Lane(**lane))

    def arena_column(field: str, dtype: Any) -> Array:
        return jnp.asarray(np.concatenate([np.asarray(getattr(arena, field), dtype) for arena in arenas]))

    tables = Tables(
        obs=arena_column("obs", np.float32),
        action=arena_column("action", np.float32),
        reward=arena_column("reward", np.float32),
        terminal=arena_column("terminal", np.float32),
        slot=jnp.asarray(slot.flat()),
        episode=jnp.asarray(episode.flat() if with_episodes else np.zeros(0, np.int32)),
        start=jnp.asarray(start.flat()),
        keep=jnp.asarray(np.concatenate([table.keep for table in alias.parts])),
        other=jnp.asarray(np.concatenate([table.other for table in alias.parts])),
        frequency=jnp.asarray(often.flat() if with_frequency else np.zeros(0, np.float32)),
    )
    stacked: Any = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *lanes)
    return tables, stacked._replace(key=jax.random.wrap_key_data(stacked.key))


class _Stretches:
    """Arrays laid end to end, each once for its name."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self._begins: dict[Hashable, int] = {}
        self._size = 0

    def add(self, name: Hashable, make: Any) -> int:
        """Where the array with this name begins; it is made if it is new."""
        if name not in self._begins:
            part = make()
            self.parts.append(part)
            self._begins[name] = self._size
            self._size += len(part[0]) if isinstance(part, tuple) else len(part)
        return self._begins[name]

    def flat(self) -> np.ndarray:
        return np.concatenate(self.parts)
