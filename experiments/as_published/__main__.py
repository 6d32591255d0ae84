"""Print the tables of this experiment: all of them, or those that are named."""

from __future__ import annotations

from experiments.as_published.tables import TABLES
from experiments.printing import print_tables

if __name__ == "__main__":
    print_tables(TABLES)
