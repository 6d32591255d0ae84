"""`--config FILE.toml`: options of a command from a file. What stands on the command line wins.

Keys are the names of the command's options without the dashes; `-` and `_` are the same. A table groups options with a
common prefix: `[evaluation]` with `episodes = 5` is `--evaluation.episodes 5`. Arguments without dashes (datasets,
runs, folders) have their names in the help's usage line. `name` in a table is the option of the table's name:
`[algorithm]` with `name = "iql"` is `--algorithm iql`.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import inspect
import tomllib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from winnow.errors import BadInput


class Option(NamedTuple):
    """What the command line may say of one option."""

    values: int | None = 1
    """How many values follow it; None: as many as there are."""
    is_flag: bool = False
    """--name and --no-name."""
    is_repeated: bool = False
    """Given once for each value."""
    is_positional: bool = False
    """An argument without dashes."""


Options = dict[str, Option]


# ------------------------------------------------------------------------------------- what a command takes


def options_of(function: Callable[..., Any]) -> Options:
    """The options of a command that tyro parses, by their names on the command line."""
    hints = typing.get_type_hints(function, include_extras=True)
    options: Options = {}
    for name, parameter in inspect.signature(function).parameters.items():
        options |= _of_field(name, hints[name], parameter.kind is parameter.POSITIONAL_ONLY)
    return options


def options_of_dataclass(kind: type, prefix: str = "") -> Options:
    """The options that a dataclass of settings gives, their names after a prefix."""
    hints = typing.get_type_hints(kind, include_extras=True)
    options: Options = {}
    for field in dataclasses.fields(kind):
        options |= {prefix + name: option for name, option in _of_field(field.name, hints[field.name]).items()}
    return options


def options_of_parser(parser: argparse.ArgumentParser) -> Options:
    """The options of a command that argparse parses."""
    return {
        action.dest.replace("_", "-"): Option(None if action.nargs in ("*", "+") else 1)
        for action in parser._actions
        if action.dest != "help"
    }


def _of_field(name: str, hint: Any, is_positional: bool = False) -> Options:
    notes: tuple[Any, ...] = ()
    if typing.get_origin(hint) is Annotated:
        hint, *rest = typing.get_args(hint)
        notes = tuple(rest)
    renamed = next((note.name for note in notes if getattr(note, "name", None) is not None), None)
    is_positional = is_positional or any("Positional" in repr(note) for note in notes)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        prefix = name.replace("_", "-") if renamed is None else renamed
        return options_of_dataclass(hint, f"{prefix}." if prefix else "")
    is_repeated = any("Append" in repr(note) for note in notes)
    option = Option(_values(hint), hint is bool, is_repeated, is_positional)
    return {name.replace("_", "-"): option}


def _values(hint: Any) -> int | None:
    """How many words an option of this type takes; None: any number."""
    if hint is bool:
        return 0
    origin = typing.get_origin(hint)
    inside = typing.get_args(hint)
    if origin is tuple:
        return None if len(inside) == 2 and inside[1] is ... else len(inside)
    if origin in (typing.Union, types.UnionType):
        return max((_values(part) or 0 for part in inside if part is not type(None)), default=1)
    return 1


# ------------------------------------------------------------------------------------------ what a file says


def read(path: Path) -> dict[str, Any]:
    """The options of a file by their names on the command line, tables made flat."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"--config {path}: can't be read ({error.strerror}); check the name") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"--config {path}: is not TOML ({error}); write lines like steps = 1000") from error
    return _flat(table)


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        name = prefix[:-1] if key == "name" and prefix else prefix + key.replace("_", "-")
        flat |= _flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat


def expanded(path: Path, asked: Mapping[str, Any], given: Sequence[str], options: Options) -> list[str]:
    """The command line that a file and a command line make together."""
    for name in asked:
        if name not in options:
            near = difflib.get_close_matches(name, options, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(options)}"
            raise BadInput(f"--config {path}: the command has no option {name}; {hint}")
    flags, has_arguments = _given(given, options)
    first: list[str] = []
    rest: list[str] = []
    for name, value in asked.items():
        option = options[name]
        if option.is_positional:
            first += [] if has_arguments else _texts(path, name, value)
        elif name not in flags:
            rest += _words(path, name, value, option)
    return [*first, *given, *rest]


def _given(arguments: Sequence[str], options: Options) -> tuple[set[str], bool]:
    """Which options a command line has, and whether it has arguments without dashes."""
    names = set()
    has_arguments = False
    expected: int | None = 0
    for word in arguments:
        if word.startswith("--") and len(word) > 2:
            name, equals, _ = word[2:].partition("=")
            name = positive(name, options)
            names.add(name)
            expected = 0 if equals else options.get(name, Option()).values
        elif expected is None:
            continue
        elif expected:
            expected -= 1
        else:
            has_arguments = True
    return names, has_arguments


def positive(name: str, options: Options) -> str:
    """The name of an option as the table has it: no-json is json, evaluation.no_keep is evaluation.keep."""
    name = name.replace("_", "-")
    *parents, last = name.split(".")
    without = ".".join([*parents, last.removeprefix("no-")])
    return without if name not in options and without in options else name


def _words(path: Path, name: str, value: Any, option: Option) -> list[str]:
    if option.is_flag:
        if not isinstance(value, bool):
            raise BadInput(f"--config {path}: {name} must be true or false, got {value!r}")
        *parents, last = name.split(".")
        return [f"--{name}" if value else "--" + ".".join([*parents, f"no-{last}"])]
    texts = _texts(path, name, value)
    if option.is_repeated:
        return [word for text in texts for word in (f"--{name}", text)]
    if option.values is None or option.values > 1:
        return [f"--{name}", *texts]
    return [f"--{name}", ",".join(texts)]


def _texts(path: Path, name: str, value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for part in value for text in _texts(path, name, part)]
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise BadInput(f"--config {path}: {name} must be a number, a text or a list of these, got {value!r}")
    return [str(value)]


# ------------------------------------------------------------------------------------------- writing a file


def toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(letter if letter.isprintable() else f"\\u{ord(letter):04X}" for letter in text) + '"'
