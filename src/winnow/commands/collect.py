"""`winnow collect train`: behaviour policies, trained online."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from winnow.commands import config


def options(arguments: list[str], asked: Mapping[str, Any]) -> config.Options:
    """The options that --config may set."""
    from winnow.collect.run import parser_of

    return config.options_of_parser(parser_of(""))


def train(arguments: list[str], prog: str) -> None:
    """The options are those of `python -m winnow.collect`, which needs no tyro."""
    from winnow.collect import main
    from winnow.system.locks import alone

    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--out", type=Path)
    out = first.parse_known_args(arguments)[0].out
    with alone(out) if out else contextlib.nullcontext():
        main(arguments, prog)
