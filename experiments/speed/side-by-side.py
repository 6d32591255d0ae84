"""How much faster an update is if independent kernels run at the same time, and whether results stay the same bit for
bit.

python experiments/speed/side-by-side.py [--json FILE] [--toy]      (on a GPU; --toy: to see whether it runs)

Each pack is trained twice from the same start, with kernels one after another and side by side: 300 updates with the
end of a chunk after every 100. Then both continue in turns; the reported rate is the median of three turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from shapes import pack, walk  # pyright: ignore

from winnow.errors import run_script
from winnow.packs.pack import Pack, _advancing  # pyright: ignore
from winnow.packs.precision import side_by_side
from winnow.packs.step import advance

STEPS = 100
PACKS = [
    {"algorithm": "iql", "method": "dw-aw", "runs": 16},
    {"algorithm": "cql", "method": "dw-aw", "runs": 16},
    {"algorithm": "td3bc", "method": "dual-aw", "runs": 8, "obs": 17, "actions": 6, "precision": "default"},
    {"algorithm": "iql", "method": "dual-uniform", "runs": 64},
    {"algorithm": "iql", "method": "dw-uniform", "runs": 1},
    {"algorithm": "cql", "method": "uniform", "runs": 8, "obs": 60, "actions": 9, "width": 512, "precision": "half"},
    {"algorithm": "td3bc", "method": "dw-aw", "runs": 64, "obs": 27, "actions": 8},
    {"algorithm": "cql", "method": "dw-aw", "runs": 64},
    {"algorithm": "cql", "method": "uniform", "runs": 162, "obs": 17, "actions": 6},
    {"algorithm": "cql", "method": "dw-aw", "runs": 108, "obs": 27, "actions": 8},
    {"algorithm": "td3bc", "method": "dw-aw", "runs": 128},
    *({"algorithm": "iql", "method": "dw-aw", "runs": runs} for runs in (64, 128, 256)),
]
TOY = [{"algorithm": "iql", "method": "dw-aw", "runs": 2, "width": 16}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--toy", action="store_true")
    args = parser.parse_args()
    static = ("batch_size", "precision", "count")
    plain: Any = jax.jit(advance, static_argnames=static, donate_argnames=("learners",))
    ways = {"one after another": plain, "side by side": _advancing(fixed=True)}
    print(side_by_side() or "this device has no such option: both ways are the same program")

    def go(packed: Pack, way: str) -> None:
        where = jnp.asarray(packed.step), jnp.asarray(packed.steps)
        how = {"count": STEPS, "batch_size": packed.batch_size, "precision": packed.precision}
        packed.learners = ways[way](packed.tables, packed.lanes, packed.learners, *where, **how)
        packed.step += STEPS
        packed.since += STEPS

    def begun(what: dict[str, Any]) -> dict[str, Pack]:
        both = {}
        for way in ways:
            data = walk(200_000, what.get("obs", 11), what.get("actions", 3))
            how = {"width": what.get("width", 256), "precision": what.get("precision")}
            both[way] = pack([data], what["algorithm"], what["method"], what["runs"], **how)
            for _ in range(3):
                go(both[way], way)
                both[way].end_chunk()
        return both

    packs = TOY if args.toy else PACKS
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(begun, packs))
    kept = []
    for what, both in zip(packs, made, strict=True):
        leaves, other_leaves = ([np.asarray(leaf) for leaf in jax.tree.leaves(each.learners)] for each in both.values())
        differ = sum(int((a != b).sum()) for a, b in zip(leaves, other_leaves, strict=True))
        spent: dict[str, list[float]] = {way: [] for way in ways}
        for way in [*ways] * 3:
            began = time.perf_counter()
            steps = 0
            while time.perf_counter() - began < 0.3:
                go(both[way], way)
                jax.block_until_ready(both[way].learners)
                steps += STEPS
            spent[way].append(steps * what["runs"] / (time.perf_counter() - began))
        rates = {f"{way}, run-steps/s": statistics.median(rates) for way, rates in spent.items()}
        kept.append(what | {"numbers compared": sum(leaf.size for leaf in leaves), "that differ": differ} | rates)
        print(kept[-1], flush=True)
    if args.json:
        args.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_script(main)
