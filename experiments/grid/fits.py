"""What the samplers of grids fit before they draw, fitted ahead: by processes of their own, beside packs that train.

    python experiments/grid/fits.py 1/4 continued,followed DONE hopper ant    the first of four parts

Sets with 1 and 50 % of the good policy, an environment after the other. It waits for pools that others play. A fit is
kept in the data folder, where `winnow bench run` finds it; DONE/hopper.continued.1-of-4 says how long each took.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from winnow.bench.suites import Entry, chosen, entries
from winnow.data.catalogue import on_disk, open_named
from winnow.methods import method
from winnow.system.files import write_text


def fit(entry: Entry, methods: list[str]) -> str:
    """Fit a set's values once its pools are there. How long each took."""
    while on_disk(entry.name) != "ready":
        time.sleep(0.5)
    data, told = open_named(entry.text), []
    for name in methods:
        began = time.monotonic()
        method(name, "iql", entry.rows)[0].probabilities(data)
        told.append(f"{name} {time.monotonic() - began:.1f} s")
    return f"{entry.text}: {', '.join(told)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", help="which part, of how many: 1/4")
    parser.add_argument("methods", help="with commas between them")
    parser.add_argument("done", type=Path, help="a folder, in which each environment that is finished gets a file")
    parser.add_argument("environments", nargs="+")
    parser.add_argument("--rows", type=int, help="a trial with fewer rows")
    words = parser.parse_args()
    methods = words.methods.split(",")
    number, count = map(int, words.part.split("/"))
    for environment in words.environments:
        sets = chosen(entries(["mixed", "diverse"], rows=words.rows), [environment], shares=[1, 50])
        lines = [fit(entry, methods) for entry in sets[number - 1 :: count]]
        write_text(words.done / f"{environment}.{methods[0]}.{number}-of-{count}", "".join(lines))


if __name__ == "__main__":
    main()
