"""Which columns of a file are observations, actions, rewards, … : named by the user, or found by their usual names.

`select` looks at names alone, `read_selected` reads the columns and puts them side by side. One table of usual names
serves files and the batches of other training loops (`winnow.plug`).
"""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, get_args

import numpy as np

from winnow.data.choices import UNSAID, Actions
from winnow.data.meta import Meta, Side
from winnow.errors import BadInput

Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is."""
Nan = Literal["refuse", "drop", "forward-fill"]
"""What to do with values that are not finite numbers."""

ALIASES = {
    "observations": ("observations", "observation", "obs"),
    "actions": ("actions", "action", "act"),
    "rewards": ("rewards", "reward", "rew"),
    "next_observations": ("next_observations", "next_observation", "next_obs"),
    "terminals": ("terminals", "terminal", "terminated", "terminations", "termination", "dones", "done"),
    "timeouts": ("timeouts", "timeout", "truncated", "truncations", "truncation"),
    "episode": ("episode", "episode_id", "episode_index"),
    "propensities": ("propensities", "propensity", "action_prob", "action_probability", "behavior_probability"),
    "source": ("source",),
}
"""The usual names of each field, for files and for batches. `dones` are taken as terminals: ends of the task, not of
the recording."""
LAST_RESORT = {"observations": ("states", "state"), "next_observations": ("next_states", "next_state")}
"""Names that count only where none of `ALIASES` is there: a simulator's state may lie beside the observation."""
NUMBERED = re.compile(r"(.+)[._](\d+)")
OWN_COLUMNS = ("step", "seed", "origin", "source_row", "source_episode")
"""Columns with a meaning of winnow's own: read only from files that it exported."""
MATRICES = ("observations", "actions", "next_observations")
"""Fields that are made of several columns."""
OPTIONS = {
    "observations": "observations",
    "actions": "actions",
    "reward": "rewards",
    "reward_from": "progress",
    "next_observations": "next_observations",
    "episode": "episode",
    "terminal": "terminals",
    "timeout": "timeouts",
    "propensity": "propensities",
    "source": "source",
}
"""The field that each option of `Columns` names."""
SUCCESS = ("success", "next.success", "is_success")
"""Columns that `--reward success` may mean."""
TEXT_ROWS = 100_000
"""Rows of a column of text that are searched for the first that is no number."""
MAX_SHOWN = 12
"""Names in a note or a message; of more, the number is given."""


@dataclass(frozen=True)
class Columns:
    """Which columns of a file to use, by name or by pattern (`temp_*`). What is not given is guessed by usual names."""

    observations: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    reward: str = ""
    """One column; or `success`: 1 once in each episode that succeeds."""
    reward_from: str = ""
    """A column with progress: the reward of a row is how much it rises until the next row of the episode."""
    next_observations: tuple[str, ...] = ()
    episode: str = ""
    terminal: str = ""
    timeout: str = ""
    propensity: str = ""
    source: str = ""
    drop: tuple[str, ...] = ()
    """Columns to leave out, whatever else matches them."""
    nan: Nan = "refuse"
    """refuse; drop: leave such rows out and split the episode there; forward-fill: take the value of the row before in
    the same episode."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, tuple):
                value = tuple(split_names(value)) if isinstance(value, str) else tuple(value)
                object.__setattr__(self, field.name, value)
                value = "".join(value) if all(isinstance(name, str) for name in value) else None
            if not isinstance(value, str):
                raise BadInput(f"columns: {field.name} must be names of columns, got {value!r}; give strings")
        if self.nan not in get_args(Nan):
            raise BadInput(f"columns: nan must be one of {', '.join(get_args(Nan))}, got {self.nan!r}; choose one")
        if self.reward and self.reward_from:
            raise BadInput("columns: reward and reward_from both give the reward; keep one of them")

    @classmethod
    def of(cls, options: Mapping[str, Any], where: str = "columns") -> Columns:
        """A choice from a dictionary of its fields."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in known:
                raise BadInput(f"{where}: {name!r} must be one of {', '.join(known)}; rename or remove it")
        return cls(**options)

    @property
    def given(self) -> bool:
        """Whether anything is named."""
        return any(getattr(self, name) for name in (*OPTIONS, "drop"))


