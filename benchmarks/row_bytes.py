"""Bytes per row: on disk, in host memory while a pack is made, and on the device.

python benchmarks/row_bytes.py [--rows 4000000] [--obs 11] [--actions 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from shapes import table, walk

from winnow.data import store
from winnow.errors import run_script

CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
import jax
from shapes import pack
from winnow.data.store import load
from winnow.samplers import AW, alias_table

def peak():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return 1024 * int(status["VmHWM"].split()[0])

jax.block_until_ready(jax.numpy.ones(3) + 1)
base = peak()
sizes = {}
data = load(sys.argv[2])
sizes["host, opened"] = peak() - base
probability = AW().probabilities(data)
alias_table(probability)
sizes["host, AW's tables made"] = peak() - base
packed = pack([data], "iql", "dw-aw", 1, width=64)
sizes["host with a pack on this CPU"] = peak() - base
sizes["device"] = sum(table.nbytes for table in packed.tables)
print(json.dumps({name: size / len(data) for name, size in sizes.items()}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--obs", type=int, default=11)
    parser.add_argument("--actions", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write every number to this file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.safetensors"
        store.save(walk(args.rows, args.obs, args.actions), file)
        sizes = {"disk": file.stat().st_size / args.rows}
        child = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(file)]
        sizes |= json.loads(subprocess.check_output(child, text=True))
    lines = [(name, f"{size:.0f}") for name, size in sizes.items()]
    table(f"bytes a row, {args.rows:,} rows of {args.obs} + {args.actions} numbers", lines)
    if args.json:
        shape = {name: getattr(args, name) for name in ("rows", "obs", "actions")}
        args.json.write_text(json.dumps(shape | {"bytes a row": sizes}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_script(main)
