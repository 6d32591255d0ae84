"""Plug-ins as plain records, and back: what run files, results and checkpoints keep of them."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from winnow.algorithms import ALGORITHMS
from winnow.errors import BadInput
from winnow.samplers import SAMPLERS
from winnow.types import check_settings
from winnow.weighters import WEIGHTERS

MOST_LAYERS, WIDEST, LARGEST = 100, 1_000_000, 1e30
"""What no network and no setting goes beyond."""


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
"""What settings were before records had them: a record that lacks one is from then."""


def from_record(saved: dict[str, Any], table: dict[str, type]) -> Any:
    """The plug-in again; a KeyError or a TypeError where the record is not that of one."""
    settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()}
    name = settings.pop("name")
    made = table[name](**EARLIER.get(name, {}) | settings)
    kinds = typing.get_type_hints(type(made))
    for field in dataclasses.fields(made):
        value, kind = getattr(made, field.name), kinds[field.name]
        if not _fits(value, kind):
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
        return type(value) is float and abs(value) <= LARGEST  # so it is a number
    if typing.get_origin(kind) is tuple:
        return (
            isinstance(value, tuple)
            and len(value) <= MOST_LAYERS
            and all(_fits(one, int) and 0 < one <= WIDEST for one in value)
        )
    if typing.get_origin(kind) is typing.Literal:
        return isinstance(value, str)  # which of them is checked with the ranges
    return not isinstance(kind, type) or type(value) is kind
