"""The API reference: signatures and docstrings of public names, read from the code."""

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


def names(line: str) -> str:
    """Entries for the names of a line such as `winnow train Dataset`: a module and its public names."""
    module, *public_names = line.split()
    return "\n\n".join(entry(module, name) for name in public_names)


def entry(module: str, name: str) -> str:
    """One public name: a heading, its signature, its docstring, its fields and its own methods."""
    thing = named(f"{module}.{name}")
    parts = [f"### {name} {{ #{module}.{name} data-toc-label='{name}' }}"]
    parts.append(f"```python\n{_signature(thing, name)}\n```")
    parts.append(prose(inspect.getdoc(thing) if _has_docstring(thing) else ""))
    if inspect.isclass(thing):
        parts += [_fields(thing), *(_method(thing, method) for method in _own_members(thing))]
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


def _has_docstring(thing: Any) -> bool:
    """Whether it has its own docstring. That of a dataclass without one only repeats its signature."""
    return not (inspect.isclass(thing) and (thing.__doc__ or "").startswith(f"{thing.__name__}("))


def _signature(thing: Any, name: str) -> str:
    if not callable(thing):
        return f"{name} = {thing!r}"
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return name
    hidden = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    signature = signature.replace(parameters=hidden)
    if inspect.isclass(thing):
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    line = f"{name}{_plain(signature)}"
    if len(line) <= WIDTH:
        return line
    head, _, tail = line.partition("(")
    inside, _, end = tail.rpartition(")")
    return f"{head}(\n" + "".join(f"    {part},\n" for part in _split(inside)) + f"){end}"


def _plain(signature: inspect.Signature) -> str:
    """The signature without quotes around annotations; functions and classes are shown by name."""
    text = re.sub(r"""ForwardRef\((['"])(.*?)\1\)""", r"\2", str(signature).replace("typing.", ""))
    text = re.sub(r"""(: |-> )(?:'([^']*)'|"([^"]*)")""", lambda m: f"{m[1]}{m[2] or m[3]}", text)
    return re.sub(r"<(?:function|class) '?([\w.]+)'?[^>]*>", r"\1", text)


def _split(inside: str) -> list[str]:
    """Split parameters at commas outside of brackets."""
    parts = [""]
    depth = 0
    for letter in inside:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _fields(kind: type) -> str:
    docs = attribute_docs(kind) if kind.__module__.startswith("winnow") else {}
    rows = [f"| `{name}` | {cell(text)} |" for name, text in docs.items() if text and not name.isupper()]
    return "\n".join(["| field | |", "|---|---|", *rows]) if rows else ""


def _own_members(kind: type) -> list[str]:
    """Public methods and properties with docstrings that a class defines itself."""
    return [
        name
        for name, member in vars(kind).items()
        if not name.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, (classmethod, staticmethod, *PROPERTIES)))
        and inspect.getdoc(getattr(kind, name))
    ]


def _method(kind: type, name: str) -> str:
    raw = vars(kind)[name]
    doc = inspect.getdoc(raw if isinstance(raw, PROPERTIES) else getattr(kind, name)) or ""
    head = f"`.{name}`" if isinstance(raw, PROPERTIES) else f"`.{_signature(getattr(kind, name), name)}`"
    body = textwrap.indent(prose(doc), "    ")
    return f"- {' '.join(head.split())}\n\n{body}"
