"""The API reference: signatures and docstrings of public names, as they stand in the code."""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from typing import Any

from settings import cell
from source import EXAMPLES, attribute_docs, named

PROPERTIES = (property, functools.cached_property)
WIDTH = 76
"""Columns of a signature on one line."""


def names(words: str) -> str:
    """`winnow train Dataset`: these names of the package, or of the module that comes first."""
    module, *some = words.split()
    return "\n\n".join(entry(module, name) for name in some)


def entry(module: str, name: str) -> str:
    """One public name: a heading, how it is called, what it says of itself, its fields and its own methods."""
    thing = named(f"{module}.{name}")
    parts = [f"### {name} {{ #{module}.{name} data-toc-label='{name}' }}"]
    parts.append(f"```python\n{_signature(thing, name)}\n```")
    parts.append(prose(inspect.getdoc(thing) if _speaks(thing) else ""))
    if inspect.isclass(thing):
        parts += [_fields(thing), *(_method(thing, one) for one in _own(thing))]
    return "\n\n".join(part for part in parts if part)


def prose(text: str | None) -> str:
    """A docstring as Markdown: equations, examples and indented lines as code, `name: what` lines as a list."""
    out = []
    for part in re.split(r"\n\s*\n", (text or "").strip("\n")):
        lines = part.splitlines()
        if lines[:1] == [EXAMPLES]:
            code = textwrap.dedent("\n".join(lines[1:]))
            out.append(f"```python\n{code}\n```")
        elif all(line.startswith("    ") for line in lines):
            out.append(part)
        elif _is_equation(part):
            out.append(textwrap.indent(part, "    "))
        elif len(re.findall(r"^\w+: ", part, re.MULTILINE)) > 1 and re.match(r"\w+: ", part):
            out.append("\n".join(re.sub(r"^(\w+): ", r"- `\1`: ", line) for line in lines))
        else:
            out.append(part)
    return re.sub(r"`?\bdocs/([\w/-]+\.md)`?", r"[\1](\1)", "\n\n".join(out))


def _is_equation(part: str) -> bool:
    text = part.rstrip()
    return "\n" not in text and text[-1:] not in ".:;" and bool(re.search(r"[=∝]|:  ", text))


def _speaks(thing: Any) -> bool:
    """Whether the docstring is its own: a dataclass without one repeats its signature."""
    return not (inspect.isclass(thing) and (thing.__doc__ or "").startswith(f"{thing.__name__}("))


def _signature(thing: Any, name: str) -> str:
    if not callable(thing):
        return f"{name} = {thing!r}"
    try:
        said = inspect.signature(thing)
    except ValueError:
        return name
    hidden = [one for one in said.parameters.values() if one.name != "self"]
    said = said.replace(parameters=hidden)
    if inspect.isclass(thing):
        said = said.replace(return_annotation=inspect.Signature.empty)
    line = f"{name}{_plain(said)}"
    if len(line) <= WIDTH:
        return line
    head, _, tail = line.partition("(")
    inside, _, end = tail.rpartition(")")
    return f"{head}(\n" + "".join(f"    {one},\n" for one in _split(inside)) + f"){end}"


def _plain(said: inspect.Signature) -> str:
    """Annotations are strings in this code and would be shown in quotes; functions and classes are shown by name."""
    text = re.sub(r"""ForwardRef\((['"])(.*?)\1\)""", r"\2", str(said).replace("typing.", ""))
    text = re.sub(r"""(: |-> )(?:'([^']*)'|"([^"]*)")""", lambda m: f"{m[1]}{m[2] or m[3]}", text)
    return re.sub(r"<(?:function|class) '?([\w.]+)'?[^>]*>", r"\1", text)


def _split(inside: str) -> list[str]:
    """Parameters at their commas, not at those inside brackets."""
    parts, depth = [""], 0
    for letter in inside:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _fields(kind: type) -> str:
    said = attribute_docs(kind) if kind.__module__.startswith("winnow") else {}
    rows = [f"| `{name}` | {cell(text)} |" for name, text in said.items() if text and not name.isupper()]
    return "\n".join(["| field | |", "|---|---|", *rows]) if rows else ""


def _own(kind: type) -> list[str]:
    """Public methods and properties that a class defines itself and says something of."""
    return [
        name
        for name, one in vars(kind).items()
        if not name.startswith("_")
        and (inspect.isfunction(one) or isinstance(one, (classmethod, staticmethod, *PROPERTIES)))
        and inspect.getdoc(getattr(kind, name))
    ]


def _method(kind: type, name: str) -> str:
    raw = vars(kind)[name]
    said = inspect.getdoc(raw if isinstance(raw, PROPERTIES) else getattr(kind, name)) or ""
    head = f"`.{name}`" if isinstance(raw, PROPERTIES) else f"`.{_signature(getattr(kind, name), name)}`"
    body = textwrap.indent(prose(said), "    ")
    return f"- {' '.join(head.split())}\n\n{body}"
