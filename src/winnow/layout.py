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
from winnow.data.scaling import Scaling, action_transform, reward_transform, unit_transform
from winnow.errors import BadInput
from winnow.runs import Drawn, Run, probabilities
from winnow.samplers import alias_table
from winnow.types import Array, Batch


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
    return (row.astype("uint32") * np.uint32(2654435761)) % starts


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
