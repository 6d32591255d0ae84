"""The columns that an opener read, made into a checked dataset: rewards, missing values, ends of episodes, labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from winnow.data.arrays import from_arrays
from winnow.data.choices import UNSAID, Actions
from winnow.data.columns import ALIASES, Columns, FileContent, shown
from winnow.data.dataset import Dataset
from winnow.data.meta import LONGEST, MOST_SOURCES, Kind, Side
from winnow.data.missing import full_ends, missing, refuse, repair
from winnow.errors import BadInput

NEEDED = {"observations": "--observations", "actions": "--actions", "rewards": "--reward"}
"""What a dataset can't do without, and the option that names it."""
PER_ROW = {"seed": "seed", "origin": "origin", "offset": "step", "row": "source_row", "id": "source_episode"}
"""Columns of the episode table, and the columns of a file that give them."""
COPIED = ("name", "environment", "physics", "sources", "return_range", "recipe", "obs_names", "action_names")
"""What a file that winnow exported says of itself."""


def assemble(
    content: FileContent,
    where: str,
    kind: Kind | None,
    max_steps: int | None,
    bounds: tuple[Side, Side] | None,
    actions: Actions = UNSAID,
    choice: Columns | None = None,
) -> Dataset:
    """Columns into a checked dataset."""
    choice = choice or Columns()
    own = content.own
    columns = content.columns
    _require(content, where)
    meta: dict[str, Any] = {"name": content.name, "environment": content.environment}
    meta |= {"obs_names": content.labels.get("observations", ()), "action_names": content.labels.get("actions", ())}
    if own:
        meta |= {name: getattr(own, name) for name in COPIED}
        kind = kind or own.kind
        if own.action_choices:
            content.actions = Actions("discrete", own.action_choices, own.choice_names)
        else:
            bounds = bounds or (own.action_low, own.action_high)
    if actions == UNSAID and bounds is None:
        actions = content.actions
    ends = None
    if "episode" in columns and kind != "bag":
        ends = _changes(columns["episode"], np.shape(columns["observations"])[0], where)
    columns, notes = _with_rewards(columns, ends, kind, max_steps, where)
    count = np.size(columns["rewards"])
    _equally_long(columns, count, where)
    per_row = {field: np.ravel(columns[name]) for field, name in PER_ROW.items() if name in columns}
    if "id" not in per_row and "episode" in columns:
        per_row["id"] = episode_ids(columns["episode"], where)
    if "source" in columns:
        meta["sources"], per_row["source"] = _labels(columns["source"], own.sources if own else (), where)
    bad = missing(columns)
    if bad:
        if choice.nan == "refuse":
            refuse(columns, bad, content.labels, where)
        per_row = {"row": np.arange(count)} | per_row
        repaired = repair(columns, bad, content.labels, choice.nan, ends, kind, max_steps, where)
        per_row = {name: values[repaired.kept] for name, values in per_row.items()}
        columns = repaired.columns
        notes += (repaired.note,)
        if repaired.ends is not None and repaired.episode is not None and repaired.step is not None:
            columns.pop("timeouts", None)
            ends = repaired.ends
            max_steps = None
            per_row = {"origin": repaired.episode, "offset": repaired.step, "id": repaired.episode} | per_row
    dataset = from_arrays(
        columns["observations"],
        columns["actions"],
        columns["rewards"],
        columns.get("terminals"),
        columns.get("timeouts"),
        columns.get("next_observations"),
        ends=ends,
        kind=kind,
        max_steps=max_steps,
        action_bounds=bounds or (None if actions.is_discrete else content.bounds),
        action_kind=actions.kind,
        action_choices=actions.choices,
        choice_names=actions.names,
        propensities=columns.get("propensities"),
        where=where,
        per_row=per_row,
        **meta,
    )
    notes = (own.notes if own else ()) + content.notes + notes + dataset.meta.notes + _done_notes(content)
    return dataset.describe(notes=tuple(dict.fromkeys(notes)))


def _require(content: FileContent, where: str) -> None:
    have = set(content.columns) | ({"rewards"} if {"progress", "success"} & set(content.columns) else set())
    for name, option in NEEDED.items():
        if name not in have:
            usual = ", ".join(ALIASES[name])
            there = shown(content.names) or "nothing"
            raise BadInput(f"{where}: has no column for {name} ({usual}); name it with {option}; found: {there}")


def _equally_long(columns: dict[str, Any], count: int, where: str) -> None:
    for name, values in columns.items():
        rows = np.shape(values)[0] if np.ndim(values) else 1
        if rows != count and name not in ("episode", "observations", "actions", "next_observations", "rewards"):
            raise BadInput(f"{where}: {name} has {rows} rows, rewards has {count}; they must agree")


# ------------------------------------------------------------------------------------------------------- rewards