def split_names(text: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def read_columns_file(path: Path) -> dict[str, Any]:
    """The options in a TOML file, under the names of the fields of `Columns`."""
    try:
        options = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: can't be read ({error.strerror}); check the name") from error
    except ValueError as error:
        raise BadInput(f"{path}: is not TOML ({error}); correct that line") from error
    options = {name.replace("-", "_"): value for name, value in options.items()}
    for name, value in options.items():
        strings = [value] if isinstance(value, str) else value
        if not isinstance(strings, list) or not all(isinstance(text, str) for text in strings):
            raise BadInput(f"{path}: {name} must be a string or a list of strings, got {value!r}; correct it")
    Columns.of(options, str(path))
    return options


# ---------------------------------------------------------------------------------------------------- what is used


@dataclass
class FileContent:
    """What an opener read from a file."""

    columns: dict[str, Any]
    """Arrays under winnow's names."""
    names: Sequence[str]
    """Every column of the file, under its own name."""
    name: str
    environment: str | None = None
    bounds: tuple[Side, Side] | None = None
    """Least and greatest action, where the file says so."""
    own: Meta | None = None
    """The description in a file that winnow exported."""
    actions: Actions = UNSAID
    """What the file says about its actions."""
    labels: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """The file's names of the columns of each field, where they have names."""
    notes: tuple[str, ...] = ()


class Selection(NamedTuple):
    """Which columns of a file give each field."""

    fields: dict[str, list[str]]
    guessed: frozenset[str]
    """Fields that were recognised by the usual names of columns."""
    ignored: list[str]
    dropped: list[str]

    def guessed_where_not_named(self, choice: Columns) -> Selection:
        """The same, where an opener has filled in the user's choice with a format's usual names."""
        named = {field for option, field in OPTIONS.items() if getattr(choice, option)}
        return self._replace(guessed=frozenset(self.fields) - named - ({"success"} if choice.reward else set()))

    def note(self) -> str:
        """What was used, guessed and ignored, in one line."""
        named = [f"{field} {shown(names)}" for field, names in self.fields.items() if field not in self.guessed]
        guessed = [f"{field} {shown(names)}" for field, names in self.fields.items() if field in self.guessed]
        parts = [("named", named), ("guessed from their names", guessed)]
        lines = [f"{what}: {'; '.join(fields)}" for what, fields in parts if fields]
        lines += [f"ignored: {shown(self.ignored)}"] if self.ignored else []
        lines += [f"dropped: {shown(self.dropped)}"] if self.dropped else []
        return "columns " + " | ".join(lines)


def shown(names: Sequence[str]) -> str:
    """Names in a line; of many, the first ones and how many there are."""
    text = ", ".join(name if name.isprintable() else repr(name) for name in names[:MAX_SHOWN])
    return text if len(names) <= MAX_SHOWN else f"{text}, … ({len(names)} in all)"


def select(names: Iterable[str], choice: Columns, where: str, own: bool = False) -> Selection:
    """Which columns give each field, by what the user named and by usual names."""
    names = [str(name) for name in names]
    dropped = {name for pattern in choice.drop for name in matching(pattern, names, "drop", where)}
    left = [name for name in names if name not in dropped]
    claims: dict[str, dict[str, int]] = {}
    for option, field in OPTIONS.items():
        patterns = getattr(choice, option)
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            if not pattern:
                continue
            if option == "reward" and pattern == "success" and (columns := [n for n in SUCCESS if n in left]):
                field = "success"
                pattern = columns[0]
            exact = pattern in left
            for name in [pattern] if exact else matching(pattern, left, option, where):
                rank = EXACT if exact else WILDCARD if pattern == "*" else PATTERN
                claims.setdefault(field, {}).setdefault(name, rank)
    taken = {name for fields in claims.values() for name, rank in fields.items() if rank == EXACT}
    given = set(claims) | ({"rewards"} if {"progress", "success"} & set(claims) else set())
    usual = _usual([name for name in left if name not in taken], given, dropped, where, own)
    for field, columns in usual.items():
        claims[field] = dict.fromkeys(columns, USUAL)
    fields = _resolve(claims, where)
    for field, columns in fields.items():
        if field not in MATRICES and field not in usual and len(columns) > 1:
            raise BadInput(f"{where}: {field} must be one column, got {shown(columns)}; name one of them")
    if "next_observations" in claims and "next_observations" not in usual:
        following = fields["next_observations"]
        fields["next_observations"] = _paired(fields.get("observations", []), following, where)
    used = {name for columns in fields.values() for name in columns}
    ignored = [name for name in left if name not in used]
    return Selection(fields, frozenset(usual), ignored, [name for name in names if name in dropped])


WILDCARD, PATTERN, USUAL, EXACT = range(4)
"""How strongly a column is claimed: by `*` alone, by a pattern, by its usual name, by its own name."""


def matching(pattern: str, names: Sequence[str], option: str, where: str) -> list[str]:
    """The names that a pattern means; at least one. option: what to call the pattern in the message"""
    matches = [pattern] if pattern in names else [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    if not matches:
        near = difflib.get_close_matches(pattern, names, 3)
        hint = f"did you mean {', '.join(near)}?" if near else f"it has {shown(names) or 'no columns'}"
        option = option.replace("_", "-")
        raise BadInput(f"{where}: --{option} must match a column, got {pattern!r}; {hint}")
    return matches


def _usual(names: list[str], given: set[str], dropped: set[str], where: str, own: bool) -> dict[str, list[str]]:
    """Columns with usual names, for fields that are not given. Numbered ones (obs_0, obs_1, …) belong together."""
    fields: dict[str, list[str]] = {}
    aliases = ALIASES | ({name: (name,) for name in OWN_COLUMNS} if own else {})
    every = {name for usual in (*aliases.values(), *LAST_RESORT.values()) for name in usual}
    numbered: dict[str, dict[int, str]] = {}
    for name in names:
        if name not in every and (match := NUMBERED.fullmatch(name)):
            numbered.setdefault(match[1], {})[int(match[2])] = name
    for field, usual in aliases.items():
        if field in given:
            continue
        for known in (usual, LAST_RESORT.get(field, ())):
            whole = [name for name in known if name in names]
            split = [name for name in known if name in numbered]
            if len(whole) + len(split) > 1:
                both = " and ".join(f"`{name}`" for name in [*whole, *(f"{name}_…" for name in split)])
                raise BadInput(f"{where}: {both} both give {field}; keep one of them")
            if split:
                whole = _in_order(numbered[split[0]], split[0], dropped, where)
            if whole:
                fields[field] = whole
                break
    return fields


def _in_order(parts: dict[int, str], name: str, dropped: set[str], where: str) -> list[str]:
    """Numbered columns by their numbers, without a gap that nobody asked for."""
    first = min(parts)
    gone = {int(match[2]) for column in dropped if (match := NUMBERED.fullmatch(column)) and match[1] == name}
    for number in range(first, max(parts)):
        if number not in parts and number not in gone:
            raise BadInput(f"{where}: {name}: number {number} is missing between {', '.join(parts.values())}; add it")
    return [parts[number] for number in sorted(parts)]


def _resolve(claims: dict[str, dict[str, int]], where: str) -> dict[str, list[str]]:
    """Each column goes where it is named most exactly. A column that is spelled out in two places goes to both."""
    fields: dict[str, list[str]] = {}
    for field, columns in claims.items():
        for name, rank in columns.items():
            rivals = [(others[name], other) for other, others in claims.items() if other != field and name in others]
            rival, other = max(rivals, default=(-1, ""))
            if rival == rank and rank < EXACT:
                raise BadInput(
                    f"{where}: column {name} matches both {field} and {other}; spell it out for one of them, or leave "
                    f"it out (--drop {name})"
                )
            if rival <= rank:
                fields.setdefault(field, []).append(name)
    return fields


def _paired(observations: list[str], following: list[str], where: str) -> list[str]:
    """Next observations in the order of the observations, by their names where these say so."""
    if len(observations) != len(following):
        raise BadInput(
            f"{where}: next_observations must have as many columns as observations, got {len(following)} and "
            f"{len(observations)}; name them in the same order"
        )
    forms = ("next_{}", "{}_next", "next.{}", "next {}", "{}.next", "{} next", "{}_tp1", "next{}")
    pairs = {name: [form.format(name) for form in forms if form.format(name) in following] for name in observations}
    if all(len(matches) == 1 for matches in pairs.values()):
        return [matches[0] for matches in pairs.values()]
    return following


# -------------------------------------------------------------------------------------------------- reading them


def read_selected(
    selection: Selection,
    read: Callable[[str], np.ndarray],
    where: str,
    element_names: Callable[[str], Sequence[str] | None] | None = None,
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """The arrays of each field, and the names of the columns of those that are matrices.

    element_names: what a column that holds several numbers a row calls them
    """
    arrays: dict[str, Any] = {}
    labels: dict[str, tuple[str, ...]] = {}
    for field, columns in selection.fields.items():
        if field not in MATRICES:
            arrays[field] = read(columns[0])
            if field == "rewards":
                labels[field] = (columns[0],)
            continue
        whole = read(columns[0]) if len(columns) == 1 else None
        if whole is not None and (np.ndim(whole) == 1 and (field == "actions" or field in selection.guessed)):
            arrays[field] = whole  # a single column of actions may hold choices: its type says so
            labels[field] = (columns[0],)
            continue
        if whole is not None and field in selection.guessed and not (element_names and element_names(columns[0])):
            arrays[field] = whole  # one array under its usual name: its columns have no names
            continue
        parts = [_as_matrix(read(name), name, where) for name in columns]
        if len({len(part) for part in parts}) != 1:
            sizes = shown([f"{name} {len(part)}" for name, part in zip(columns, parts, strict=True)])
            raise BadInput(f"{where}: the columns of {field} must be equally long, got rows: {sizes}; correct the file")
        inner = [_elements(name, part.shape[1], element_names) for name, part in zip(columns, parts, strict=True)]
        labels[field] = tuple(label for names in inner for label in names)
        arrays[field] = np.concatenate(parts, axis=1)
    return arrays, labels


def _elements(name: str, width: int, element_names: Callable[[str], Sequence[str] | None] | None) -> list[str]:
    inner = element_names(name) if element_names else None
    if inner is not None and len(inner) == width:
        return [f"{name}.{label}" for label in inner]
    return [name] if width == 1 else [f"{name}_{number}" for number in range(width)]


def _as_matrix(values: Any, name: str, where: str) -> np.ndarray:
    """[rows, columns] of a column of numbers, as float32 where that loses nothing that training would keep."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        _refuse_text(array, name, where)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise BadInput(
            f"{where}: {name} must be a number or a list of numbers a row, got shape {list(array.shape)}; encode "
            f"images first, or leave them out (--drop {name})"
        )
    return array


def _refuse_text(array: np.ndarray, name: str, where: str) -> NoReturn:
    """Say what to do about a column that holds no numbers."""
    if array.dtype.kind == "M":
        raise BadInput(f"{where}: {name} holds times; write them as seconds, or leave the column out (--drop {name})")
    for row, value in enumerate(array.reshape(-1)[:TEXT_ROWS].tolist()):
        try:
            float(value)
        except (TypeError, ValueError) as error:
            text = repr(str(value)[:30])
            raise BadInput(
                f"{where}: {name}, row {row}: must be a number, got {text}; write numbers instead (one column of 0 and "
                f"1 for each choice), or leave the column out (--drop {name})"
            ) from error
    raise BadInput(f"{where}: {name} holds {array.dtype}; it must hold numbers")


def carried(text: Any, where: str) -> Meta | None:
    """The description that winnow put in a file it exported; None for other files."""
    if text is None:
        return None
    try:
        return Meta.from_json(text.decode() if isinstance(text, bytes) else str(text))
    except (ValueError, TypeError) as error:
        raise BadInput(f"{where}: its description by winnow is damaged ({error}); export it again") from error
