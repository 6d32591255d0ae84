"""Does a pinch of bad data keep good rows from being learnt by heart? On small sets AW holds out where the labels do
not, though but one in two thousand of its draws is bad.

python experiments/entry/dose.py [OUT] [--steps 80000] [--seeds 3] [--sets hopper-random-expert-10%-small …]
       [--hidden 64x64] [--learning-rate 1e-3] [--doses 0 0.0005 0.01] [--samplers source followed]

Each sampler with each part of its draws even over all rows. OUT gets a grid's folder (`winnow report` reads its
results); kept in results/grid/dose-cpu.
"""

from __future__ import annotations

from learning import dosed, learn, options

from winnow.bench import suites
from winnow.methods import METHODS
from winnow.samplers import SAMPLERS

SETS = ["hopper-random-expert-10%-small", "walker2d-random-expert-10%-small"]


def main() -> None:
    parser = options(__doc__, "dose")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--doses", nargs="+", type=float, default=[0, 0.0005, 0.01])
    parser.add_argument("--samplers", nargs="+", default=["source", "followed"])
    words = parser.parse_args()
    methods = []
    for sampler in words.samplers:
        for dose in words.doses:
            name = f"{sampler}-{dose:g}"
            SAMPLERS[name], METHODS[name] = dosed(sampler, dose), (name, "none")
            methods.append(name)
    learn(words, suites.entries(words.sets), methods)


if __name__ == "__main__":
    main()
