"""Print the tables of docs/evidence.md and its neighbours: all, or those that are named."""

from __future__ import annotations

from experiments.evidence.tables import TABLES
from experiments.printing import print_tables

if __name__ == "__main__":
    print_tables(TABLES)
