"""Every error message for bad input, read from the syntax tree of the source, so that none can be missing.

A message is the text given to `BadInput` or a subclass. A value that is filled in at run time is shown by its name in
capitals, or as … if the code has no name for it.
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


def listed(line: str) -> str:
    """The messages of modules and folders of the package, as a list. `line` names them, separated by spaces."""
    patterns = line.split()
    texts = sorted({message.text for message in collect() if any(covers(p, message.module) for p in patterns)})
    if not texts:
        raise KeyError(f"messages {line}")
    return "\n".join(f"- {_code(text)}" for text in texts)


def covers(pattern: str, module: str) -> bool:
    """Whether a pattern (`data/`, `samplers.py`) matches a module."""
    return module.startswith(pattern) if pattern.endswith("/") else module == pattern


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
    messages = []
    for file, tree in trees.items():
        helpers = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node.func) in kinds and node.args:
                where = file.relative_to(SOURCE).as_posix()
                messages += [Message(where, text) for text in _texts(node.args[0], helpers)]
    return messages


def _texts(node: ast.expr, helpers: dict[str, ast.FunctionDef]) -> Iterator[str]:
    """The templates that an argument can produce. An argument that only passes on another message has none."""
    if isinstance(node, ast.IfExp):
        yield from _texts(node.body, helpers)
        yield from _texts(node.orelse, helpers)
    elif isinstance(node, ast.Call) and _name(node.func) in helpers:
        inside = [part for part in ast.walk(helpers[_name(node.func)]) if isinstance(part, ast.JoinedStr)]
        for part in [*node.args, *inside]:
            if isinstance(part, ast.JoinedStr):
                yield template(part)
    elif isinstance(node, ast.Call):  # lines that are joined
        yield from (template(part) for part in ast.walk(node) if isinstance(part, ast.JoinedStr))
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
                # A name directly after a letter would be unreadable.
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
