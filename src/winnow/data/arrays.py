"""A dataset from one array a column: where episodes end, what is wrong with the rows, and how they are laid in slots.

Every opener goes this way, so every row that winnow trains on has been checked here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from winnow.data.choices import Actions, read_choices, read_propensities
from winnow.data.dataset import ActionKind, Arena, Dataset, Episodes, Kind, Meta, Side
from winnow.errors import BadInput


class NoSuccessor(BadInput):
    """No row can be used: each is the last of its episode, and where it led is not recorded."""


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
    action_kind: ActionKind | None = None,
    action_choices: int | None = None,
    choice_names: Sequence[str] = (),
    propensities: ArrayLike | None = None,
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

    For a single column of integers say `action_kind`, "discrete" or "continuous". Choices are numbered from 0, or are
    words; `action_choices` is their number, and `choice_names` names them.
    `propensities` are the probabilities with which the logged choices were made.

    `ends` marks last rows of episodes that time out unless they are terminal. `per_row` gives columns of the episode
    table (source, seed, origin, offset, row, id) by row; an episode takes the value of its first one. Without `row`,
    each row keeps its number in these arrays (`Dataset.source_row`).
    """
    if kind not in (None, *get_args(Kind)):
        raise BadInput(f"{where}: kind must be one of {', '.join(get_args(Kind))}, got {kind!r}; choose one")
    if max_steps is not None and max_steps < 1:
        raise BadInput(f"{where}: max_steps must be at least 1, got {max_steps}; give the environment's time limit")
    reward = _numbers(rewards, "rewards", where)
    reward = reward[:, 0] if reward.ndim == 2 and reward.shape[1] == 1 else reward
    if reward.ndim != 1:
        raise BadInput(f"{where}: rewards must be one number a row, got shape {list(reward.shape)}; give one column")
    n = len(reward)
    obs = _matrix(observations, "observations", n, where)
    described_actions = Actions(action_kind, action_choices, tuple(choice_names))
    choices = read_choices(actions, described_actions, action_bounds is not None, where)
    action = choices.column if choices else _matrix(actions, "actions", n, where)
    if len(action) != n:
        raise BadInput(f"{where}: actions has {len(action)} rows, rewards has {n}; they must agree")
    terminal = _flags(terminals, "terminals", n, where)
    timeout = _flags(timeouts, "timeouts", n, where)
    following = None if next_observations is None else _matrix(next_observations, "next_observations", n, where)
    if following is not None and following.shape != obs.shape:
        raise BadInput(f"{where}: next_observations has {following.shape[1]} columns, observations has {obs.shape[1]}")
    if n == 0:
        raise BadInput(f"{where}: there are no rows")
    propensity = None
    if choices:
        low = high = ()
        notes = choices.notes
        meta |= {"action_choices": choices.size, "choice_names": choices.names}
        propensity = None if propensities is None else read_propensities(propensities, n, where)
    else:
        low, high, notes = _bounds(action, action_bounds, where)
        if propensities is not None:
            notes += ("propensities are read for discrete actions alone; they were left out",)
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
        end = episode_ends(obs, terminal, timeout, following, max_steps, where)
    terminal = np.zeros(n, bool) if terminal is None else terminal
    end[-1] = True
    arena, table, first, dropped = _lay_out(obs, action, reward, terminal, end, following, propensity)
    if len(table) == 0:
        raise NoSuccessor(f"{where}: no row has a successor; add next_observations")
    if dropped:
        notes += (f"{dropped} row(s) at a timeout had no recorded next observation and were left out",)
    given = {"row": np.arange(n)} | dict(per_row or {})
    if "origin" in given:
        given = {"id": given["origin"]} | given
    for name, values in given.items():
        column = np.ravel(values)
        if len(column) != n:
            raise BadInput(f"{where}: {name} has {len(column)} rows, rewards has {n}; they must agree")
        column = column[first]
        table = dataclasses.replace(
            table, **{name: column if name == "id" else column.astype(getattr(table, name).dtype)}
        )
    for name, width in (("obs_names", obs.shape[1]), ("action_names", action.shape[1])):
        if meta.get(name) and len(meta[name]) != width:
            raise BadInput(f"{where}: {name} must name {width} columns, got {len(meta[name])}; name each column once")
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
        column = "".join(f", {word} {number}" for word, number in zip(("row", "column"), at, strict=False))
        raise BadInput(f"{where}: {field}{column}: {values[at]} is not a finite number; remove or repair the row")
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
        low = action.min(axis=0)
        high = action.max(axis=0)
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


def episode_ends(
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
    propensity: np.ndarray | None,
) -> tuple[Arena, Episodes, np.ndarray, int]:
    """Rows in slots: the arena, the table, each episode's first row, and how many rows were left out for want of a
    successor."""
    last = np.flatnonzero(end)
    first = np.concatenate([[0], last[:-1] + 1])
    if following is not None:
        length = last - first + 1
        terminated = terminal[last]
        final = following[last]
    else:
        terminated = terminal[last]
        final = obs[last]
        length = last - first + terminated
    dropped = int(len(obs) - length.sum())
    kept = length > 0
    first = first[kept]
    length = length[kept]
    terminated = terminated[kept]
    final = final[kept]
    if len(length) == 0:
        return (
            Arena(obs[:0], action[:0], reward[:0], terminal[:0]),
            Episodes.make(first, length, terminated),
            first,
            dropped,
        )

    slot = np.concatenate([[0], np.cumsum(length + 1)[:-1]])
    size = int((length + 1).sum())
    steps = np.arange(int(length.sum()))
    begin = np.concatenate([[0], np.cumsum(length)[:-1]])
    target = steps + np.repeat(slot - begin, length)
    origin = steps + np.repeat(first - begin, length)

    def spread(column: np.ndarray) -> np.ndarray:
        out = np.zeros((size, *column.shape[1:]), column.dtype)
        out[target] = column[origin]
        return out

    logged = None if propensity is None else spread(propensity)
    arena = Arena(spread(obs), spread(action), spread(reward), spread(terminal), logged)
    arena.obs[slot + length] = final
    return arena, Episodes.make(slot, length, terminated), first, dropped
