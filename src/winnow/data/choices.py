"""Discrete actions as they come in: whether a column holds choices or amounts, how many there are, and their names."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from winnow.data.meta import MOST_CHOICES, ActionKind, check_choices
from winnow.errors import BadInput

SHOWN = 12
"""Values that an error shows."""


class Actions(NamedTuple):
    """What is said about a dataset's actions, by the user or by its file."""

    kind: ActionKind | None = None
    choices: int | None = None
    """Number of choices. Without it: as many as there are names, else the greatest number in the column plus one."""
    names: tuple[str, ...] = ()

    @property
    def is_discrete(self) -> bool:
        return self.kind == "discrete" or (self.kind is None and (self.choices is not None or bool(self.names)))


UNSAID = Actions()
"""Nothing is said: the column decides, or the user is asked."""


class Choices(NamedTuple):
    """A column of choices, checked."""

    column: np.ndarray  # [rows, 1] int32
    size: int
    names: tuple[str, ...]
    notes: tuple[str, ...]


def read_choices(values: Any, actions: Actions, bounded: bool, where: str) -> Choices | None:
    """The choices in a column of actions; None where actions are continuous.

    Truth values are choices. A single column of integers could be either, and words may be numbers with a typing error:
    without `actions` or bounds, the user is asked.
    """
    values = np.asarray(values)
    single = values.ndim == 1 or (values.ndim == 2 and values.shape[1] == 1)
    if actions.kind == "continuous":
        if actions.choices is not None or actions.names:
            raise BadInput(
                f"{where}: continuous actions have no choices; leave out --action-choices and --choice-names"
            )
        return None
    are_words = values.dtype.kind in "OSU"
    if not actions.is_discrete:
        if not single or bounded or not (are_words or values.dtype.kind in "biu"):
            return None
        if are_words:
            raise BadInput(
                f"{where}: actions holds words ({_shown(values.astype(str))}), where numbers are expected; if they are "
                "names of choices, say so (--action-kind discrete)"
            )
        if values.dtype.kind in "iu":
            raise BadInput(
                f"{where}: actions is one column of whole numbers ({_shown(values)}), which may be choices or amounts; "
                "say which (--action-kind discrete, --action-kind continuous)"
            )
    if not single:
        raise BadInput(
            f"{where}: actions has shape {list(values.shape)}; a discrete action is one column of choices: number the "
            "combinations, or leave out --action-kind discrete"
        )
    if bounded:
        raise BadInput(f"{where}: discrete actions have no bounds; leave out --action-bounds")
    values = values.reshape(-1)
    if are_words:
        return _of_words(values.astype(str), actions, where)
    return _of_numbers(values, actions, where)


def _of_words(values: np.ndarray, actions: Actions, where: str) -> Choices:
    """Choices by name: numbered in the order of the given names, or in alphabetical order."""
    present = [str(name) for name in np.unique(values)]
    names = actions.names or tuple(present)
    if unknown := [name for name in present if name not in names]:
        row = int(np.argmax(values == unknown[0]))
        raise BadInput(f"{where}: actions, row {row}: {unknown[0][:60]!r} must be one of {', '.join(names)[:200]}")
    number = {name: code for code, name in enumerate(names)}
    codes = np.array([number[name] for name in present], np.int32)[np.searchsorted(present, values)]
    return _counted(codes, actions._replace(names=names), where)


def _of_numbers(values: np.ndarray, actions: Actions, where: str) -> Choices:
    if values.dtype.kind not in "fiub":
        raise BadInput(f"{where}: actions holds {values.dtype}; it must hold whole numbers or words")
    with np.errstate(invalid="ignore"):
        wrong = ~((values >= 0) & (values < MOST_CHOICES) & (values == np.floor(values)))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BadInput(
            f"{where}: actions, row {row}: a choice must be a whole number from 0 to {MOST_CHOICES - 1:,}, got "
            f"{values[row]}; number the choices from 0"
        )
    return _counted(values.astype(np.int32), actions, where)


def _counted(codes: np.ndarray, actions: Actions, where: str) -> Choices:
    notes: list[str] = []
    greatest = int(codes.max(initial=0))
    count = actions.choices or len(actions.names)
    if not count:
        count = greatest + 1
        notes.append(f"number of choices not given: taken as {count}, the greatest in the data plus one")
        if count < 2:
            raise BadInput(f"{where}: actions are all 0; give the number of choices (--action-choices)")
    if greatest >= count:
        row = int(np.argmax(codes >= count))
        raise BadInput(
            f"{where}: actions, row {row}: a choice must be below {count}, the number of choices, got {codes[row]}"
        )
    check_choices(count, actions.names, where)
    unseen = np.setdiff1d(np.arange(count), codes)
    if len(unseen):
        notes.append(f"{len(unseen)} of {count} choices never occur: {_shown(unseen)}")
    return Choices(codes[:, None], count, actions.names, tuple(notes))


def read_propensities(values: Any, rows: int, where: str) -> np.ndarray:
    """[rows] the probability with which each logged choice was made."""
    column = np.asarray(values).reshape(-1)
    if column.dtype.kind not in "fiu" or len(column) != rows:
        raise BadInput(
            f"{where}: propensity must be one number for each of {rows} rows, got {len(column)} {column.dtype}"
        )
    with np.errstate(invalid="ignore"):
        wrong = ~((column > 0) & (column <= 1 + 1e-6))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BadInput(
            f"{where}: propensity, row {row}: the probability of a logged choice must be above 0 and at most 1, got "
            f"{column[row]}; correct the row or remove the column"
        )
    return np.minimum(column, 1).astype(np.float32)


def _shown(values: np.ndarray) -> str:
    """The distinct values of a column, or the first of them."""
    distinct = np.unique(values)
    text = ", ".join(map(str, distinct[:SHOWN]))
    return f"{text}, …: {len(distinct):,} different values" if len(distinct) > SHOWN else text
