"""The command line: finds the command, imports it and nothing else, and turns bad input into a line and exit code 2.

Each command is a function in `winnow.commands` whose typed arguments and docstring are its options and its help.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from winnow.commands.table import COMMANDS, COMMON, Command, epilogue

DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO}
"""Errors of a disk that is full, locked or broken."""

HEAD = """winnow: learn which transitions of an offline RL dataset are worth staying close to

usage: winnow COMMAND [OPTIONS]      winnow COMMAND --help for a command's options
"""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["--version"]:
        from winnow import __version__

        print(f"winnow {__version__}")
        return 0
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    name = next((n for n in (" ".join(arguments[:2]), arguments[0]) if n in COMMANDS), None)
    if name is None:
        return _unknown(arguments)
    from winnow.errors import BadInput, out_of_memory

    try:
        _run(name, arguments[len(name.split()) :])
    except BadInput as error:
        # Names in it may come from a file: no control characters may reach the terminal.
        message = "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in str(error))
        print(f"winnow {name}: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"winnow {name}: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno not in DISK:
            raise
        print(f"winnow {name}: {_about_the_disk(error)}", file=sys.stderr)
        return 2
    except Exception as error:
        if not out_of_memory(error):
            raise
        print(f"winnow {name}: {_about_memory(error)}", file=sys.stderr)
        return 2
    return 0


def _run(name: str, given: list[str]) -> None:
    """Import the command, take the options that all commands have, and call it."""
    command = COMMANDS[name]
    module = importlib.import_module(f"winnow.commands.{command.module}")
    function = getattr(module, command.function)
    arguments, is_quiet, files = _common(given)
    for path in files:
        arguments, wants_quiet = _with_config(path, arguments, command, module)
        is_quiet = is_quiet or wants_quiet
    from winnow.commands._shared import quiet

    with quiet(is_quiet and not {"-h", "--help"} & set(arguments)):
        if command.parses:
            function(arguments, f"winnow {name}")
            return
        import inspect

        import tyro

        about = (inspect.getdoc(function) or "").partition("\nArgs:")[0].rstrip()
        tyro.cli(function, args=arguments, prog=f"winnow {name}", description=f"{about}\n{epilogue(name)}")


def _common(arguments: Sequence[str]) -> tuple[list[str], bool, list[str]]:
    """The words without the options that all commands have, whether to be quiet, and files of options."""
    from winnow.errors import BadInput

    rest: list[str] = []
    files: list[str] = []
    is_quiet = False
    remaining = iter(arguments)
    for word in remaining:
        if word == "--quiet":
            is_quiet = True
        elif word == "--config":
            path = next(remaining, None)
            if path is None:
                raise BadInput("--config must be followed by a file, say --config train.toml")
            files.append(path)
        elif word.startswith("--config="):
            files.append(word.partition("=")[2])
        else:
            rest.append(word)
    return rest, is_quiet, files


def _with_config(path: str, arguments: list[str], command: Command, module: Any) -> tuple[list[str], bool]:
    """The words with the options of a file added, and whether the file asks to be quiet."""
    from pathlib import Path

    from winnow.commands import config

    asked = config.read(Path(path))
    is_quiet = asked.pop("quiet", False) is True
    if command.parses:
        options = module.options(arguments, asked)
    else:
        options = config.options_of(getattr(module, command.function))
    return config.expanded(Path(path), asked, arguments, options), is_quiet


def _about_the_disk(error: OSError) -> str:
    what = f"{error.filename or 'a file'}: can't be read or written ({error.strerror})"
    return f"{what}; make room or choose another folder, then run the same command again"


def _about_memory(error: Exception) -> str:
    reason = str(error).removeprefix("RESOURCE_EXHAUSTED: ").partition("\n")[0].rstrip(". ")
    problem = f"the device or the machine ran out of memory ({reason or type(error).__name__})"
    return f"{problem}; stop what else uses it (nvidia-smi shows a GPU's memory), or use fewer runs or smaller batches"


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}   {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join([HEAD, *lines, COMMON.rstrip()])


def _unknown(arguments: list[str]) -> int:
    import difflib

    group = [name for name in COMMANDS if name.split()[0] == arguments[0]]
    if group:  # the first word of a two-word command: show that group
        asked = arguments[1:2]
        print(f"winnow {arguments[0]} takes one of: {', '.join(n.split()[1] for n in group)}", file=sys.stderr)
        return 0 if asked in (["-h"], ["--help"]) else 2
    near = difflib.get_close_matches(arguments[0], [n.split()[0] for n in COMMANDS], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    print(f"winnow: there is no command {arguments[0]!r}{hint}\n\n{overview()}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
