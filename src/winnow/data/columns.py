"""Columns by their usual names: what every opener hands on, and what an exported file says of itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from winnow.data.choices import Actions
from winnow.data.dataset import Meta, Side
from winnow.errors import BadInput

Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is."""

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
NUMBERED = re.compile(r"(.+)[._](\d+)")
OWN_COLUMNS = ("step", "seed", "origin", "source_row", "source_episode")
"""Columns with a meaning of winnow's own: read only from files that it exported."""


@dataclass
class Found:
    """What an opener found in a file."""

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
    actions: Actions = Actions()
    """What the file says about its actions."""


def gather(names: Iterable[str], read: Callable[[str], np.ndarray], where: str, own: bool = False) -> dict[str, Any]:
    """The columns winnow knows, out of those a file has. Numbered ones (obs_0, obs_1, …) are put side by side."""
    names = [str(name) for name in names]
    wanted = ALIASES | ({name: (name,) for name in OWN_COLUMNS} if own else {})
    numbered: dict[str, dict[int, str]] = {}
    for name in names:
        if name not in sum(wanted.values(), ()) and (match := NUMBERED.fullmatch(name)):
            numbered.setdefault(match[1], {})[int(match[2])] = name
    columns = {}
    for field_name, aliases in wanted.items():
        whole, split = [a for a in aliases if a in names], [a for a in aliases if a in numbered]
        if len(whole) + len(split) > 1:
            both = " and ".join(f"`{name}`" for name in [*whole, *(f"{name}_…" for name in split)])
            raise BadInput(f"{where}: {both} both give {field_name}; keep one of them")
        if whole:
            columns[field_name] = read(whole[0])
        elif split:
            columns[field_name] = _side_by_side(numbered[split[0]], read, split[0], where)
    return columns


def _side_by_side(parts: dict[int, str], read: Callable[[str], np.ndarray], name: str, where: str) -> np.ndarray:
    first = min(parts)
    for number in range(first, first + len(parts)):
        if number not in parts:
            raise BadInput(f"{where}: {name}: number {number} is missing between {', '.join(parts.values())}; add it")
    arrays = [np.asarray(read(parts[number])) for number in sorted(parts)]
    if len({array.shape for array in arrays}) != 1 or arrays[0].ndim != 1:
        raise BadInput(f"{where}: {', '.join(parts.values())} must each be one number a row and equally long")
    return np.stack(arrays, axis=1)


def carried(text: Any, where: str) -> Meta | None:
    """The description that winnow put in a file it exported; None for other files."""
    if text is None:
        return None
    try:
        return Meta.from_json(text.decode() if isinstance(text, bytes) else str(text))
    except (ValueError, TypeError) as error:
        raise BadInput(f"{where}: its description by winnow is damaged ({error}); export it again") from error
