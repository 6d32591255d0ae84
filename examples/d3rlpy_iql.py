"""d3rlpy's own IQL with AW sampling, learned weights, or both: the lines marked WINNOW are all that is added.

python examples/d3rlpy_iql.py [--method aw] [--steps 2000]
"""

import argparse

import d3rlpy
import numpy as np

from winnow import AW, toy
from winnow.plug.d3rlpy import add_weights, resampled, to_mdp_dataset  # WINNOW


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=("uniform", "aw", "dual-uniform", "dual-aw"), default="aw")
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    d3rlpy.seed(args.seed)
    dataset = to_mdp_dataset(toy.imbalanced(args.rows))  # 95 % random rows, 5 % of an expert who keeps a puck on a dome

    iql = d3rlpy.algos.IQLConfig(batch_size=args.batch_size).create()
    if args.method.startswith("dual"):
        add_weights(iql, dataset, form="dual")  # WINNOW: learned beside IQL, in all of its losses
    if args.method.endswith("aw"):
        dataset = resampled(dataset, AW(temperature=0.1))  # WINNOW: rows of good episodes more often
    iql.fit(
        dataset,
        n_steps=args.steps,
        n_steps_per_epoch=args.steps,
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    scores = toy.normalised(toy.evaluate(lambda state: iql.predict(state.astype(np.float32))))
    print(f"{args.method}: score {scores.mean():.1f} (0 is random, 100 the best possible)")


if __name__ == "__main__":
    main()
