"""What samplers draw on mixed and diverse sets, judged by labels they do not read: no training.

python results/entry/drawn.py [--environments hopper …] [--samplers aw continued] [--shares 5 10]
       [--kinds mixed diverse] [--rows 1000000]

Adds to results/entry/drawn.json, for every set with so many per cent of the expert:

share    part of the draws that are the expert's rows
entry    draws of the expert's first 20 steps, over the share that they have of the expert's rows: 1 is fair
purity   part of the draws of first 20 steps (of episodes as they were played, whoever played them) that is the
         expert's: what a policy that starts there learns from
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from winnow.data.sources import open_dataset
from winnow.methods import make_sampler

FIRST = 20
OUT = Path(__file__).parent / "drawn.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", nargs="+", default=["hopper", "walker2d", "halfcheetah", "ant"])
    parser.add_argument("--samplers", nargs="+", default=["aw", "continued"])
    parser.add_argument("--shares", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--kinds", nargs="+", default=["mixed", "diverse"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    words = parser.parse_args()
    found: dict[str, dict[str, float]] = json.loads(OUT.read_text()) if OUT.exists() else {}
    names = [
        f"{environment}-random-expert-{'diverse-' if kind == 'diverse' else ''}{share}%"
        for environment in words.environments
        for kind in words.kinds
        for share in words.shares
    ]
    for name in names:
        data = open_dataset(f"{name}@{words.rows}")
        expert, first = data.source == data.meta.sources.index("expert"), data.step < FIRST
        for sampler in words.samplers:
            drawn = make_sampler(sampler).probabilities(data)
            share, both = drawn[expert].sum(), drawn[expert & first].sum()
            said = {
                "share": share,
                "entry": both / share / ((expert & first).sum() / expert.sum()),
                "purity": both / drawn[first].sum(),
            }
            found[f"{name} {sampler}"] = {key: round(float(value), 4) for key, value in said.items()}
            print(f"{name} {sampler}", found[f"{name} {sampler}"], flush=True)
            OUT.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
