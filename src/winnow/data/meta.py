"""What a dataset's arrays can't say: its name, kind, sources, bounds, column names and notes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from winnow.errors import BadInput
from winnow.system.files import parse_json

Kind = Literal["episodes", "continuing", "bag"]
ActionKind = Literal["continuous", "discrete"]
LONGEST = 200
"""Most characters of a name or an episode id."""
MOST_SOURCES = 1_000
"""Most labelled sources of a dataset."""
MOST_CHOICES = 10_000
"""Most choices of a discrete action: a batch holds a number for each."""
NAMES = ("obs_names", "action_names")
"""Fields of a description that name columns."""
DEPLOYED = (*NAMES, "choice_names")
"""Names that go with a run and into the files of its policy."""
LATER = (*NAMES, "action_choices", "choice_names")
"""Fields that a file leaves out where they are empty, so that it stays as it was before there were any, bit for bit."""
Side = Sequence[float] | np.ndarray | float
"""A bound of the actions: one number for each column, or one for all."""


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
    """Least and greatest return of the sources' full episodes, where this dataset holds only segments of them."""
    recipe: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    """What the opener changed or assumed, in words."""
    obs_names: tuple[str, ...] = ()
    """The name of each observation column, where the source names them."""
    action_names: tuple[str, ...] = ()
    """The name of each action column, where the source names them."""
    action_choices: int | None = None
    """Number of choices of a discrete action, which has no bounds; None where actions are continuous."""
    choice_names: tuple[str, ...] = ()
    """The name of each choice, where they are known."""

    def to_json(self) -> str:
        self.check()
        record = dataclasses.asdict(self)
        return json.dumps({key: value for key, value in record.items() if value or key not in LATER}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Meta:
        """The description in a file; a ValueError or a TypeError where it is not valid."""
        record = parse_json(text)
        if not isinstance(record, dict):
            raise ValueError("its description must be a JSON object")
        for name in ("sources", "action_low", "action_high", "return_range", "notes", "choice_names", *NAMES):
            if record.get(name) is not None:
                record[name] = tuple(record[name])
        made = cls(**record)
        made.check()
        return made

    def check(self, where: str = "its description") -> None:
        """Refuse what can't be shown or can't be true. Everything that is written or read is checked here."""
        texts = [("name", self.name), ("environment", self.environment or ""), ("physics", self.physics or "")]
        for name in ("sources", "choice_names", *NAMES):
            texts += [(name, text) for text in getattr(self, name)]
        for name, text in texts:
            if not isinstance(text, str) or not text.isprintable() or len(text) > LONGEST:
                raise BadInput(
                    f"{where}: {name} must be one line of at most {LONGEST} characters, got {repr(text)[:60]}; choose "
                    "another (--name, --environment)"
                )
        if self.kind not in get_args(Kind):
            raise BadInput(f"{where}: kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}; choose one")
        if not 1 <= len(self.sources) <= MOST_SOURCES:
            raise BadInput(f"{where}: must have 1 to {MOST_SOURCES:,} sources, got {len(self.sources):,}; use fewer")
        lines = all(isinstance(note, str) and note.isprintable() for note in self.notes)
        if not lines or not isinstance(self.recipe, dict | None):
            raise BadInput(f"{where}: `notes` must be strings and `recipe` an object or null; re-create the file")
        low = _finite(self.action_low)
        high = _finite(self.action_high)
        if low is None or high is None or len(low) != len(high) or any(a >= b for a, b in zip(low, high, strict=True)):
            raise BadInput(f"{where}: action bounds must be finite and low < high; give others (--action-bounds)")
        check_choices(self.action_choices, self.choice_names, where)
        if self.action_choices and self.action_low:
            raise BadInput(f"{where}: discrete actions have no bounds; leave out --action-bounds")
        if self.return_range is not None and len(_finite(self.return_range) or ()) != 2:
            raise BadInput(f"{where}: `return_range` must be two finite numbers; re-create the file")


def check_choices(choices: Any, names: Sequence[str], where: str) -> None:
    """Refuse a number of choices, or names of them, that can't be."""
    if choices is None and not names:
        return
    if type(choices) is not int or not 2 <= choices <= MOST_CHOICES:
        shown = str(choices)[:30]
        raise BadInput(f"{where}: action_choices must be a whole number from 2 to {MOST_CHOICES:,}, got {shown}")
    if names and (len(names) != choices or len(set(names)) != choices):
        shown = ", ".join(names)[:80]
        raise BadInput(f"{where}: choice_names must be {choices} different names, one for each choice, got {shown}")


def _finite(values: Any) -> list[float] | None:
    """Numbers of a description; None if any of them is not a finite number."""
    try:
        numbers = [float(value) for value in values if not isinstance(value, bool | str)]
        return numbers if len(numbers) == len(values) and np.isfinite(numbers).all() else None
    except (TypeError, OverflowError, ValueError):
        return None
