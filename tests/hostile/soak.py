"""As many spoiled files of every kind as there is time for, and what became of them.

    python tests/hostile/soak.py --minutes 10

Prints a table and writes results/trust/hostile.json. Ends with 1 if there was a defect: its kind, seed and number are
in the file, and `--kind KIND --seed SEED --number NUMBER` shows it again.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from helpers.hostile.corpus import KINDS  # noqa: E402
from helpers.hostile.spoiled_reads import MEMORY, SECONDS, Tally, answer, distinct, spoil, tried  # noqa: E402

OUT = TESTS.parent / "results" / "trust" / "hostile.json"
TURN = 30.0
"""Seconds for a kind before it is the next one's turn."""


def soak(kinds: list[str], minutes: float, seed: int) -> list[Tally]:
    """Round after round over all kinds, each round with a seed of its own."""
    end, totals = time.monotonic() + 60 * minutes, {kind: Tally(kind) for kind in kinds}
    while time.monotonic() < end:
        for number, kind in enumerate(kinds):
            turn = min(TURN, (end - time.monotonic()) / (len(kinds) - number))
            for tally in tried([kind], seed, 1_000_000, turn) if turn > 0 else ():
                totals[kind] += tally
        seed += 1
    return list(totals.values())


def table(tallies: list[Tally]) -> str:
    heads = ("kind of file", "inputs tried", "refused cleanly", "read fine", "defects")
    rows = [
        (tally.kind, *(f"{n:,}" for n in (tally.tried, tally.refused, tally.read, len(tally.defects))))
        for tally in tallies
    ]
    sums = [
        sum(n)
        for n in zip(*((tally.tried, tally.refused, tally.read, len(tally.defects)) for tally in tallies), strict=True)
    ]
    rows.append(("all", *(f"{n:,}" for n in sums)))
    width = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = [[row[0].ljust(width[0]), *(text.rjust(size) for text, size in zip(row[1:], width[1:], strict=True))]
             for row in [heads, *rows]]  # fmt: skip
    return "\n".join("  ".join(line) for line in lines)


def write(tallies: list[Tally], minutes: float, seed: int) -> None:
    from winnow.system.files import write_text

    libraries = ("h5py", "numpy", "pyarrow", "safetensors", "minari")
    record = {
        "command": f"python tests/hostile/soak.py --minutes {minutes:g} --seed {seed}",
        "minutes": minutes,
        "seconds_for_one_input": SECONDS,
        "bytes_for_a_process": MEMORY,
        "python": platform.python_version(),
        "made_with": {name: importlib.metadata.version(name) for name in libraries},
        "tried": sum(tally.tried for tally in tallies),
        "defects": sum(len(tally.defects) for tally in tallies),
        "kinds": [dataclasses.asdict(tally) for tally in tallies],
    }
    write_text(OUT, json.dumps(record, indent=1) + "\n")


def again(kind: str, seed: int, number: int) -> None:
    """One input once more, with its traceback."""
    with tempfile.TemporaryDirectory() as folder:
        good, work = Path(folder) / "good", Path(folder) / "work"
        good.mkdir()
        goods = [(path.relative_to(good), path.read_bytes()) for path in KINDS[kind].make(good)]
        path, raw = spoil(kind, seed, number, goods)
        shutil.copytree(good, work)
        Path("hostile-input").write_bytes(raw)
        print(f"{path}, written to hostile-input: {answer(kind, work / path, raw) or 'read fine'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--kind", choices=KINDS, help="this kind alone")
    parser.add_argument("--number", type=int, help="with --kind and --seed: this input alone")
    args = parser.parse_args()
    if args.number is not None:
        again(args.kind, args.seed, args.number)
        return 0
    tallies = soak([args.kind] if args.kind else list(KINDS), args.minutes, args.seed)
    print(table(tallies))
    for tally in tallies:
        for what, count in distinct(tally).most_common():
            print(f"{tally.kind}: {count} × {what}".encode("ascii", "backslashreplace").decode())
    if not args.kind:
        write(tallies, args.minutes, args.seed)
    return int(any(tally.defects for tally in tallies))


if __name__ == "__main__":
    raise SystemExit(main())
