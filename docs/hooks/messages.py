"""Every message of bad input that the source holds, read from its syntax tree: none can be missing.

A message is the text given to `BadInput`, or to a kind of it. What is filled in when it is raised shows as a word in
capitals where the code has a name for it, and as … elsewhere.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from winnow.errors import install_hint

SOURCE = Path(__file__).parent.parent.parent / "src" / "winnow"


class Message(NamedTuple):
    module: str  # data/arrays.py
    text: str


def listed(words: str) -> str:
    """The messages of modules and folders of the package, as a list."""
    some = sorted({one.text for one in collect() for place in words.split() if covers(place, one.module)})
    if not some:
        raise KeyError(f"messages {words}")
    return "\n".join(f"- {_code(text)}" for text in some)


def covers(place: str, module: str) -> bool:
    """Whether a word of a page (`data/`, `samplers.py`) names a module."""
    return module.startswith(place) if place.endswith("/") else module == place


@functools.cache
def collect() -> list[Message]:
    """All messages, in the order of files and lines."""
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(SOURCE.rglob("*.py"))}
    kinds = {"BadInput"} | {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "BadInput" for base in node.bases)
    }
    found = []
    for file, tree in trees.items():
        helpers = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node.func) in kinds and node.args:
                where = file.relative_to(SOURCE).as_posix()
                found += [Message(where, text) for text in _texts(node.args[0], helpers)]
    return found


def _texts(node: ast.expr, helpers: dict[str, ast.FunctionDef]) -> Iterator[str]:
    """The templates that an argument can become. One that only passes another message on has none of its own."""
    if isinstance(node, ast.IfExp):
        yield from _texts(node.body, helpers)
        yield from _texts(node.orelse, helpers)
    elif isinstance(node, ast.Call) and _name(node.func) in helpers:
        parts = [one for one in ast.walk(helpers[_name(node.func)]) if isinstance(one, ast.JoinedStr)]
        for one in [*node.args, *parts]:
            if isinstance(one, ast.JoinedStr):
                yield template(one)
    elif isinstance(node, ast.Call):  # lines that are joined
        yield from (template(one) for one in ast.walk(node) if isinstance(one, ast.JoinedStr))
    elif isinstance(node, (ast.JoinedStr, ast.Constant, ast.BinOp)):
        yield template(node)


def template(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            text = ""
            for part in parts:
                more = template(part)
                # A name that would run into what stands before it says nothing.
                text += "…" if isinstance(part, ast.FormattedValue) and text[-1:].isalpha() else more
            return text
        case ast.BinOp(left=left, right=right):
            return template(left) + template(right)
        case ast.FormattedValue(
            value=ast.Call(func=ast.Name(id="install_hint"), args=[ast.Constant(value=str(extra))])
        ):
            return install_hint(extra)
        case ast.FormattedValue(value=value):
            return _placeholder(value)
    return _placeholder(node)


def _placeholder(node: ast.expr) -> str:
    """path → PATH, dataset.meta.name → NAME, an error → REASON, anything longer → …"""
    name = _name(node).strip("_")
    return "REASON" if name in ("error", "strerror") else name.upper() if len(name) > 1 else "…"


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _code(text: str) -> str:
    text = " ".join(text.split())
    return f"`` {text} ``" if "`" in text else f"`{text}`"
