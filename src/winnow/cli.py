"""The command line: finds the command, imports it and nothing else, and turns bad input into a line and exit code 2.

Each command is a function in `winnow.commands` whose typed arguments and docstring are its options and its help.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple


class Command(NamedTuple):
    module: str
    function: str
    summary: str
    example: str
    """One line that does what most people want of the command."""
    parses: bool = False
    """Whether the function parses the command line itself (argv, prog), because its options depend on it."""


COMMANDS = {
    "data make": Command(
        "data",
        "make",
        "make or fetch a dataset by name: hopper-random-expert-5%, hopper-medium-v2",
        "winnow data make hopper-random-expert-5%",
    ),
    "data list": Command("data", "list_", "the benchmark's 113 datasets and what is on disk", "winnow data list mixed"),
    "data import": Command(
        "data",
        "import_",
        "read a D4RL, Minari, npz or Parquet dataset into one flat file",
        "winnow data import log.csv --out log.safetensors",
    ),
    "data export": Command(
        "data",
        "export",
        "write a dataset as D4RL HDF5, Minari, npz or Parquet",
        "winnow data export log.safetensors --to log.parquet",
    ),
    "data mix": Command(
        "data",
        "mix",
        "make an imbalanced set from a good and a bad source",
        "winnow data mix --low poor=poor.npz --high good=good.npz --share 0.05 --out mixed.safetensors",
    ),
    "data split": Command(
        "split",
        "split",
        "hold whole episodes out of a dataset, to judge policies by",
        "winnow data split log.safetensors --share 0.2",
    ),
    "inspect": Command(
        "inspect",
        "inspect",
        "how imbalanced a dataset is and what fits it; with --html as a page",
        "winnow inspect log.safetensors --html log.html",
    ),
    "train": Command(
        "train",
        "train",
        "train policies and weights, many runs in one program",
        "winnow train log.train.safetensors --out runs --method uniform,aw --steps 20000",
        parses=True,
    ),
    "evaluate": Command(
        "evaluate",
        "evaluate",
        "play trained policies in their environment: returns, scores, a film",
        "winnow evaluate runs --episodes 20",
    ),
    "ope": Command(
        "ope",
        "ope",
        "what trained policies are worth by held-out episodes, without an environment",
        "winnow ope runs --out values.csv",
    ),
    "tune": Command(
        "tune",
        "tune",
        "choose a method and its settings by held-out episodes, in a few packed runs",
        "winnow tune log.safetensors --out tuning",
    ),
    "collect train": Command(
        "collect",
        "train",
        "train behaviour policies online with SAC",
        "winnow collect train --env hopper --until expert --out collected",
        parses=True,
    ),
    "bench run": Command(
        "bench",
        "run",
        "train and play a grid of datasets, algorithms, methods and seeds",
        "winnow bench run mixed --out grid --methods uniform,aw --dry-run",
        parses=True,
    ),
    "bench list": Command(
        "bench",
        "list_",
        "the suites and studies there are, what each asks and how many runs it is",
        "winnow bench list",
    ),
    "bench pack": Command(
        "bench",
        "pack",
        "put a grid's thousands of result files into one compressed file",
        "winnow bench pack grid",
    ),
    "report": Command(
        "report",
        "report",
        "what folders of results say: a page with figures, tables, one method against another",
        "winnow report grid --html grid.html",
    ),
    "weights": Command(
        "weights",
        "weights",
        "write the learned weight of every row, and a picture of them",
        "winnow weights runs/log.iql.dw-aw.seed0.safetensors --out weights.parquet",
    ),
    "fourrooms": Command(
        "fourrooms",
        "fourrooms",
        "which weights join fragments of episodes, where the answer is known",
        "winnow fourrooms --seeds 3 --out fourrooms",
    ),
    "export": Command(
        "export",
        "export",
        "write a policy to deploy: ONNX, PyTorch or plain arrays, without winnow",
        "winnow export runs/log.iql.aw.seed0.safetensors --onnx policy.onnx",
    ),
    "demo": Command(
        "demo",
        "demo",
        "uniform, AW and DW side by side on a small imbalanced problem",
        "winnow demo --out demo --open",
    ),
    "completion": Command(
        "completion",
        "completion",
        "a script with which bash completes commands and options",
        "source <(winnow completion bash)",
    ),
}

COMMON = """
Every command also takes
  --config FILE.toml   options from a file; those on the command line win
  --quiet              show only errors, warnings, and what --json prints
