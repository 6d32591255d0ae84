"""The rows of a pack on the device: how they are laid out, drawn and read as batches.

All runs of a pack share one arena of rows. A run is a *lane*: its key, its float settings, and where in the shared
tables its rows, its alias table and its initial states begin.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from winnow.data.dataset import Arena, Rows
from winnow.data.scaling import Scaling, reward_transform
from winnow.errors import BadInput
from winnow.packs.run import Drawn, Run, probabilities
from winnow.samplers import alias_table
from winnow.types import Array, Batch

PROBE = 2_048
"""Rows of each kind that a run is inspected on."""
HASH = 2654435761
"""An odd multiplier that spreads row numbers over 32 bits."""


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
    probe: Array  # [2 · PROBE for each of the same pairs] rows to inspect: some that are drawn, some that are held out


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
    first_probe: Array
    mean: Array  # [O] for the weighter: mean and std of the dataset's observations, or 0 and 1 where it reads raw ones
    std: Array
    shift: Array  # [O] the same for the algorithm
    scale: Array
    reward: Array  # [2] scale and shift of the algorithm's reward
    unit: Array  # [2] scale and shift of the weighter's reward
    action_centre: Array  # [A]
    action_half: Array


def lay_out(
    runs: Sequence[Run], with_episodes: bool, drawn: Drawn | None = None, held_out: float = 0.0
) -> tuple[Tables, Lane]:
    """The shared tables of a pack and its lanes. Rows, row lists and alias tables that runs share are laid once.

    held_out: the part of each dataset's rows that is never drawn, so that what is learnt can be tried on them
    """
    arenas: dict[Arena, int] = {}
    size = 0
    for arena in (arena for run in runs for arena in run.dataset.arenas):
        if arena not in arenas:
            arenas[arena] = size
            size += arena.slots
    if size >= 2**31:
        raise BadInput(f"these runs read {size:,} rows, a pack's tables count to {2**31:,}; train on fewer datasets")
    slot, episode, start, other, probe = (_Stretches(np.int32) for _ in range(5))
    keep, often = (_Stretches(np.float32) for _ in range(2))
    with_frequency = getattr(runs[0].weighter, "reads_frequency", False)
    known = drawn or probabilities(runs)
    of_dataset: dict[int, dict[str, Any]] = {}  # what lanes of one dataset share
    first_alias: dict[Hashable, tuple[int, int]] = {}  # where the tables of lanes that draw alike begin
    lanes: list[Lane] = []
    for run in runs:
        data = run.dataset
        if id(data) not in of_dataset:
            moved = np.asarray([arenas[arena] for arena in data.arenas]) - data.arena_offsets[:-1]
            of_episode = moved[data.episodes.arena]
            of_row = np.repeat(of_episode, data.episodes.length)
            if with_episodes:
                episode.add(data.episode)
            mean, std, centre, half, unit = Scaling.of(data, run.weighter)
            of_dataset[id(data)] = {
                "first_row": np.int32(slot.add(data.slot + of_row)),
                "rows": np.int32(len(data)),
                "first_start": np.int32(start.add(data.start_slot + (of_episode if data.has_episodes else of_row))),
                "starts": np.int32(len(data.start_slot)),
                "mean": mean,
                "std": std,
                "unit": np.array(unit, np.float32),
                "action_centre": centre,
                "action_half": half,
            }
        if run.drawing not in first_alias:
            probability, rows = split_rows(known[run.drawing], held_out)
            table = alias_table(probability)
            first_alias[run.drawing] = keep.add(table.keep), probe.add(rows)
            other.add(table.other)
            if with_frequency:
                often.add(len(data) * probability)
        mine = of_dataset[id(data)]
        plain = np.zeros_like(mine["mean"]), np.ones_like(mine["std"])
        shift, scale = data.obs_moments if run.algorithm.standardise else plain
        lane: dict[str, Any] = mine | {
            "key": jax.random.key_data(jax.random.key(run.seed)),
            "algorithm": run.algorithm,
            "weighter": run.weighter,
            "first_alias": np.int32(first_alias[run.drawing][0]),
            "first_probe": np.int32(first_alias[run.drawing][1]),
            "shift": shift,
            "scale": scale,
            "reward": np.array(reward_transform(data, run.algorithm.reward_scaling), np.float32),
        }
        lanes.append(Lane(**lane))

    def arena_column(field: str, dtype: Any) -> Array:
        return jnp.asarray(np.concatenate([np.asarray(getattr(arena, field), dtype) for arena in arenas]))

    tables = Tables(
        obs=arena_column("obs", np.float32),
        action=arena_column("action", np.float32),
        reward=arena_column("reward", np.float32),
        terminal=arena_column("terminal", np.float32),
        slot=slot.flat(),
        episode=episode.flat(),
        start=start.flat(),
        keep=keep.flat(),
        other=other.flat(),
        frequency=often.flat(),
        probe=probe.flat(),
    )
    stacked: Any = jax.tree.map(_stack, *lanes)
    return tables, stacked._replace(key=jax.random.wrap_key_data(stacked.key))


def split_rows(probability: np.ndarray, held_out: float) -> tuple[np.ndarray, np.ndarray]:
    """How often each row is drawn when a part of them is held out, and rows to inspect: PROBE that are drawn, then as
    many that are held out, both as often as the sampler has them. Where nothing is held out the second are the first.

    Single rows are held out, not episodes: so the few good ones lose no more than their part.
    """
    number = np.arange(1, len(probability) + 1, dtype=np.uint64)
    held = (number * np.uint64(HASH)) % np.uint64(2**32) < held_out * 2**32
    there, here = probability * held, probability * ~held
    if not there.any() or not here.any():
        there = here = probability
    rng = np.random.default_rng(0)
    chosen = [np.searchsorted(np.cumsum(part), rng.random(PROBE) * part.sum(), "right") for part in (here, there)]
    last = len(probability) - 1
    return here / here.sum(), np.minimum(np.concatenate(chosen), last).astype(np.int32)


def _stack(*leaves: Any) -> Array:
    """One array of what many lanes have. It is put together here: a device would compile a program for every number
    of lanes."""
    together = np.stack([np.asarray(leaf) for leaf in leaves])
    return jnp.asarray(together, jax.dtypes.canonicalize_dtype(together.dtype))


class _Stretches:
    """Arrays laid end to end."""

    def __init__(self, dtype: Any) -> None:
        self.parts = [np.zeros(0, dtype)]
        self._size = 0

    def add(self, part: np.ndarray) -> int:
        """Where the array begins."""
        begin = self._size
        self.parts.append(np.asarray(part, self.parts[0].dtype))
        self._size += len(part)
        return begin

    def flat(self) -> Array:
        return jnp.asarray(np.concatenate(self.parts))


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


def scaled(batch: Batch, shift: Array, scale: Array) -> Batch:
    """The batch with its observations as (obs − shift) / scale."""
    obs, following, start = ((x - shift) / scale for x in (batch.obs, batch.next_obs, batch.start_obs))
    return batch._replace(obs=obs, next_obs=following, start_obs=start)


def start_of(row: Any, starts: Any) -> Any:
    """Which of so many initial states rows [n] have where none is drawn: spread by a fixed odd multiplier."""
    return (row.astype("uint32") * np.uint32(HASH)) % starts


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
