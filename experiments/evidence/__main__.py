"""Print the tables of docs/evidence.md and its neighbours: all, or those that are named."""

from __future__ import annotations

import sys

from experiments.evidence.tables import TABLES


def main() -> None:
    names = sys.argv[1:] or list(TABLES)
    if wrong := [name for name in names if name not in TABLES]:
        print(f"a table must be one of {', '.join(TABLES)}, got {wrong[0]}", file=sys.stderr)
        sys.exit(2)
    for name in names:
        print(f"## {name}\n\n{TABLES[name]()}\n")


if __name__ == "__main__":
    main()