"""

DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO}
"""What a disk says that is full, locked or broken."""

HEAD = """winnow: learn which transitions of an offline RL dataset are worth staying close to

usage: winnow COMMAND [OPTIONS]      winnow COMMAND --help for a command's options
"""


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--version"]:
        from winnow import __version__

        print(f"winnow {__version__}")
        return 0
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    name = next((n for n in (" ".join(words[:2]), words[0]) if n in COMMANDS), None)
    if name is None:
        return _unknown(words)
    from winnow.errors import BadInput, out_of_memory

    try:
        _run(name, words[len(name.split()) :])
    except BadInput as error:
        # Names in it may come from a file: a terminal must not obey them.
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
    words, is_quiet, files = _common(given)
    for path in files:
        words, wants_quiet = _with_config(path, words, command, module)
        is_quiet = is_quiet or wants_quiet
    from winnow.commands._shared import quiet

    with quiet(is_quiet and not {"-h", "--help"} & set(words)):
        if command.parses:
            function(words, f"winnow {name}")
            return
        import inspect

        import tyro

        about = (inspect.getdoc(function) or "").partition("\nArgs:")[0].rstrip()
        tyro.cli(function, args=words, prog=f"winnow {name}", description=f"{about}\n{epilogue(name)}")


def epilogue(name: str) -> str:
    """What the help of every command ends its description with."""
    return f"\nExample:\n  {COMMANDS[name].example}\n{COMMON}"


def _common(words: Sequence[str]) -> tuple[list[str], bool, list[str]]:
    """The words without the options that all commands have, whether to be quiet, and files of options."""
    from winnow.errors import BadInput

    rest: list[str] = []
    files: list[str] = []
    is_quiet = False
    remaining = iter(words)
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


def _with_config(path: str, words: list[str], command: Command, module: Any) -> tuple[list[str], bool]:
    """The words with the options of a file added, and whether the file asks to be quiet."""
    from pathlib import Path

    from winnow.commands import config

    asked = config.read(Path(path))
    is_quiet = asked.pop("quiet", False) is True
    if command.parses:
        options = module.options(words, asked)
    else:
        options = config.options_of(getattr(module, command.function))
    return config.expanded(Path(path), asked, words, options), is_quiet


def _about_the_disk(error: OSError) -> str:
    what = f"{error.filename or 'a file'}: can't be read or written ({error.strerror})"
    return f"{what}; make room or choose another folder, then run the same command again"


def _about_memory(error: Exception) -> str:
    reason = str(error).removeprefix("RESOURCE_EXHAUSTED: ").partition("\n")[0].rstrip(". ")
    what = f"there is no memory left for this, on the device or on the machine ({reason or type(error).__name__})"
    return f"{what}; see what else uses it (nvidia-smi shows a GPU's), or train fewer runs or smaller batches at a time"


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}   {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join([HEAD, *lines, COMMON.rstrip()])


def _unknown(words: list[str]) -> int:
    import difflib

    group = [name for name in COMMANDS if name.split()[0] == words[0]]
    if group:  # the first word of a two-word command: show that group
        asked = words[1:2]
        print(f"winnow {words[0]} takes one of: {', '.join(n.split()[1] for n in group)}", file=sys.stderr)
        return 0 if asked in (["-h"], ["--help"]) else 2
    near = difflib.get_close_matches(words[0], [n.split()[0] for n in COMMANDS], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    print(f"winnow: there is no command {words[0]!r}{hint}\n\n{overview()}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
