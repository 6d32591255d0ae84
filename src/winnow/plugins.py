"""Plug-ins as plain records, and back: how run files, results and checkpoints store them."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from winnow.algorithms import ALGORITHMS
from winnow.errors import BadInput
from winnow.samplers import SAMPLERS
from winnow.types import check_settings
from winnow.weighters import WEIGHTERS

MAX_LAYERS = 100
MAX_WIDTH = 1_000_000
MAX_NUMBER = 1e30
"""Larger networks and settings are taken for damaged records."""


def record(config: Any) -> dict[str, Any]:
    """A plug-in as plain JSON: its registered name and its settings."""
    kinds = {kind: name for table in (ALGORITHMS, WEIGHTERS, SAMPLERS) for name, kind in table.items()}
    if type(config) not in kinds:
        raise BadInput(
            f"{type(config).__name__} is not registered; add it to ALGORITHMS, WEIGHTERS or SAMPLERS by name"
        )
    return {"name": kinds[type(config)]} | {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}


EARLIER: dict[str, dict[str, Any]] = {
    **{name: {"initialisation": "he"} for name in ("bc", "iql", "cql", "td3bc")},
    "density": {"initialisation": "he", "reward_scaling": "min-max", "standardise": True},
}
"""Values of settings that earlier records do not have."""


def from_record(saved: dict[str, Any], table: dict[str, type]) -> Any:
    """The plug-in of a record; a KeyError or a TypeError if the record is not a plug-in's."""
    settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()}
    name = settings.pop("name")
    made = table[name](**EARLIER.get(name, {}) | settings)
    kinds = typing.get_type_hints(type(made))
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        if not _fits(value, kinds[field.name]):
            raise TypeError(f"{field.name} is {str(value)[:60]!r}")
    try:
        check_settings(made, str(saved["name"]))
    except BadInput as error:
        raise TypeError(str(error)) from error
    return made


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a setting's type."""
    if kind is int or (kind is float and type(value) is int):
        return type(value) is int and abs(value) < 2**31
    if kind is float:
        return type(value) is float and abs(value) <= MAX_NUMBER  # so it is finite
    if typing.get_origin(kind) is tuple:
        return (
            isinstance(value, tuple)
            and len(value) <= MAX_LAYERS
            and all(_fits(size, int) and 0 < size <= MAX_WIDTH for size in value)
        )
    if typing.get_origin(kind) is typing.Literal:
        return isinstance(value, str)  # its value is checked with the ranges
    return not isinstance(kind, type) or type(value) is kind
