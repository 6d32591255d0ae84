"""The arrays that a Minari dataset's observations and actions are made of, by its spaces or by what is stored.

A dictionary of vectors is put side by side, and a note says in which order. Images and text are refused.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from winnow.data.columns import Columns, matching, shown
from winnow.data.hdf5 import hard_linked
from winnow.data.size_limits import few_columns
from winnow.errors import BadInput

FIELDS = {"observations": "observation_space", "actions": "action_space"}
MAX_DEPTH = 8
"""Groups inside each other, where a dataset does not say its spaces."""
IMAGE_DIMS = 3
"""Dimensions of an image: height, width, channels. Bytes are an image with two."""


class Leaf(NamedTuple):
    """Where an array lies inside an episode, and its space (None where the dataset does not say)."""

    path: tuple[str, ...]
    space: Any = None
    problem: str = ""
    """Why winnow can't read it; nothing where it can."""

    @property
    def key(self) -> str:
        """Its name for the user."""
        return "/".join(part.removeprefix("_index_") for part in self.path[1:]) or self.path[0]

    def column_names(self, width: int) -> list[str]:
        return [self.key] if width == 1 else [f"{self.key}_{number}" for number in range(width)]


def leaves(space: Any, episode: Any, field: str, where: str, choice: Columns) -> list[Leaf]:
    """The arrays of a possibly nested space, in the order of `gymnasium.spaces.flatten`; of observations those that the
    user chose."""
    every = _in_space(space, (field,)) if space is not None else _in_episode(episode, field, where)
    wanted = _chosen(every, choice, where) if field == "observations" else every
    problem = next((leaf for leaf in wanted if leaf.problem), None)
    if problem:
        others = [leaf.key for leaf in every if not leaf.problem and len(leaf.path) > 1]
        instead = (
            f"name other keys: --observations {','.join(others)}" if others else "record them as vectors of numbers"
        )
        advice = (
            instead if field == "observations" else "winnow reads continuous actions (Box) or one choice (Discrete)"
        )
        raise BadInput(f"{where}: {'/'.join(problem.path)} {problem.problem}; {advice}")
    return wanted


def _chosen(every: list[Leaf], choice: Columns, where: str) -> list[Leaf]:
    by_key = {leaf.key: leaf for leaf in every}
    keys = list(by_key)
    if choice.observations:
        wanted = [key for pattern in choice.observations for key in matching(pattern, keys, "observations", where)]
        keys = list(dict.fromkeys(wanted))
    dropped = {key for pattern in choice.drop for key in matching(pattern, list(by_key), "drop", where)}
    left = [by_key[key] for key in keys if key not in dropped]
    if not left:
        raise BadInput(f"{where}: no key of the observation is left; drop fewer of {shown(list(by_key))}")
    return left


def _in_space(space: Any, path: tuple[str, ...]) -> list[Leaf]:
    from gymnasium import spaces

    inside: list[tuple[tuple[str, ...], Any]] = []
    if isinstance(space, spaces.Dict):
        inside = [((*path, *key.split("/")), inner) for key, inner in space.spaces.items()]
    elif isinstance(space, spaces.Tuple):
        inside = [((*path, f"_index_{number}"), inner) for number, inner in enumerate(space.spaces)]
    else:
        return [Leaf(path, space, _problem(space, path))]
    return [leaf for inner_path, inner in inside for leaf in _in_space(inner, inner_path)]


def _problem(space: Any, path: tuple[str, ...]) -> str:
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        return _image(space.shape, space.dtype.itemsize) if path[0] == "observations" else ""
    choices = isinstance(space, spaces.Discrete) if path == ("actions",) else path[0] == "observations"
    if isinstance(space, spaces.MultiBinary):
        return ""
    if choices and isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return ""
    return f"have the space {space}, which winnow does not read"


def _image(shape: tuple[int, ...], bytes_each: int) -> str:
    is_image = len(shape) >= IMAGE_DIMS or (len(shape) == IMAGE_DIMS - 1 and bytes_each == 1)
    return f"holds images (shape {list(shape)}), which winnow does not read" if is_image else ""


def _in_episode(episode: Any, field: str, where: str) -> list[Leaf]:
    every: list[Leaf] = []

    def look(group: Any, path: tuple[str, ...]) -> None:
        node = hard_linked(group, path[-1], where)
        few_columns(len(every), where)  # groups may hold each other, and so themselves
        if not hasattr(node, "keys"):
            is_number = node.dtype.kind in "fiub"
            problem = _image(node.shape[1:], node.dtype.itemsize) if is_number and field == "observations" else ""
            every.append(Leaf(path, problem=problem))
            return
        if len(path) > MAX_DEPTH:
            raise BadInput(f"{where}: {field} lie in more than {MAX_DEPTH} nested groups; flatten them first")
        for key in sorted(node, key=lambda key: (len(key), key) if key.startswith("_index_") else (0, key)):
            look(node, (*path, key))

    look(episode, (field,))
    return every


def flattened(parts: list[tuple[Leaf, int]]) -> str | None:
    """What was put side by side, in one line; None for a plain vector. Each leaf comes with its number of columns."""
    from gymnasium import spaces

    texts = []
    for leaf, width in parts:
        shape = getattr(leaf.space, "shape", None) or ()
        how = ""
        if isinstance(leaf.space, spaces.Discrete | spaces.MultiDiscrete):
            how = " one-hot"
        elif len(shape) > 1 and math.prod(shape) == width:
            how = f" from {' × '.join(map(str, shape))}"
        texts.append(f"{leaf.key} ({width}{how})")
    if len(parts) == 1 and len(parts[0][0].path) == 1 and texts[0].endswith(f"({parts[0][1]})"):
        return None
    return f"observations were flattened, in this order: {shown(texts)}"
