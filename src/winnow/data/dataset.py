"""A dataset: rows stored once in an arena, and a table of the episodes that are made of them.

An *arena* holds steps in slots. An episode of T steps takes T + 1 consecutive slots: the last one holds only its final
observation, so the successor of the state in slot i is always in slot i + 1. A *dataset* is a table of episodes or
fragments of them in one or more arenas. So a mixture of sources, a set of short segments, or a subset of episodes costs
a table and no rows, and many mixtures can share the same arrays, on disk and on the accelerator.

The table also says where each episode came from: its id and the number of its first row in the user's own file. Both
follow the episode through a split, a mixture and an export, so that weights can be joined to the rows they belong to.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from winnow.data.meta import LONGEST, MOST_SOURCES, ActionKind, Kind, Meta, Side
from winnow.errors import BadInput

__all__ = [
    "LONGEST",
    "MOST_SOURCES",
    "UNKNOWN_ROW",
    "ActionKind",
    "Arena",
    "Dataset",
    "Episodes",
    "Kind",
    "Meta",
    "Rows",
    "Side",
    "check_alike",
    "combine",
]


UNKNOWN_ROW = -1
"""In `Episodes.row`: the episode was not read from a table."""


@dataclass(frozen=True)
class Arena:
    """Steps in slots; see the module's opening lines. Compared by identity: two datasets may share one."""

    obs: np.ndarray  # [S, O] float32
    action: np.ndarray  # [S, A] float32, or [S, 1] int32 where actions are discrete; zero in a final slot
    reward: np.ndarray  # [S] float32; zero in a final slot
    terminal: np.ndarray  # [S] bool: the task ended with this step
    propensity: np.ndarray | None = None  # [S] float32: probability with which the logged choice was made

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def slots(self) -> int:
        return len(self.reward)


@dataclass(frozen=True)
class Episodes:
    """One entry for each episode or segment; every column has the same length."""

    arena: np.ndarray  # int32: which of the dataset's arenas it lies in
    slot: np.ndarray  # int64: the arena's slot of its first step
    length: np.ndarray  # int64: its steps
    terminated: np.ndarray  # bool: the task ended; False: only the recording did (a timeout or a cut)
    source: np.ndarray  # int32: index into `Meta.sources`
    seed: np.ndarray  # int64: the seed that made it, −1 where unknown
    origin: np.ndarray  # int64: the number of the episode it was cut from, in its source
    offset: np.ndarray  # int64: the step of that episode at which it begins
    row: np.ndarray  # int64: the number of its first row in the file it was read from; −1 where there was none
    id: np.ndarray  # int64 or str: the source's own id of the episode; `origin` where the source gives none

    def __len__(self) -> int:
        return len(self.slot)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def take(self, index: np.ndarray) -> Episodes:
        return Episodes(**{name: column[index] for name, column in self.columns.items()})

    @cached_property
    def start(self) -> np.ndarray:
        """The row at which each episode begins."""
        return np.concatenate([[0], np.cumsum(self.length)[:-1]]).astype(np.int64)

    @classmethod
    def make(cls, slot: np.ndarray, length: np.ndarray, terminated: np.ndarray, **columns: np.ndarray) -> Episodes:
        """A table with the usual values in the columns that are not given."""
        count = len(slot)
        usual = {
            "arena": np.zeros(count, np.int32),
            "source": np.zeros(count, np.int32),
            "seed": np.full(count, -1, np.int64),
            "origin": np.arange(count, dtype=np.int64),
            "offset": np.zeros(count, np.int64),
            "row": np.full(count, UNKNOWN_ROW, np.int64),
        }
        given = usual | {"slot": slot, "length": length, "terminated": terminated} | columns
        given.setdefault("id", given["origin"])
        kinds = {"arena": np.int32, "source": np.int32, "terminated": np.bool_}
        table = {k: np.asarray(v, dtype=kinds.get(k, np.int64)) for k, v in given.items() if k != "id"}
        return cls(**table, id=np.asarray(given["id"]))


