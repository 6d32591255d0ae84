"""Behaviour policies, trained online with soft actor-critic, many environments at a time.

    python -m winnow.collect --env hopper ant --steps 1000000 --out runs/policies --seconds 560

`sac` has the losses, `learner` the programs that run on the device, `trainer` the training of many policies at once,
`snapshots` a policy as a file, and `run` the command.
"""

from winnow.collect.run import main, peak, train
from winnow.collect.snapshots import behaviour, load_snapshot

__all__ = ["behaviour", "load_snapshot", "main", "peak", "train"]
