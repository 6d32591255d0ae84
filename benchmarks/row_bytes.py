"""What a row takes: bytes on disk, on the host while a pack is made, and on the device.

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
base, found = peak(), {}
data = load(sys.argv[2])
found["host, opened"] = peak() - base
probability = AW().probabilities(data)
alias_table(probability)
found["host, AW's tables made"] = peak() - base
packed = pack([data], "iql", "dw-aw", 1, width=64)
found["host with a pack on this CPU"] = peak() - base
found["device"] = sum(one.nbytes for one in packed.tables)
print(json.dumps({name: size / len(data) for name, size in found.items()}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--obs", type=int, default=11)
    parser.add_argument("--actions", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write every number to this file")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.safetensors"
        store.save(walk(words.rows, words.obs, words.actions), file)
        found = {"disk": file.stat().st_size / words.rows}
        child = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(file)]
        found |= json.loads(subprocess.check_output(child, text=True))
    lines = [(name, f"{size:.0f}") for name, size in found.items()]
    table(f"bytes a row, {words.rows:,} rows of {words.obs} + {words.actions} numbers", lines)
    if words.json:
        sizes = {name: getattr(words, name) for name in ("rows", "obs", "actions")}
        words.json.write_text(json.dumps(sizes | {"bytes a row": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
