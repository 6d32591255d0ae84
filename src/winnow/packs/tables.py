"""The rows of a pack on the device: how they are laid out, sampled and read as batches.

All runs of a pack share one arena of rows. A run is a *lane*: its key, its float settings, and the offsets of its rows,
its alias table and its initial states in the shared tables.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from winnow.data.dataset import Arena, Rows
from winnow.data.scaling import Scaling, reward_transform, standardise, unit_actions
from winnow.errors import BadInput
from winnow.packs.run import Drawn, Run, probabilities
from winnow.samplers import alias_table
from winnow.types import Array, Batch

PROBE = 2_048
"""Number of training rows, and of held-out rows, on which a run's diagnostics are computed."""
HASH = 2654435761
"""An odd multiplier that spreads row numbers over 32 bits."""


class Tables(NamedTuple):
    """What all lanes read: rows in slots, and one section of the flat tables for each dataset and sampler."""

    obs: Array  # [S, O]
    action: Array  # [S, A], or [S, 1] integers where actions are discrete
    reward: Array  # [S]
    terminal: Array  # [S]
    slot: Array  # [rows of all datasets] the slot of each row
    episode: Array  # [rows of all datasets] the episode of each row; empty if no weighter reads it
    start: Array  # [starts of all datasets] slots of initial states
    keep: Array  # [rows of all dataset × sampler pairs] alias tables
    other: Array
    frequency: Array  # [the same] sampling probability × dataset size; empty if no weighter reads it
    probe: Array  # [2 · PROBE for each of the same pairs] rows for diagnostics: training rows, then held-out rows


class Lane(NamedTuple):
    """What differs between the runs of a pack and stays fixed while they train."""

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
    """The shared tables of a pack and its lanes. Rows, row lists and alias tables that runs share are stored once.

    held_out: fraction of each dataset's rows that is never sampled
    """
    arenas: dict[Arena, int] = {}
    size = 0
    for arena in (arena for run in runs for arena in run.dataset.arenas):
        if arena not in arenas:
            arenas[arena] = size
            size += arena.slots
    if size >= 2**31:
        raise BadInput(
            f"a pack must have fewer than 2^31 rows (32-bit row numbers), got {size:,}; train on fewer datasets"
        )
    slot, episode, start, other, probe = (_Sections(np.int32) for _ in range(5))
    keep, often = (_Sections(np.float32) for _ in range(2))
    with_frequency = getattr(runs[0].weighter, "reads_frequency", False)
    known = drawn or probabilities(runs)
    of_dataset: dict[int, dict[str, Any]] = {}  # shared by the lanes of one dataset
    first_alias: dict[Hashable, tuple[int, int]] = {}  # offsets of tables shared by lanes with equal probabilities
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
        action=arena_column("action", np.int32 if runs[0].dataset.action_kind == "discrete" else np.float32),
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
    """Sampling probabilities with a fraction of the rows held out, and rows for diagnostics: PROBE training rows, then
    PROBE held-out rows, both sampled with the sampler's probabilities. If nothing can be held out, both are training
    rows.

    Single rows are held out and not episodes, so that the few good episodes lose no more than their share.
    """
    number = np.arange(1, len(probability) + 1, dtype=np.uint64)
    is_held_out = (number * np.uint64(HASH)) % np.uint64(2**32) < held_out * 2**32
    there = probability * is_held_out
    here = probability * ~is_held_out
    if not there.any() or not here.any():
        there = here = probability
    rng = np.random.default_rng(0)
    chosen = [np.searchsorted(np.cumsum(part), rng.random(PROBE) * part.sum(), "right") for part in (here, there)]
    last = len(probability) - 1
    return here / here.sum(), np.minimum(np.concatenate(chosen), last).astype(np.int32)


def _stack(*leaves: Any) -> Array:
    """The lanes' values as one array, stacked on the host: a device would compile a program for each number."""
    together = np.stack([np.asarray(leaf) for leaf in leaves])
    return jnp.asarray(together, jax.dtypes.canonicalize_dtype(together.dtype))


