"""Print an experiment's tables: what `python -m experiments.NAME` does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from winnow.errors import BadInput, run_script


def print_tables(tables: Mapping[str, Callable[[], str]]) -> None:
    """Print all tables, or those that the command line names."""

    def main() -> None:
        names = sys.argv[1:] or list(tables)
        if unknown := [name for name in names if name not in tables]:
            raise BadInput(f"a table must be one of {', '.join(tables)}, got {unknown[0]}")
        for name in names:
            print(f"## {name}\n\n{tables[name]()}\n")

    run_script(main)