class Rows(NamedTuple):
    """Some rows of a dataset, as arrays."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    terminal: np.ndarray


@dataclass(frozen=True)
class Dataset:
    """Rows in the order of their episodes. Row i knows its episode, its step and its source."""

    arenas: tuple[Arena, ...]
    episodes: Episodes
    meta: Meta = dataclasses.field(default_factory=Meta)
    path: str | None = None
    """What to open to have it again, where it came from a file."""

    def __len__(self) -> int:
        return int(self.episodes.length.sum())

    def __repr__(self) -> str:
        shape = f"{len(self):,} rows in {len(self.episodes):,} {'episodes' if self.has_episodes else 'fragments'}"
        action = f"{self.action_dim} choices" if self.meta.action_choices else f"action {self.action_dim}"
        return f"Dataset({self.meta.name!r}: {shape}, obs {self.obs_dim}, {action}, {self.meta.kind})"

    @property
    def obs_dim(self) -> int:
        return self.arenas[0].obs.shape[1]

    @property
    def action_dim(self) -> int:
        """Columns of an action as learners read it: one for each choice where actions are discrete."""
        return self.meta.action_choices or self.arenas[0].action.shape[1]

    @property
    def action_kind(self) -> ActionKind:
        return "continuous" if self.meta.action_choices is None else "discrete"

    @cached_property
    def propensity(self) -> np.ndarray | None:
        """[rows] the probability with which each logged choice was made; None where that was not recorded."""
        if any(arena.propensity is None for arena in self.arenas):
            return None
        return self._take("propensity", self.slot)

    @property
    def has_episodes(self) -> bool:
        """Whether an episode's return means anything here."""
        return self.meta.kind == "episodes"

    # ------------------------------------------------------------------------------------- where rows are

    @cached_property
    def arena_offsets(self) -> np.ndarray:
        """Where each arena begins when all of them are laid one after another."""
        return np.concatenate([[0], np.cumsum([arena.slots for arena in self.arenas])])

    @cached_property
    def slot(self) -> np.ndarray:
        """[rows] the slot of each row, counted over all arenas."""
        first = self.episodes.slot + self.arena_offsets[self.episodes.arena]
        return np.repeat(first - self.episodes.start, self.episodes.length) + np.arange(len(self))

    @cached_property
    def start_slot(self) -> np.ndarray:
        """Slots of initial states: the first of each episode; every row where there are no episodes."""
        if not self.has_episodes:
            return self.slot
        return self.episodes.slot + self.arena_offsets[self.episodes.arena]

    @cached_property
    def episode(self) -> np.ndarray:
        """[rows] the episode each row belongs to."""
        return np.repeat(np.arange(len(self.episodes)), self.episodes.length)

    @property
    def step(self) -> np.ndarray:
        """[rows] the step of the original episode that each row is."""
        return np.arange(len(self)) - np.repeat(self.episodes.start - self.episodes.offset, self.episodes.length)

    @property
    def source(self) -> np.ndarray:
        """[rows] index into `meta.sources`."""
        return np.repeat(self.episodes.source, self.episodes.length)

    @property
    def source_row(self) -> np.ndarray:
        """[rows] the number of each row in the file that it was read from, counted from 0; −1 where there was none."""
        first = np.repeat(self.episodes.row, self.episodes.length)
        within = np.arange(len(self)) - np.repeat(self.episodes.start, self.episodes.length)
        return np.where(first == UNKNOWN_ROW, UNKNOWN_ROW, first + within)

    @property
    def source_episode(self) -> np.ndarray:
        """[rows] the id of each row's episode in the file that it was read from: whole numbers or strings."""
        return np.repeat(self.episodes.id, self.episodes.length)

    def _take(self, field: str, slot: np.ndarray) -> np.ndarray:
        columns = [getattr(arena, field) for arena in self.arenas]
        if len(columns) == 1:
            return columns[0][slot]
        out = np.empty((len(slot), *columns[0].shape[1:]), columns[0].dtype)
        for column, low, high in zip(columns, self.arena_offsets, self.arena_offsets[1:], strict=False):
            here = (slot >= low) & (slot < high)
            out[here] = column[slot[here] - low]
        return out

    # ------------------------------------------------------------------------------------- what rows hold

    def rows(self, index: np.ndarray | slice = slice(None)) -> Rows:
        """The rows with these numbers (all of them without an index), copied out of the arenas."""
        slot = self.slot[index]
        obs, action, reward, terminal = (self._take(f, slot) for f in ("obs", "action", "reward", "terminal"))
        return Rows(obs, action, reward, self._take("obs", slot + 1), terminal)

    @cached_property
    def reward(self) -> np.ndarray:
        return self._take("reward", self.slot)

    @cached_property
    def returns(self) -> np.ndarray:
        """[episodes] undiscounted return of each episode, in float64."""
        return np.add.reduceat(self.reward.astype(np.float64), self.episodes.start)

    @property
    def start_obs(self) -> np.ndarray:
        """[episodes, O] first observations."""
        return self._take("obs", self.episodes.slot + self.arena_offsets[self.episodes.arena])

    @property
    def return_range(self) -> tuple[float, float]:
        """Least and greatest return of full episodes: of the sources where these are segments of them."""
        return self.meta.return_range or (float(self.returns.min()), float(self.returns.max()))

    @cached_property
    def obs_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (at least 1e-3, so that a constant column stays finite) of observations."""
        total = np.zeros(self.obs_dim)
        square = np.zeros(self.obs_dim)
        block = 1 << 18
        for low in range(0, len(self), block):
            part = self._take("obs", self.slot[low : low + block]).astype(np.float64)
            total = total + part.sum(axis=0)
            square = square + (part**2).sum(axis=0)
        mean = total / len(self)
        deviation = np.sqrt(np.maximum(square / len(self) - mean**2, 0))
        return mean.astype(np.float32), np.maximum(deviation, 1e-3).astype(np.float32)

    # -------------------------------------------------------------------------------------- other datasets

    def select(self, episodes: np.ndarray) -> Dataset:
        """A dataset of some of these episodes; no row is copied."""
        return dataclasses.replace(self, episodes=self.episodes.take(np.asarray(episodes)), path=None)

    def describe(self, **changes: Any) -> Dataset:
        """The same rows with another description."""
        return dataclasses.replace(self, meta=dataclasses.replace(self.meta, **changes))

    def compact(self) -> Dataset:
        """The same dataset in one arena that holds nothing else: what is written to a file."""
        table = self.episodes
        first = table.start + np.arange(len(table))
        where = np.repeat(first, table.length + 1)
        slot = np.repeat(table.slot + self.arena_offsets[table.arena], table.length + 1) + np.arange(len(where)) - where
        obs, action, reward, terminal = (self._take(f, slot) for f in ("obs", "action", "reward", "terminal"))
        final = first + table.length
        action[final] = 0
        reward[final] = 0
        terminal[final] = False
        propensity = None if self.propensity is None else self._take("propensity", slot)
        moved = dataclasses.replace(table, arena=np.zeros(len(table), np.int32), slot=first)
        return Dataset((Arena(obs, action, reward, terminal, propensity),), moved, self.meta)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of every row and every episode: two datasets with the same one train the same. The rows' numbers in
        the user's file and the names of columns are not part of it."""
        digest = hashlib.blake2b(digest_size=16)
        for low in range(0, len(self), 1 << 18):
            for column in self.rows(slice(low, low + (1 << 18))):
                digest.update(np.ascontiguousarray(column).data)
        for name in ("length", "terminated", "source", "offset"):
            digest.update(np.ascontiguousarray(getattr(self.episodes, name)).data)
        meta = self.meta
        described: list[Any] = [meta.kind, meta.sources, meta.return_range, meta.action_low, meta.action_high]
        if meta.action_choices:
            described += [meta.action_choices, meta.choice_names]
        if self.propensity is not None:
            digest.update(np.ascontiguousarray(self.propensity).data)
        digest.update(json.dumps(described).encode())
        return digest.hexdigest()


