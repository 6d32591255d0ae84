"""Do a few bad rows keep a run from overfitting the good ones? On small datasets AW keeps its score where the oracle
loses it, although only one in two thousand of AW's samples is bad.

python experiments/entry/dose.py [OUT] [--steps 80000] [--seeds 3] [--sets hopper-random-expert-10%-small …]
       [--hidden 64x64] [--learning-rate 1e-3] [--doses 0 0.0005 0.01] [--samplers source followed]

Trains with each sampler, mixed with each dose of uniform samples over all rows. OUT is the folder of a grid (`winnow
report` reads it); the results are kept in results/grid/dose-cpu.
"""

from __future__ import annotations

from learning import dosed, learn, options

from winnow.bench import suites
from winnow.errors import run_script
from winnow.methods import METHODS
from winnow.samplers import SAMPLERS

SETS = ["hopper-random-expert-10%-small", "walker2d-random-expert-10%-small"]


def main() -> None:
    parser = options(__doc__, "dose")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--doses", nargs="+", type=float, default=[0, 0.0005, 0.01])
    parser.add_argument("--samplers", nargs="+", default=["source", "followed"])
    args = parser.parse_args()
    methods = []
    for sampler in args.samplers:
        for dose in args.doses:
            name = f"{sampler}-{dose:g}"
            SAMPLERS[name] = dosed(sampler, dose)
            METHODS[name] = (name, "none")
            methods.append(name)
    learn(args, suites.entries(args.sets), methods)


if __name__ == "__main__":
    run_script(main)
