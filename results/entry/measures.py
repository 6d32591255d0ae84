"""How weights, or draws, judge a dataset's expert: what the scripts of this folder measure. It reads labels."""

from __future__ import annotations

import numpy as np

from winnow.data.dataset import Dataset

FIRST = 20


def measured(data: Dataset, weight: np.ndarray) -> dict[str, float]:
    """Of weights of rows, or probabilities:

    share    part of them that falls on the expert's rows
    entry    what falls on the expert's first 20 steps, over the share that they have of its rows: 1 is fair
    purity   part of what falls on first 20 steps (of episodes as they were played, whoever played them) that is the
             expert's: what a policy that starts there learns from
    """
    expert, first = data.source == data.meta.sources.index("expert"), data.step < FIRST
    of_expert, of_first, of_both = (weight[rows].sum() / weight.sum() for rows in (expert, first, expert & first))
    said = {
        "share": of_expert,
        "entry": of_both / max(of_expert, 1e-9) / ((expert & first).sum() / expert.sum()),
        "purity": of_both / max(of_first, 1e-9),
    }
    return {name: round(float(value), 4) for name, value in said.items()}