def combine(parts: Mapping[str, Dataset], **changes: Any) -> Dataset:
    """Datasets side by side as labelled sources of one; no row is copied."""
    first = next(iter(parts.values()))
    for label, part in parts.items():
        check_alike(first, part, label)
    tables: list[dict[str, np.ndarray]] = []
    arenas: list[Arena] = []
    for number, part in enumerate(parts.values()):
        table = dataclasses.replace(
            part.episodes,
            arena=part.episodes.arena + len(arenas),
            source=np.full(len(part.episodes), number, np.int32),
        )
        arenas += part.arenas
        tables.append(table.columns)
    table = Episodes(**{name: np.concatenate([columns[name] for columns in tables]) for name in tables[0]})
    meta = dataclasses.replace(first.meta, sources=tuple(parts), recipe=None, **changes)
    return Dataset(tuple(arenas), table, meta)


def check_alike(first: Dataset, other: Dataset, label: str) -> None:
    """Refuse to mix datasets whose rows do not fit together."""
    for what in ("action_kind", "obs_dim", "action_dim"):
        if getattr(first, what) != getattr(other, what):
            raise BadInput(
                f"source {label!r}: {what} is {getattr(other, what)}, the first source has {getattr(first, what)}"
            )
    if (first.propensity is None) != (other.propensity is None):
        raise BadInput(f"source {label!r}: only one of this and the first source has propensities; mix what is alike")
    for what in ("kind", "action_low", "action_high", "choice_names", "environment"):
        mine = getattr(first.meta, what)
        theirs = getattr(other.meta, what)
        if mine != theirs:
            raise BadInput(f"source {label!r}: {what} is {theirs}, the first source has {mine}; mix what is alike")
    for what, field in (("obs_names", "observation"), ("action_names", "action")):
        names = getattr(first.meta, what)
        others = getattr(other.meta, what)
        if names and others and names != others:
            number = next(i for i, pair in enumerate(zip(names, others, strict=True)) if pair[0] != pair[1])
            raise BadInput(
                f"source {label!r}: {field} column {number} is {others[number]!r}, the first source has "
                f"{names[number]!r}; import both with the same columns in the same order"
            )
