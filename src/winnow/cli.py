"""The command line: finds the command, imports it and nothing else, and turns bad input into a line and exit code 2.

Each command is a function in `winnow.commands` whose typed arguments and docstring are its options and its help.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple


class Command(NamedTuple):
    module: str
    function: str
    summary: str
    parses: bool = False  # takes its own words (argv, prog): its options depend on the words themselves


COMMANDS = {
    "data make": Command("data", "make", "make or fetch a dataset by name: hopper-random-expert-5%, hopper-medium-v2"),
    "data list": Command("data", "list_", "the benchmark's 113 datasets and what is on disk"),
    "data import": Command("data", "import_", "read a D4RL, Minari, npz or Parquet dataset into one flat file"),
    "data export": Command("data", "export", "write a dataset as D4RL HDF5, Minari, npz or Parquet"),
    "data mix": Command("data", "mix", "make an imbalanced set from a good and a bad source"),
    "data split": Command("split", "split", "hold whole episodes out of a dataset, to judge policies by"),
    "inspect": Command("inspect", "inspect", "how imbalanced a dataset is and what fits it; with --html as a page"),
    "train": Command("train", "train", "train policies and weights, many runs in one program", parses=True),
    "evaluate": Command("evaluate", "evaluate", "play trained policies in their environment: returns, scores, a film"),
    "ope": Command("ope", "ope", "what trained policies are worth by held-out episodes, without an environment"),
    "tune": Command("tune", "tune", "choose a method and its settings by held-out episodes, in a few packed runs"),
    "collect train": Command("collect", "train", "train behaviour policies online with SAC", parses=True),
    "bench run": Command("bench", "run", "train and play a grid: datasets, algorithms, methods, seeds", parses=True),
    "bench list": Command("bench", "list_", "the suites and studies there are, what each asks and how many runs it is"),
    "bench pack": Command("bench", "pack", "put a grid's thousands of result files into one compressed file"),
    "report": Command("report", "report", "what a folder of results says: a page with figures, or tables"),
    "weights": Command("weights", "weights", "write the learned weight of every row, and a picture of them"),
    "fourrooms": Command("fourrooms", "fourrooms", "which weights join pieces of episodes, where the answer is known"),
    "export": Command("export", "export", "write a policy to deploy: ONNX, PyTorch or plain arrays, without winnow"),
    "demo": Command("demo", "demo", "uniform, AW and DW side by side on a small imbalanced problem"),
    "completion": Command("completion", "completion", "a script with which bash completes commands and options"),
}

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
    command, rest = COMMANDS[name], words[len(name.split()) :]
    from winnow.errors import BadInput, out_of_memory

    try:
        target = getattr(importlib.import_module(f"winnow.commands.{command.module}"), command.function)
        if command.parses:
            target(rest, f"winnow {name}")
        else:
            import tyro

            tyro.cli(target, args=rest, prog=f"winnow {name}")
    except BadInput as error:
        # Names in it may come from a file: a terminal must not obey them.
        said = "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in str(error))
        print(f"winnow {name}: {said}", file=sys.stderr)
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


def _about_the_disk(error: OSError) -> str:
    what = f"{error.filename or 'a file'}: can't be read or written ({error.strerror})"
    return f"{what}; make room or choose another place, then give the same words again"


def _about_memory(error: Exception) -> str:
    said = str(error).removeprefix("RESOURCE_EXHAUSTED: ").partition("\n")[0].rstrip(". ")
    what = f"there is no memory left for this, on the device or on the machine ({said or type(error).__name__})"
    return f"{what}; see what else uses it (nvidia-smi shows a GPU's), or take fewer runs or smaller batches at a time"


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}   {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join([HEAD, *lines])


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
