"""A dataset: rows stored once in an arena, and a table of the episodes that are made of them.

An *arena* holds steps in slots. An episode of T steps takes T + 1 consecutive slots: the last one holds only its final
observation, so the successor of the state in slot i is always in slot i + 1. A *dataset* is a table of pieces of one or
more arenas. So a mixture of sources, a set of short segments, or a subset of episodes costs a table and no rows, and
many mixtures can share the same arrays, on disk and on the accelerator.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from winnow.errors import BadInput

Kind = Literal["episodes", "continuing", "bag"]
Side = Sequence[float] | np.ndarray | float
"""A bound of the actions: one number for each column, or one for all."""


@dataclass(frozen=True)
class Arena:
    """Steps in slots; see the module's opening lines. Compared by identity: two datasets may share one."""

    obs: np.ndarray  # [S, O] float32
    action: np.ndarray  # [S, A] float32; zero in a final slot
    reward: np.ndarray  # [S] float32; zero in a final slot
    terminal: np.ndarray  # [S] bool: the task ended with this step

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def slots(self) -> int:
        return len(self.reward)


@dataclass(frozen=True)
class Episodes:
    """One entry for each episode, segment or piece; every column has the same length."""

    arena: np.ndarray  # int32: which of the dataset's arenas it lies in
    slot: np.ndarray  # int64: the arena's slot of its first step
    length: np.ndarray  # int64: its steps
    terminated: np.ndarray  # bool: the task ended; False: only the recording did (a timeout or a cut)
    source: np.ndarray  # int32: index into `Meta.sources`
    seed: np.ndarray  # int64: the seed that made it, −1 where unknown
    origin: np.ndarray  # int64: the number of the episode it was cut from, in its source
    offset: np.ndarray  # int64: the step of that episode at which it begins

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
        }
        given = {"slot": slot, "length": length, "terminated": terminated} | columns
        kinds = {"arena": np.int32, "source": np.int32, "terminated": np.bool_}
        return cls(**{k: np.asarray(v, dtype=kinds.get(k, np.int64)) for k, v in (usual | given).items()})


@dataclass(frozen=True)
class Meta:
    """What the arrays can't say. Everything in it can be written as JSON."""

    name: str = "dataset"
    kind: Kind = "episodes"
    """episodes; continuing: a recording with no ends; bag: unordered (s, a, r, s') rows."""
    environment: str | None = None
    physics: str | None = None
    sources: tuple[str, ...] = ("data",)
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    return_range: tuple[float, float] | None = None
    """Least and greatest return of the sources' full episodes, where this dataset holds only pieces of them."""
    recipe: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    """What the opener changed or assumed, in words."""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Meta:
        record = json.loads(text)
        for name in ("sources", "action_low", "action_high", "return_range", "notes"):
            if record.get(name) is not None:
                record[name] = tuple(record[name])
        return cls(**record)


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
        shape = f"{len(self):,} rows in {len(self.episodes):,} {'episodes' if self.has_episodes else 'pieces'}"
        return f"Dataset({self.meta.name!r}: {shape}, obs {self.obs_dim}, action {self.action_dim}, {self.meta.kind})"

    @property
    def obs_dim(self) -> int:
        return self.arenas[0].obs.shape[1]

    @property
    def action_dim(self) -> int:
        return self.arenas[0].action.shape[1]

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
        """Least and greatest return of full episodes: of the sources where these are pieces of them."""
        return self.meta.return_range or (float(self.returns.min()), float(self.returns.max()))

    @cached_property
    def obs_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation (at least 1e-3, so that a constant column stays finite) of observations."""
        total, square, block = np.zeros(self.obs_dim), np.zeros(self.obs_dim), 1 << 18
        for low in range(0, len(self), block):
            part = self._take("obs", self.slot[low : low + block]).astype(np.float64)
            total, square = total + part.sum(axis=0), square + (part**2).sum(axis=0)
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
        action[final], reward[final], terminal[final] = 0, 0, False
        moved = dataclasses.replace(table, arena=np.zeros(len(table), np.int32), slot=first)
        return Dataset((Arena(obs, action, reward, terminal),), moved, self.meta)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of every row and every episode: two datasets with the same one train the same."""
        digest = hashlib.blake2b(digest_size=16)
        for low in range(0, len(self), 1 << 18):
            for column in self.rows(slice(low, low + (1 << 18))):
                digest.update(np.ascontiguousarray(column).data)
        for name in ("length", "terminated", "source", "offset"):
            digest.update(np.ascontiguousarray(getattr(self.episodes, name)).data)
        meta = self.meta
        said = [meta.kind, meta.sources, meta.return_range, meta.action_low, meta.action_high]
        digest.update(json.dumps(said).encode())
        return digest.hexdigest()


