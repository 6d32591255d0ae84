"""How weights, or draws, judge a dataset's good policy: what the scripts of this folder measure. It reads labels."""

from __future__ import annotations

import numpy as np

from winnow.data.dataset import Dataset

FIRST = 20


def measured(data: Dataset, weight: np.ndarray, policy: str = "expert") -> dict[str, float]:
    """Of weights of rows, or probabilities:

    share    part of them that falls on the good policy's rows
    entry    what falls on its first 20 steps, over the share that they have of its rows: 1 is fair
    purity   part of what falls on first 20 steps (of episodes as they were played, whoever played them) that is the
             good policy's: what a policy that starts there learns from
    """
    good, first = data.source == data.meta.sources.index(policy), data.step < FIRST
    of_good, of_first, of_both = (weight[rows].sum() / weight.sum() for rows in (good, first, good & first))
    said = {
        "share": of_good,
        "entry": of_both / max(of_good, 1e-9) / ((good & first).sum() / good.sum()),
        "purity": of_both / max(of_first, 1e-9),
    }
    return {name: round(float(value), 4) for name, value in said.items()}