def _with_rewards(
    columns: dict[str, Any], ends: np.ndarray | None, kind: Kind | None, max_steps: int | None, where: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The columns with a reward, made of progress or success where the user asked for that."""
    for name, make, note in (
        ("progress", reward_from_progress, "the reward is the change of progress until the next row of the episode"),
        ("success", reward_from_success, "the reward is 1 once in each episode that succeeds"),
    ):
        if name in columns:
            if kind == "bag":
                raise BadInput(f"{where}: a reward from {name} needs episodes, got unordered rows; give --reward")
            values = np.ravel(columns[name])
            if values.dtype.kind not in "fiub":
                raise BadInput(f"{where}: {name} must hold numbers, got {values.dtype}; name another column")
            last = full_ends(columns, ends, kind, max_steps, where)
            rest = {field: column for field, column in columns.items() if field != name}
            return rest | {"rewards": make(values.astype(np.float64), last)}, (note,)
    return columns, ()


def reward_from_progress(progress: np.ndarray, last: np.ndarray) -> np.ndarray:
    """How much progress rises until the next row; 0 in the last row of an episode, after which nothing was recorded.

    So the return of an episode is its progress at the end less that at the beginning.
    """
    change = np.diff(progress, append=progress[-1:])
    return np.where(last, 0.0, change)


def reward_from_success(success: np.ndarray, last: np.ndarray) -> np.ndarray:
    """1 in the first successful row of each episode, or in its last row where the whole episode is marked.

    So the return of an episode is 1 if it succeeded and 0 if not, however many of its rows are marked.
    """
    reward = np.zeros(len(success))
    ends = np.flatnonzero(last)
    for first, final in zip(np.append(0, ends[:-1] + 1), ends, strict=True):
        marked = np.flatnonzero(success[first : final + 1] > 0)
        if len(marked):
            reward[final if len(marked) == final + 1 - first else first + marked[0]] = 1
    return reward


# ---------------------------------------------------------------------------------------------- ends and labels


def _done_notes(content: FileContent) -> tuple[str, ...]:
    """What `done` was taken for: old gym wrote it for a timeout too, and that can't be seen afterwards."""
    done = next((name for name in ("done", "dones") if name in content.names), None)
    if done is None or "terminals" not in content.columns:
        return ()
    if "timeouts" not in content.columns:
        return (f"`{done}` was taken as terminal; if it also marks time limits, add a `truncated` column",)
    terminal, timeout = (np.ravel(content.columns[name]).astype(bool) for name in ("terminals", "timeouts"))
    both = int((terminal & timeout).sum())
    return (f"{both} row(s) are both `{done}` and timed out: taken as terminal",) if both else ()


def episode_ids(values: Any, where: str) -> np.ndarray:
    """The source's ids of episodes: whole numbers as int64, anything else as strings."""
    ids = np.ravel(values)
    if ids.dtype.kind in "iub":
        return ids.astype(np.int64)
    if ids.dtype.kind == "f" and (ids == np.floor(ids)).all() and np.abs(ids).max(initial=0) < 2**53:
        return ids.astype(np.int64)
    text = ids.astype(str)
    if text.dtype.itemsize > 4 * LONGEST or not all(map(str.isprintable, np.unique(text).tolist())):
        raise BadInput(f"{where}: an episode's id must be one line of at most {LONGEST} characters; shorten the ids")
    return text


def _changes(episode: Any, rows: int, where: str) -> np.ndarray:
    """Rows after which the episode's id is another one."""
    episode = np.ravel(episode)
    if len(episode) != rows:
        raise BadInput(f"{where}: episode has {len(episode)} rows, rewards has {rows}; they must agree")
    end = np.ones(len(episode), bool)
    end[:-1] = episode[1:] != episode[:-1]
    first = np.flatnonzero(np.roll(end, 1))
    ids, earliest = np.unique(episode[first], return_index=True)
    if len(ids) < len(first):
        row = int(first[np.setdiff1d(np.arange(len(first)), earliest)[0]])
        raise BadInput(
            f"{where}: episode, row {row}: id {episode[row]} comes back after other episodes; sort the rows by "
            "episode and step, or say that they are unordered (--kind bag)"
        )
    return end


def _labels(values: Any, known: Sequence[str], where: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Source labels and each row's index into them. Numbers are indices already where the labels are known."""
    values = np.ravel(values)
    if known and values.dtype.kind in "iu":
        outside = (values < 0) | (values >= len(known))
        if outside.any():
            row = int(np.argmax(outside))
            raise BadInput(f"{where}: source, row {row}: {values[row]} is none of its {len(known)} sources")
        return tuple(known), values
    distinct, code = np.unique(values, return_inverse=True)
    if len(distinct) > MOST_SOURCES:
        raise BadInput(f"{where}: source has {len(distinct):,} different labels; there may be {MOST_SOURCES:,}")
    labels = tuple(dict.fromkeys([*known, *map(str, distinct)]))
    return labels, np.array([labels.index(str(label)) for label in distinct], np.int32)[code]