# ---------------------------------------------------------------------------------- from arrays, checked once


def from_arrays(
    observations: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    terminals: ArrayLike | None = None,
    timeouts: ArrayLike | None = None,
    next_observations: ArrayLike | None = None,
    *,
    kind: Kind | None = None,
    max_steps: int | None = None,
    action_bounds: tuple[Side, Side] | None = None,
    where: str = "arrays",
    ends: ArrayLike | None = None,
    per_row: Mapping[str, ArrayLike] | None = None,
    **meta: Any,
) -> Dataset:
    """A dataset from one array a column, checked: the way every opener goes.

    Episodes end where `terminals` or `timeouts` say so. Without `timeouts`, a recorded next observation that is not
    the following row's observation marks an end, or else `max_steps` does. An end that is not terminal and has no
    recorded next observation costs its last row: its state becomes the final observation. Say `kind="continuing"`
    for a recording with no ends and `kind="bag"` for unordered rows.

    `ends` marks last rows of episodes that time out unless they are terminal. `per_row` gives columns of the episode
    table (source, seed, origin, offset) by row; an episode takes the value of its first one.
    """
    if kind not in (None, *get_args(Kind)):
        raise BadInput(f"{where}: kind is {kind!r}; it is one of {', '.join(get_args(Kind))}")
    if max_steps is not None and max_steps < 1:
        raise BadInput(f"{where}: max_steps is {max_steps}; an episode has at least one step")
    reward = _numbers(rewards, "rewards", where)
    reward = reward[:, 0] if reward.ndim == 2 and reward.shape[1] == 1 else reward
    if reward.ndim != 1:
        raise BadInput(f"{where}: rewards has shape {list(reward.shape)}; it must be one number a row")
    n = len(reward)
    obs = _matrix(observations, "observations", n, where)
    action = _matrix(actions, "actions", n, where)
    terminal = _flags(terminals, "terminals", n, where)
    timeout = _flags(timeouts, "timeouts", n, where)
    following = None if next_observations is None else _matrix(next_observations, "next_observations", n, where)
    if following is not None and following.shape != obs.shape:
        raise BadInput(f"{where}: next_observations has {following.shape[1]} columns, observations has {obs.shape[1]}")
    if n == 0:
        raise BadInput(f"{where}: there are no rows")
    low, high, notes = _bounds(action, action_bounds, where)
    if (cuts := _flags(ends, "ends", n, where)) is not None:  # where a row is terminal too, terminal it is
        timeout = cuts if timeout is None else timeout | cuts

    if kind == "bag":
        if following is None:
            raise BadInput(f"{where}: unordered rows need next_observations; add that column")
        end = np.ones(n, bool)
    elif kind == "continuing":
        if terminal is not None and terminal.any():
            row = int(np.argmax(terminal))
            raise BadInput(f"{where}: terminals, row {row}: a continuing recording has no terminal; drop `continuing`")
        end = _jumps(obs, following) if timeout is None else timeout | _jumps(obs, following)
    else:
        end = _episode_ends(obs, terminal, timeout, following, max_steps, where)
    terminal = np.zeros(n, bool) if terminal is None else terminal
    end[-1] = True
    arena, table, first, dropped = _lay_out(obs, action, reward, terminal, end, following)
    if len(table) == 0:
        raise BadInput(f"{where}: no row has a successor; add next_observations")
    if dropped:
        notes += (f"{dropped} row(s) at a timeout had no recorded next observation and were left out",)
    for name, values in (per_row or {}).items():
        column = np.ravel(values)
        if len(column) != n:
            raise BadInput(f"{where}: {name} has {len(column)} rows, rewards has {n}; they must agree")
        table = dataclasses.replace(table, **{name: column[first].astype(getattr(table, name).dtype)})
    described = Meta(kind=kind or "episodes", action_low=low, action_high=high, notes=notes, **meta)
    return Dataset((arena,), table, described)


