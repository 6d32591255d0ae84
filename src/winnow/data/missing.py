"""Values that are not finite numbers: refused by the name of their column, left out, or filled in within an episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from winnow.data.arrays import episode_ends
from winnow.data.columns import MATRICES, Nan, shown
from winnow.data.dataset import Kind
from winnow.errors import BadInput

NUMBERS = (*MATRICES, "rewards")
"""Fields that are looked at; flags and ids have checks of their own."""
ROWS_SHOWN = 5


class Repaired(NamedTuple):
    """Columns without missing values, and what happened to the rows."""

    columns: dict[str, Any]
    kept: np.ndarray
    """[rows before] which of them are still there."""
    ends: np.ndarray | None
    """[rows after] the last rows of episodes and of their fragments; None where there are no episodes."""
    episode: np.ndarray | None
    step: np.ndarray | None
    """[rows after] the episode, and the step in it, that each row was before any row was left out."""
    note: str


def missing(columns: dict[str, Any]) -> dict[str, np.ndarray]:
    """For each field with values that are not finite: which they are."""
    bad: dict[str, np.ndarray] = {}
    for field in NUMBERS:
        values = np.asarray(columns[field]) if field in columns else np.zeros(0)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            bad[field] = ~np.isfinite(values)
    return bad


def refuse(columns: dict[str, Any], bad: dict[str, np.ndarray], names: Mapping[str, Sequence[str]], where: str) -> None:
    """Say which columns have such values, how many, and in which rows."""
    (field, name, rows), *others = _by_column(bad, names)
    at = tuple(np.argwhere(bad[field])[0].tolist())
    column = "".join(f", column {number}" for number in at[1:] if field not in names)
    every = f"; the column has {len(rows):,} such values ({_rows(rows)})" if len(rows) > 1 else ""
    counts = [f"{other} ({len(rows_of_other):,})" for _, other, rows_of_other in others]
    more = f"; other columns with such values: {shown(counts)}" if others else ""
    raise BadInput(
        f"{where}: {name}, row {at[0]}{column}: {np.asarray(columns[field])[at]} is not a finite number{every}{more}; "
        "repair them, or choose --nan drop or --nan forward-fill"
    )


def repair(
    columns: dict[str, Any],
    bad: dict[str, np.ndarray],
    names: Mapping[str, Sequence[str]],
    how: Nan,
    ends: np.ndarray | None,
    kind: Kind | None,
    max_steps: int | None,
    where: str,
) -> Repaired:
    """The rows without missing values. Rows are never joined over a gap: an episode is split where rows are left out.

    ends: last rows of episodes by their ids, where there are ids
    """
    count = len(np.ravel(columns["rewards"]))
    if kind == "bag":
        last = np.ones(count, bool)
    else:
        last = full_ends(columns, ends, kind, max_steps, where)
    first = np.concatenate([[0], np.flatnonzero(last)[:-1] + 1]) if count else np.zeros(0, int)
    length = np.diff(np.append(first, count))
    begin = np.repeat(first, length)
    filled = dict(columns)
    if how == "forward-fill":
        if "rewards" in bad:
            rows = np.flatnonzero(bad["rewards"].reshape(count, -1).any(axis=1))
            raise BadInput(
                f"{where}: the reward is missing in {len(rows):,} rows ({_rows(rows)}), and a reward can't be taken "
                "from another row; repair them, or choose --nan drop"
            )
        for field in bad:
            filled[field] = _filled(np.asarray(columns[field]), begin)
        if "next_observations" in bad:  # the last value that is known is the observation's own
            following = np.asarray(columns["next_observations"])
            now = np.asarray(filled["observations"])
            filled["next_observations"] = np.where(np.isfinite(following), following, now)
        left = missing(filled)
    else:
        left = bad
    gone = np.zeros(count, bool)
    for values in left.values():
        gone |= values.reshape(count, -1).any(axis=1)
    if gone.all():
        raise BadInput(f"{where}: no row is without a missing value ({_all(bad, names)}); leave columns out (--drop)")
    split = last.copy()
    split[:-1] |= gone[1:]
    kept = ~gone
    number = np.repeat(np.arange(len(first)), length)
    cut = np.unique(number[gone])
    what = "taken from the row before" if how == "forward-fill" else "left out"
    note = f"--nan {how}: values that are not finite were {what}: {_all(bad, names)}"
    if gone.any():
        why = " that had no row before them" if how == "forward-fill" else ""
        note += f"; {gone.sum():,} rows{why} were left out of {len(cut):,} episodes, which were split there"
    after = {name: np.asarray(values)[kept] for name, values in filled.items()}
    if kind == "bag":
        return Repaired(after, kept, None, None, None, note)
    step = np.arange(count) - begin
    return Repaired(after, kept, split[kept], number[kept], step[kept], note)


def full_ends(
    columns: dict[str, Any], ends: np.ndarray | None, kind: Kind | None, max_steps: int | None, where: str
) -> np.ndarray:
    """[rows] the last row of every episode, as `from_arrays` would find it if nothing were missing."""

    def flags(name: str) -> np.ndarray | None:
        values = columns.get(name)
        return None if values is None else np.ravel(values).astype(bool)

    obs = _plain(columns["observations"])
    following = _plain(columns["next_observations"]) if "next_observations" in columns else None
    if following is not None and following.shape == obs.shape:
        known = np.isfinite(following[:-1]) & np.isfinite(obs[1:])
        following = following.copy()
        following[:-1] = np.where(known, following[:-1], obs[1:])  # what is missing says nothing of an end
    timeout = flags("timeouts")
    if ends is not None:
        timeout = ends if timeout is None else timeout | ends
    finite = np.nan_to_num(obs)
    follows = None if following is None else np.nan_to_num(following)
    if kind == "continuing":
        last = np.zeros(len(obs), bool) if timeout is None else timeout.copy()
    else:
        last = episode_ends(finite, flags("terminals"), timeout, follows, max_steps, where).copy()
    last[-1:] = True
    return last


def _plain(values: Any) -> np.ndarray:
    array = np.asarray(values, np.float32)
    return array[:, None] if array.ndim == 1 else array


def _filled(values: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """Each missing value is the last one before it in the same episode; the first ones stay missing."""
    matrix = values.reshape(len(values), -1)
    row = np.arange(len(matrix))[:, None]
    source = np.maximum.accumulate(np.where(np.isfinite(matrix), row, -1), axis=0)
    known = source >= begin[:, None]
    out = np.where(known, np.take_along_axis(matrix, np.maximum(source, 0), axis=0), np.nan)
    return out.reshape(values.shape).astype(values.dtype)


def _by_column(bad: dict[str, np.ndarray], names: Mapping[str, Sequence[str]]) -> list[tuple[str, str, np.ndarray]]:
    """Field, name and rows of each column with missing values."""
    lines = []
    for field, values in bad.items():
        matrix = values.reshape(len(values), -1)
        labels = list(names.get(field, ()))
        for number in np.flatnonzero(matrix.any(axis=0)).tolist():
            label = labels[number] if number < len(labels) else field
            lines.append((field, label, np.flatnonzero(matrix[:, number])))
    return lines


def _all(bad: dict[str, np.ndarray], names: Mapping[str, Sequence[str]]) -> str:
    return shown([f"{name} {len(rows):,} ({_rows(rows)})" for _, name, rows in _by_column(bad, names)])


def _rows(rows: np.ndarray) -> str:
    first = ", ".join(map(str, rows[:ROWS_SHOWN].tolist()))
    return f"row{'s' * (len(rows) > 1)} {first}{', …' * (len(rows) > ROWS_SHOWN)}"
