"""Does the fit of `continued` and `followed` collapse on the log of a plant? Eight seeds of the fit; no training.

    python experiments/collapse/seeds.py [--seeds 8] [--steps 1000] [--samplers continued followed]

The log is `winnow.toy.plant`: 150 episodes, 42 of 51 columns are noise, and in the worst episodes the sensors drift
away before the recording ends. Adds a line for each fit to results/collapse/seeds.json: what part of the samples the
largest episode and the good episodes have, and the mean return of the samples beside that of uniform samples. `fit` is
the version of the fit; lines of another version stay.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from winnow import toy
from winnow.errors import run_script
from winnow.samplers import SAMPLERS
from winnow.samplers.fits import continued, followed

OUT = Path(__file__).parents[2] / "results" / "collapse" / "seeds.json"
FITS = {"continued": continued.FORMAT, "followed": followed.FORMAT}


def measured(data: Any, probability: np.ndarray) -> dict[str, float | int]:
    share = np.bincount(data.episode, probability, len(data.episodes))
    largest = int(share.argmax())
    return {
        "largest episode": round(float(share[largest]), 4),
        "its rank by return": int((data.returns > data.returns[largest]).sum()) + 1,
        "good episodes": round(float(probability[data.source == 1].sum()), 4),
        "effective rows": round(float(1 / (probability @ probability) / len(data)), 4),
        "mean return": round(float(share @ data.returns), 2),
        "uniform": round(float(data.episodes.length @ data.returns / len(data)), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--samplers", nargs="+", default=["continued", "followed"])
    options = parser.parse_args()
    lines: list[dict[str, Any]] = json.loads(OUT.read_text()) if OUT.exists() else []
    data = toy.plant()
    for seed in range(options.seeds):
        for name in options.samplers:
            facts = {"fit": FITS[name], "sampler": name, "seed": seed, "steps": options.steps}
            lines = [line for line in lines if not facts.items() <= line.items()]
            probability = SAMPLERS[name](seed=seed, steps=options.steps).probabilities(data)
            lines.append(facts | measured(data, probability))
            print(lines[-1], flush=True)
            lines.sort(key=lambda line: (line["fit"], line["seed"]))
            OUT.write_text("[\n" + ",\n".join(map(json.dumps, lines)) + "\n]\n")


if __name__ == "__main__":
    run_script(main)