def _numbers(values: Any, field: str, where: str) -> np.ndarray:
    values = np.asarray(values)
    if values.dtype.kind not in "fiub":
        raise BadInput(f"{where}: {field} holds {values.dtype}; it must hold numbers")
    with np.errstate(over="ignore"):
        out = values.astype(np.float32)
    bad = ~np.isfinite(out)
    if bad.any():
        at = tuple(map(int, np.argwhere(bad)[0]))
        place = "".join(f", {word} {number}" for word, number in zip(("row", "column"), at, strict=False))
        raise BadInput(f"{where}: {field}{place}: {values[at]} is not a finite number; remove or repair the row")
    return out


def _matrix(values: Any, field: str, n: int, where: str) -> np.ndarray:
    out = _numbers(values, field, where)
    if out.ndim and len(out) != n:
        raise BadInput(f"{where}: {field} has {len(out)} rows, rewards has {n}; they must agree")
    if out.ndim == 1:
        out = out[:, None]
    if out.ndim != 2 or out.shape[1] == 0:
        raise BadInput(
            f"{where}: {field} has shape {list(out.shape)}; it must be [rows, columns] (flatten images first)"
        )
    return out


def _flags(values: Any, field: str, n: int, where: str) -> np.ndarray | None:
    if values is None:
        return None
    flags = np.asarray(values).reshape(-1)
    if flags.dtype.kind not in "fiub":
        raise BadInput(f"{where}: {field} holds {flags.dtype}; it must hold 0 or 1")
    if len(flags) != n:
        raise BadInput(f"{where}: {field} has {len(flags)} rows, rewards has {n}; they must agree")
    odd = (flags != 0) & (flags != 1)
    if odd.any():
        row = int(np.argmax(odd))
        raise BadInput(f"{where}: {field}, row {row}: {flags[row]} is neither 0 nor 1")
    return flags.astype(bool)


def _bounds(
    action: np.ndarray, given: tuple[Side, Side] | None, where: str
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[str, ...]]:
    if given is None:
        if np.abs(action).max(initial=0) <= 1 + 1e-5:
            return (-1.0,) * action.shape[1], (1.0,) * action.shape[1], ("action bounds not given: taken as [-1, 1]",)
        low, high = action.min(axis=0), action.max(axis=0)
        high = np.where(high > low, high, low + 1)
        return tuple(map(float, low)), tuple(map(float, high)), ("action bounds not given: the range in the data",)
    sides = [np.asarray(side, np.float32) for side in given]
    if any(side.shape not in ((), (1,), action.shape[1:]) for side in sides):
        sizes = " and ".join(str(side.size) for side in sides)
        raise BadInput(
            f"{where}: action bounds have {sizes} numbers, actions have {action.shape[1]} columns; give as many"
        )
    low, high = (np.broadcast_to(side, action.shape[1:]) for side in sides)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise BadInput(
            f"{where}: action bounds {low.tolist()} to {high.tolist()} are not finite and rising; give others"
        )
    slack = 1e-4 * (high - low)
    outside = (action < low - slack) | (action > high + slack)
    if outside.any():
        row, column = map(int, np.argwhere(outside)[0])
        raise BadInput(
            f"{where}: actions, row {row}, column {column}: {action[row, column]} is outside its bounds "
            f"[{low[column]}, {high[column]}]; correct the bounds or the action"
        )
    return tuple(map(float, low)), tuple(map(float, high)), ()


