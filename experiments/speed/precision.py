"""Do runs learn the same with the fused kernels as in float32? Scores on the dome during training, seed by seed.

python experiments/speed/precision.py              (on a GPU of compute capability 9; results/speed/precision.json)
python experiments/speed/precision.py --interpret  (on a CPU, smaller, the kernels interpreted; precision-cpu.json)
python experiments/speed/precision.py --deep       (three layers, which no kernel takes; precision-deep.json)

Both precisions train the same seeds on the same data. Rounding makes the runs diverge after a few hundred updates, so
they are compared as samples: the difference of the mean scores and its standard error.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from winnow import toy
from winnow.errors import run_script
from winnow.methods import make_algorithm, method, resized
from winnow.nets import tiles
from winnow.packs.pack import Pack
from winnow.packs.step import act
from winnow.training.planning import plan

PLAN = {"iql": (32, 10_000, 256), "cql": (32, 2_000, 256), "td3bc": (32, 10_000, 256)}
"""algorithm: (seeds, updates, rows of a batch and width of a layer)"""
INTERPRETED = {"iql": (12, 2_500, 128), "td3bc": (12, 2_500, 128), "cql": (10, 2_000, 128)}
"""The same on a CPU."""
DEEP = {"iql": (8, 1_500, 256)}
"""The same with a third layer, which goes through the products of `winnow.nets.half`."""
PRECISIONS = ("half", "float32")
LOOKS = 5
EPISODES = 20
ROWS = 100_000
SHARE = 0.05
WATCHED = ("q", "loss/critic", "loss/td", "weighter/loss", "weight/ess", "weight/reward")


def scores(pack: Pack) -> np.ndarray:
    """[seeds] mean normalised return of each run's policy; all runs play side by side."""
    policies = jax.jit(jax.vmap(act))

    def together(state: np.ndarray, _: Any) -> np.ndarray:
        seats = state.reshape(len(pack.runs), EPISODES, -1).astype(np.float32)
        return np.asarray(policies(pack.lanes, pack.learners.algorithm, seats)).reshape(len(state), -1)

    returns = toy.play(together, len(pack.runs) * EPISODES, seed=7)[2].sum(axis=0)
    return toy.normalised(returns).reshape(len(pack.runs), EPISODES).mean(axis=1)


def learn(
    dataset: Any, algorithm: str, precision: Any, seeds: int, steps: int, size: int, layers: int = 2
) -> dict[str, Any]:
    learner, weighter = (
        resized(part, (size,) * layers) for part in (make_algorithm(algorithm), method("dw-aw", algorithm)[1])
    )
    runs = plan(dataset, learner, "dw-aw", weighter=weighter, seeds=seeds)
    pack = Pack(runs, steps, size, precision=precision)
    record: dict[str, Any] = {"step": [], "score": []}
    for _ in range(LOOKS):
        pack.advance(steps // LOOKS)
        means = pack.end_chunk()
        record["step"].append(pack.step)
        record["score"].append(np.round(scores(pack), 2).tolist())
        for name in (name for name in WATCHED if name in means):
            record.setdefault(name, []).append([float(f"{value:.5g}") for value in means[name]])
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--algorithms", nargs="+", help="only these algorithms of the plan")
    parser.add_argument("--interpret", action="store_true")
    parser.add_argument("--deep", action="store_true")
    args = parser.parse_args()
    sizes, name = (INTERPRETED, "precision-cpu.json") if args.interpret else (PLAN, "precision.json")
    if args.deep:
        sizes = DEEP
        name = "precision-deep.json"
    tiles.BLOCKS = dataclasses.replace(tiles.BLOCKS, interpret=args.interpret)
    dataset = toy.imbalanced(ROWS, SHARE, expert_rows=ROWS // 5)
    file = Path(__file__).parents[2] / "results" / "speed" / name
    kept: dict[str, Any] = json.loads(file.read_text()) if args.algorithms and file.exists() else {}
    kept |= {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "plan": sizes}
    for algorithm in args.algorithms or sizes:
        for precision in PRECISIONS:
            kept[f"{algorithm} {precision}"] = learn(
                dataset, algorithm, precision, *sizes[algorithm], 3 if args.deep else 2
            )
        file.write_text(json.dumps(kept))
        compare(algorithm, *(kept[f"{algorithm} {precision}"] for precision in PRECISIONS))


def compare(algorithm: str, half: dict[str, Any], exact: dict[str, Any]) -> None:
    """Print the scores at three times, and all other metrics at the end."""
    for name in (name for name in half if name != "step"):
        for at in (0, LOOKS // 2, LOOKS - 1) if name == "score" else (LOOKS - 1,):
            a = np.array(half[name][at])
            b = np.array(exact[name][at])
            error = np.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
            means = f"half {a.mean():.4g}, float32 {b.mean():.4g}, difference {a.mean() - b.mean():.3g} ± {error:.3g}"
            seeds = f"deviation of seeds {a.std(ddof=1):.3g}, {b.std(ddof=1):.3g}"
            print(f"{algorithm} step {half['step'][at]} {name}: {means}; {seeds}", flush=True)


if __name__ == "__main__":
    run_script(main)
