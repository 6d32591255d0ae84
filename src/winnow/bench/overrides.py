"""A setting of a plug-in as it is written on the command line, in a sweep or in a study: `weighter.lambda_k=0.2,1`."""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from winnow.errors import BadInput


@dataclass(frozen=True)
class Setting:
    """Values of one setting: several where it is swept."""

    family: Literal["algorithm", "sampler", "weighter"]
    field: str
    values: tuple[str, ...]

    @property
    def path(self) -> str:
        """FAMILY.FIELD, as on the command line."""
        return f"{self.family}.{self.field}"

    @classmethod
    def parse(cls, text: str) -> Setting:
        match = re.fullmatch(r"(algorithm|sampler|weighter)\.(\w+)=(.+)", text)
        if not match:
            raise BadInput(f"--sweep must be FAMILY.FIELD=VALUE,…, got {text!r}; write it like weighter.lambda_k=0.2,1")
        family, field, values = match.groups()
        return cls(typing.cast(Any, family), field, tuple(dict.fromkeys(values.split(","))))

    def applied(self, part: Any, text: str) -> tuple[Any, Any]:
        """The plug-in with this value, and the value."""
        value = _value(text, _kinds(type(part))[self.field], f"--sweep {self.path}={text}")
        return dataclasses.replace(part, **{self.field: value}), value


@cache
def _kinds(plugin: type) -> dict[str, Any]:
    return typing.get_type_hints(plugin)


def fields_of(part: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(part))


def _value(text: str, kind: Any, where: str) -> Any:
    """Text from the command line as a value of a setting's type. The sizes of layers are joined with x: 256x256."""
    try:
        if kind is float:
            if not math.isfinite(value := float(text)):
                raise ValueError
            return value
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if typing.get_origin(kind) is tuple:
            return tuple(int(part) for part in text.split("x"))
        return int(text) if kind is int else text  # a choice of names is checked with the ranges
    except (ValueError, KeyError) as error:
        kinds = {float: "a number", bool: "true or false", int: "a whole number"}
        raise BadInput(f"{where}: must be {kinds.get(kind, 'whole numbers joined with x, like 256x256')}") from error


def as_text(value: Any) -> str:
    """A value as `_value` reads it."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
