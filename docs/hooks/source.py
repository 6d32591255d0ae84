"""Objects by name, their source code, and documentation that only the source has (docstrings of fields)."""

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
"""The heading of a docstring's examples, which the tests run."""


def named(path: str) -> Any:
    """An object by its full name: winnow.algorithms.iql.IQL.update."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(getattr, parts[count:], thing)
    raise KeyError(path)


def function(paths: str) -> str:
    """The source of functions, as code blocks titled with their files."""
    blocks = []
    for path in paths.split():
        thing = named(path)
        file = Path(inspect.getfile(thing)).name
        module = thing.__module__.replace(".", "/").removesuffix(f"/{file.removesuffix('.py')}")
        code = textwrap.dedent(inspect.getsource(thing)).rstrip()
        blocks.append(f'```python title="src/{module}/{file}"\n{code}\n```')
    return "\n\n".join(blocks)


def examples(_: str) -> str:
    """Every script of `examples/`, with the first line of its docstring."""
    out = []
    for file in sorted((ROOT / "examples").glob("*.py")):
        code = file.read_text(encoding="utf-8")
        tree = ast.parse(code)
        summary = (ast.get_docstring(tree) or "").split("\n")[0]
        body = code.split('"""', 2)[2].lstrip("\n")
        out.append(f"## {file.name}\n\n{summary}\n\n```python\n{body}```")
    return "\n\n".join(out)


def attribute_docs(kind: type) -> dict[str, str]:
    """The string below each field of a class, or the comment beside it; inherited fields first."""
    docs = {}
    for parent in kind.__bases__:
        if dataclasses.is_dataclass(parent):
            docs |= attribute_docs(parent)
    lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    body = ast.parse("\n".join(lines)).body[0].body  # pyright: ignore
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            beside = re.search(r"  # (.*)", lines[(node.end_lineno or 1) - 1])
            below = following.value.value if _is_text(following) else None  # pyright: ignore
            docs[node.target.id] = " ".join((below or (beside[1] if beside else "")).split())
    return docs


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
