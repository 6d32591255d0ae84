"""How many updates are enough? An algorithm on pure pools and on mixtures with a tenth of an expert's rows.

    python experiments/as_published/updates.py iql --out DIR [--steps 1000000] [--seeds 2] [--environments hopper]

Trains with uniform samples on ENV-expert (and on halfcheetah-medium), and with AW and with the oracle on
ENV-random-expert-10%. Scores along the way show where the curves level off, and the pure pools show how much of its
source's own return the algorithm earns. WINNOW_PRECISION sets the precision of matrix products. Run again, it only
trains what is missing. `winnow report DIR` shows the results.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from winnow.bench import plan, run_local, suites
from winnow.commands._shared import bar
from winnow.errors import run_script
from winnow.evaluation.settings import Evaluation

EVALUATION = Evaluation(episodes=5, rounds=3, spacing=10_000, curve=19)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=suites.ALGORITHMS)
    parser.add_argument("--environments", default="hopper,walker2d,halfcheetah")
    parser.add_argument("--methods", default="aw,best-source", help="on the mixtures; none: train on pure pools only")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rows", type=int, help="rows of each dataset, fewer for a trial")
    parser.add_argument("--chunk", type=int, default=25_000)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    environments = args.environments.split(",")
    how = plan.How(args.steps, chunk=args.chunk, evaluation=EVALUATION)
    names = [f"{environment}-expert" for environment in environments]
    names += ["halfcheetah-medium"] if "halfcheetah" in environments else []
    pools = suites.entries(names, rows=args.rows)
    runs = plan.grid(pools, [args.algorithm], ["uniform"], args.seeds, how)
    if args.methods != "none":
        names = [f"{environment}-random-expert-10%" for environment in environments]
        mixtures = suites.entries(names, rows=args.rows)
        runs += plan.grid(mixtures, [args.algorithm], args.methods.split(","), args.seeds, how)
    done = run_local.run(plan.packs(runs), args.out, watch=bar)
    print(f"{len(done.results)} runs are done, {done.before} were done before")


if __name__ == "__main__":
    run_script(main)
