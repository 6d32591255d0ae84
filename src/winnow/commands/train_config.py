"""`winnow train --write-config FILE.toml`: the options of a command line as a file for `--config`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from winnow.commands.config import toml
from winnow.system.files import write_text

if TYPE_CHECKING:
    from winnow.commands.train import Names, Options

NOT_KEPT = ("json", "write_config", "resume")
"""Options of one call, not of what is trained."""


def write(
    path: Path, options: Options, names: Names, defaults: Mapping[str, Any], settings: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write every option with its line of help. Settings of plug-ins that were not given are comments, since their
    defaults depend on the dataset."""
    lines = ["# Options of `winnow train`. Run: winnow train --config " + path.name, ""]
    lines += [f"method = {toml(names.method.split(','))}"]
    tables = []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            tables.append((field.name, value))
        elif field.name not in NOT_KEPT:
            lines += _lines(type(options), field.name, value, is_set=True)
    for name, value in tables:
        lines += ["", f"[{name}]"]
        for field in dataclasses.fields(value):
            lines += _lines(type(value), field.name, getattr(value, field.name), is_set=True)
    named = {name: value for name, value in names._asdict().items() if name != "method" and value is not None}
    for prefix in [*(name for name in named if name not in defaults), *defaults]:
        default = defaults.get(prefix)
        lines += ["", f"[{prefix}]"]
        lines += [f"name = {toml(named[prefix])}"] if prefix in named else []
        if default is None:
            continue
        for field in dataclasses.fields(default):
            given = settings.get(prefix, {})
            value = given.get(field.name, getattr(default, field.name))
            lines += _lines(type(default), field.name, value, is_set=field.name in given)
    write_text(path, "\n".join(lines) + "\n")


def _lines(kind: type, name: str, value: Any, *, is_set: bool) -> list[str]:
    """One option: its help as a comment, then its value, commented out where it is a default."""
    text = " ".join(_docstrings(kind).get(name, "").split())
    about = [f"# {line}" for line in textwrap.wrap(text, 96)]
    value = list(value) if isinstance(value, tuple) else value
    if value is None:
        return [*about, f"# {name} ="]
    return [*about, f"{'' if is_set else '# '}{name} = {toml(value)}"]


def _docstrings(kind: type) -> dict[str, str]:
    """The docstring under each field of a class, by the field's name."""
    docstrings: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                docstrings[ast.unparse(field.target)] = str(text.value.value)
    return docstrings
