"""Fits the networks of samplers in advance, in separate processes, while packs of a grid train.

    python experiments/grid/fits.py 1/4 continued,followed DONE hopper ant    shard 1 of 4

Fits datasets with 1 and 50 % of the good policy, one environment after the other. It waits for pools that other
processes make. Fits are cached in the data folder, where `winnow bench run` finds them; DONE/hopper.continued.1-of-4
says how long each took.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

from winnow.bench.suites import Entry, chosen, entries
from winnow.data.catalogue import on_disk, open_named
from winnow.errors import run_script
from winnow.methods import METHODS, method
from winnow.system.files import write_text

POLL_SECONDS = 0.5


def shard(text: str) -> tuple[int, int]:
    """`1/4`: shard 1 of 4."""
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if not match or int(match[1]) > int(match[2]):
        raise argparse.ArgumentTypeError(f"a shard must be NUMBER/COUNT such as 1/4, got {text}")
    return int(match[1]), int(match[2])


def fit(entry: Entry, methods: list[str]) -> str:
    """Fit a dataset's values as soon as its pools exist. Returns how long each fit took."""
    while on_disk(entry.name) != "ready":
        time.sleep(POLL_SECONDS)
    data = open_named(entry.text)
    times = []
    for name in methods:
        began = time.monotonic()
        method(name, "iql", entry.rows)[0].probabilities(data)
        times.append(f"{name} {time.monotonic() - began:.1f} s")
    return f"{entry.text}: {', '.join(times)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shard", type=shard, help="NUMBER/COUNT: this shard of this many")
    parser.add_argument("methods", help="methods, separated by commas")
    parser.add_argument("done", type=Path, help="a folder that gets a file for each finished environment")
    parser.add_argument("environments", nargs="+")
    parser.add_argument("--rows", type=int, help="rows of each dataset, fewer for a trial")
    args = parser.parse_args()
    methods = args.methods.split(",")
    if unknown := [name for name in methods if name not in METHODS]:
        parser.error(f"a method must be one of {', '.join(METHODS)}, got {unknown[0]}")
    number, count = args.shard
    for environment in args.environments:
        sets = chosen(entries(["mixed", "diverse"], rows=args.rows), [environment], shares=[1, 50])
        lines = [fit(entry, methods) for entry in sets[number - 1 :: count]]
        write_text(args.done / f"{environment}.{methods[0]}.{number}-of-{count}", "".join(lines))


if __name__ == "__main__":
    run_script(main)