def _same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Which rows agree, up to what float32 keeps of a float64 recording."""
    return np.all(np.isclose(a, b, rtol=1e-4, atol=1e-5), axis=1)


def _jumps(obs: np.ndarray, following: np.ndarray | None) -> np.ndarray:
    """Rows whose recorded successor is not the next row."""
    end = np.zeros(len(obs), bool)
    if following is not None:
        end[:-1] = ~_same(following[:-1], obs[1:])
    return end


def _episode_ends(
    obs: np.ndarray,
    terminal: np.ndarray | None,
    timeout: np.ndarray | None,
    following: np.ndarray | None,
    max_steps: int | None,
    where: str,
) -> np.ndarray:
    if terminal is None and timeout is None:
        raise BadInput(
            f"{where}: no column says where episodes end; add terminals or timeouts, or say that it is a continuing "
            "recording (--kind continuing) or unordered rows (--kind bag)"
        )
    end = np.zeros(len(obs), bool) if terminal is None else terminal.copy()
    if timeout is not None:
        end |= timeout
        broken = _jumps(obs, following) & ~end
        if broken.any():
            row = int(np.argmax(broken))
            raise BadInput(
                f"{where}: next_observations, row {row}: differs from the observation of row {row + 1} in the same "
                "episode; mark the end in timeouts, or say that the rows are unordered (--kind bag)"
            )
    elif following is not None:
        end |= _jumps(obs, following)
    elif max_steps is None:
        raise BadInput(
            f"{where}: there are no timeouts and no next_observations, so an episode cut by a time limit can't be told "
            "from a step; give the time limit (--max-steps 1000), or --kind continuing"
        )
    if max_steps is not None:
        end = _cut_every(end, max_steps)
    return end


def _cut_every(end: np.ndarray, max_steps: int) -> np.ndarray:
    """Ends, with another after every `max_steps` rows that have none."""
    last = np.flatnonzero(end)
    first = np.concatenate([[0], last + 1])
    since = np.arange(len(end)) - first[np.searchsorted(last, np.arange(len(end)), side="left")]
    return end | (since % max_steps == max_steps - 1)


def _lay_out(
    obs: np.ndarray,
    action: np.ndarray,
    reward: np.ndarray,
    terminal: np.ndarray,
    end: np.ndarray,
    following: np.ndarray | None,
) -> tuple[Arena, Episodes, np.ndarray, int]:
    """Rows in slots: the arena, the table, each episode's first row, and how many rows were left out for want of a
    successor."""
    last = np.flatnonzero(end)
    first = np.concatenate([[0], last[:-1] + 1])
    if following is not None:
        length, terminated, final = last - first + 1, terminal[last], following[last]
    else:
        terminated, final = terminal[last], obs[last]
        length = last - first + terminated
    dropped = int(len(obs) - length.sum())
    kept = length > 0
    first, length, terminated, final = first[kept], length[kept], terminated[kept], final[kept]
    if len(length) == 0:
        return (
            Arena(obs[:0], action[:0], reward[:0], terminal[:0]),
            Episodes.make(first, length, terminated),
            first,
            dropped,
        )

    slot = np.concatenate([[0], np.cumsum(length + 1)[:-1]])
    size, steps = int((length + 1).sum()), np.arange(int(length.sum()))
    begin = np.concatenate([[0], np.cumsum(length)[:-1]])
    target = steps + np.repeat(slot - begin, length)
    origin = steps + np.repeat(first - begin, length)

    def spread(column: np.ndarray) -> np.ndarray:
        out = np.zeros((size, *column.shape[1:]), column.dtype)
        out[target] = column[origin]
        return out

    arena = Arena(spread(obs), spread(action), spread(reward), spread(terminal))
    arena.obs[slot + length] = final
    return arena, Episodes.make(slot, length, terminated), first, dropped


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
    for what in ("obs_dim", "action_dim"):
        if getattr(first, what) != getattr(other, what):
            raise BadInput(
                f"source {label!r}: {what} is {getattr(other, what)}, the first source has {getattr(first, what)}"
            )
    for what in ("kind", "action_low", "action_high", "environment"):
        mine, theirs = getattr(first.meta, what), getattr(other.meta, what)
        if mine != theirs:
            raise BadInput(f"source {label!r}: {what} is {theirs}, the first source has {mine}; mix what is alike")
