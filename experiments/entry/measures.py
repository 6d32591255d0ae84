"""How much weight, or sampling probability, a dataset's good policy gets. It reads source labels."""

from __future__ import annotations

import numpy as np

from winnow.data.dataset import Dataset

FIRST = 20


def measured(data: Dataset, weight: np.ndarray, policy: str = "expert") -> dict[str, float]:
    """Measures of row weights or sampling probabilities:

    share    share of the good policy's rows in all weight
    entry    share of its first 20 steps in its weight, divided by their share of its rows: 1 is proportional
    purity   share of the good policy in the weight on the first 20 steps of all episodes (as they were played): what a
             policy learns from at the start
    """
    good = data.source == data.meta.sources.index(policy)
    first = data.step < FIRST
    of_good, of_first, of_both = (weight[rows].sum() / weight.sum() for rows in (good, first, good & first))
    measures = {
        "share": of_good,
        "entry": of_both / max(of_good, 1e-9) / ((good & first).sum() / good.sum()),
        "purity": of_both / max(of_first, 1e-9),
    }
    return {name: round(float(value), 4) for name, value in measures.items()}
