"""Print the tables of docs/speed.md: all, or those that are named."""

from __future__ import annotations

from experiments.printing import print_tables
from experiments.speed.tables import TABLES

if __name__ == "__main__":
    print_tables(TABLES)
