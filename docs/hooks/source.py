"""Code as it stands: objects by name, their source, and the documentation that only the source holds."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = "Examples:"
"""Begins the last part of a docstring, which the tests run."""


def named(path: str) -> Any:
    """An object by its full name: winnow.algorithms.iql.IQL.update."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(getattr, parts[count:], found)
    raise KeyError(path)


def function(words: str) -> str:
    """Functions in full, as code, with the file they are in."""
    blocks = []
    for path in words.split():
        found = named(path)
        file = Path(inspect.getfile(found)).name
        module = found.__module__.replace(".", "/").removesuffix(f"/{file.removesuffix('.py')}")
        code = textwrap.dedent(inspect.getsource(found)).rstrip()
        blocks.append(f'```python title="src/{module}/{file}"\n{code}\n```')
    return "\n\n".join(blocks)


def examples(words: str) -> str:
    """Every script of `examples/`, with what it says of itself."""
    out = []
    for file in sorted((ROOT / "examples").glob("*.py")):
        code = file.read_text(encoding="utf-8")
        tree = ast.parse(code)
        said = (ast.get_docstring(tree) or "").split("\n")[0]
        body = code.split('"""', 2)[2].lstrip("\n")
        out.append(f"## {file.name}\n\n{said}\n\n```python\n{body}```")
    return "\n\n".join(out)


def attribute_docs(kind: type) -> dict[str, str]:
    """What stands below each field of a class as a string, or beside it as a comment; fields that it has from other
    dataclasses first."""
    found = {}
    for parent in kind.__bases__:
        if dataclasses.is_dataclass(parent):
            found |= attribute_docs(parent)
    lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    body = ast.parse("\n".join(lines)).body[0].body  # pyright: ignore
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            beside = re.search(r"  # (.*)", lines[(node.end_lineno or 1) - 1])
            below = following.value.value if _is_text(following) else None  # pyright: ignore
            found[node.target.id] = " ".join((below or (beside[1] if beside else "")).split())
    return found


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
