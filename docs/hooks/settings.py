"""Tables of settings from the dataclasses that hold them, and of the methods that combine them."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, Literal

from source import attribute_docs, named


def table(path: str) -> str:
    """Name, default, allowed values and meaning of every field, and the presets if there are any."""
    kind = named(path)
    lines = settings(kind)
    if not lines:
        return "It has no settings."
    rows = ["| setting | default | allowed | what it does |", "|---|---|---|---|"]
    rows += [f"| `{name}` | {default} | {allowed} | {cell(doc)} |" for name, default, allowed, doc in lines]
    presets = getattr(kind, "PRESETS", {})
    if presets:
        rows += ["", "Presets for the environments of", ""]
        rows += [
            f"- **{domain}**: " + ", ".join(f"`{k}` {v}" for k, v in preset.items())
            for domain, preset in presets.items()
        ]
    return "\n".join(rows)


def settings(kind: Any) -> list[tuple[str, str, str, str]]:
    hints = typing.get_type_hints(kind)
    docs = attribute_docs(kind)
    return [
        (field.name, _default(field.default), _allowed(field, hints[field.name]), docs[field.name])
        for field in dataclasses.fields(kind)
    ]


def methods(_: str) -> str:
    """Every method by name, with its sampler and weighter."""
    from winnow.methods import METHODS

    rows = [
        f"| `{name}` | [{sampler}](samplers.md#{sampler}) | [{weighter}](weighters/{weighter}.md) |"
        for name, (sampler, weighter) in METHODS.items()
    ]
    return "\n".join(
        ["| method | sampler: how often a row is drawn | weighter: how much it counts |", "|---|---|---|", *rows]
    )


def cell(text: str) -> str:
    """Text inside a table."""
    return text.replace("|", "\\|")


def _default(value: Any) -> str:
    if value == "":
        return ""
    return f"`{' '.join(map(str, value))}`" if isinstance(value, tuple) else f"`{value}`"


def _allowed(field: Any, kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(kind))
    low, high, above, below = (field.metadata.get(name) for name in ("low", "high", "above", "below"))
    if low is not None and high is not None:
        return f"{low} to {high}"
    ends = {"≥": low, ">": above, "≤": high, "<": below}
    if limits := [f"{sign} {end}" for sign, end in ends.items() if end is not None and end != float("inf")]:
        return ", ".join(limits)
    type_words = {bool: "yes or no", str: "text", int: "a whole number", float: "a number", tuple: "whole numbers"}
    return type_words[typing.get_origin(kind) or kind]