class _Sections:
    """Arrays, concatenated."""

    def __init__(self, dtype: Any) -> None:
        self.parts = [np.zeros(0, dtype)]
        self._size = 0

    def add(self, part: np.ndarray) -> int:
        """The offset of the added array."""
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
        action=_unit_action(tables.action[slot], lane),
        reward=lane.reward[0] * raw + lane.reward[1],
        next_obs=tables.obs[slot + 1],
        terminal=tables.terminal[slot],
        unit_reward=lane.unit[0] * raw + lane.unit[1],
        start_obs=tables.obs[tables.start[lane.first_start + start]],
        row=row,
        step=step,
        progress=progress,
        next_action=_next_action(tables, lane, row, slot),
        frequency=tables.frequency[lane.first_alias + row] if len(tables.frequency) else None,
    )


def _unit_action(action: Array, lane: Lane) -> Array:
    """`unit_actions` on the device."""
    if jnp.issubdtype(action.dtype, jnp.integer):
        return jax.nn.one_hot(action[..., 0], lane.action_half.shape[-1])
    return (action - lane.action_centre) / lane.action_half


def _next_action(tables: Tables, lane: Lane, row: Array, slot: Array) -> Array | None:
    """Actions of the rows that follow in the same episode, if the algorithm asks for them; NaN where there is none."""
    if not getattr(lane.algorithm, "reads_next_action", False):
        return None
    follows = (row + 1 < lane.rows) & (tables.slot[lane.first_row + row + 1] == slot + 1)
    action = _unit_action(tables.action[slot + 1], lane)
    return jnp.where(follows[:, None], action, jnp.nan)


def draw(tables: Tables, lane: Lane, key: Array, size: int, step: Array, progress: Array) -> Batch:
    """`size` rows with replacement, each by two look-ups in the alias table, and as many initial states.

    A number below n is a random 32-bit word modulo n. With n = 10⁶ rows, the first are sampled 0.02 % more often than
    the last.
    """
    bits = jax.random.bits(key, (3, size), jnp.uint32)
    column = (bits[0] % lane.rows.astype(jnp.uint32)).astype(jnp.int32)
    start = (bits[1] % lane.starts.astype(jnp.uint32)).astype(jnp.int32)
    kept = (bits[2] >> 8).astype(jnp.float32) * 2.0**-24 < tables.keep[lane.first_alias + column]
    row = jnp.where(kept, column, tables.other[lane.first_alias + column])
    return gather(tables, lane, row, start, step, progress)


def scaled(batch: Batch, shift: Array, scale: Array) -> Batch:
    """The batch with observations standardised: (obs − shift) / scale."""
    obs, following, start = (standardise(x, shift, scale) for x in (batch.obs, batch.next_obs, batch.start_obs))
    return batch._replace(obs=obs, next_obs=following, start_obs=start)


def start_of(row: Any, starts: Any) -> Any:
    """Numbers of the initial states that rows [n] have outside of training: spread by a fixed odd multiplier."""
    return (row.astype("uint32") * np.uint32(HASH)) % starts


def read(rows: Rows, start: np.ndarray, like: Scaling, *, row: np.ndarray, step: int = 0, progress: float = 0) -> Batch:
    """Rows as a weighter reads them, without a pack: scaled like its dataset, each with an initial state."""
    mean, std, centre, half, unit = like
    columns = {
        "obs": standardise(rows.obs, mean, std),
        "action": unit_actions(rows.action, centre, half),
        "reward": rows.reward,
        "next_obs": standardise(rows.next_obs, mean, std),
        "terminal": rows.terminal,
        "unit_reward": unit[0] * rows.reward + unit[1],
        "start_obs": standardise(start, mean, std),
        "progress": progress,
    }
    arrays: dict[str, Any] = {name: np.asarray(column, np.float32) for name, column in columns.items()}
    return Batch(**arrays | {"row": row.astype(np.int32), "step": np.asarray(step)})
