"""Behaviour policies trained by winnow itself: online soft actor-critic, many environments at a time.

    python -m winnow.collect --env hopper ant --steps 1000000 --out runs/policies --seconds 560

`learner` is what runs on the device, `lanes` the training of many policies at once, `snapshots` a policy as a file, and
`run` a whole call from its options to its last line.
"""

from winnow.collect.run import main, peak, train
from winnow.collect.snapshots import behaviour, load_snapshot

__all__ = ["behaviour", "load_snapshot", "main", "peak", "train"]
