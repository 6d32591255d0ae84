"""What speaks against a grid's numbers: oracles that learn next to nothing, and runs that raised an alarm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from winnow.report.runs import Run
from winnow.report.statistics import grouped

ORACLE = "best-source"
"""The method that draws only the good rows, by their label."""
ENOUGH = 0.75
"""Part of its source's own score that an oracle must reach for a comparison of methods on that set to mean anything."""
KINDS = {
    "its critic diverges": "have a critic that diverged: do not use their scores",
    "its critic is wrong on single rows": "have a critic that is wrong on single rows: do not read its Q as returns",
    "its policy memorises rows": "have a policy that memorised rows: train them for fewer updates",
    "its weights leave hardly any row": "have weights that leave hardly any row",
    "its weights weigh nothing": "have weights that weigh nothing",
}
"""How a warning of `winnow.training.alarms` begins, and what is said of all runs that have it."""


def weak_oracles(runs: Sequence[Run]) -> list[str]:
    """A line for each dataset and algorithm whose oracle is far below what its source earns itself."""
    found = []
    for (dataset, algorithm, label), some in grouped(runs, "dataset", "algorithm", "label").items():
        scores = [run.score for run in some if run.score is not None]
        sources = some[0].facts.get("source_scores")
        if some[0].method != ORACLE or not scores or not isinstance(sources, dict) or not sources:
            continue
        source, mean = max(map(float, sources.values())), float(np.mean(scores))
        if source > 0 and mean < ENOUGH * source:
            found.append(
                f"{dataset}, {algorithm}: {label} scores {mean:.1f}, and the rows' own policy {source:.1f} "
                f"({max(mean, 0) / source:.0%})"
            )
    return found


def warned(runs: Sequence[Run]) -> list[str]:
    """How many runs raised each alarm."""
    counts = Counter(kind for run in runs for kind in KINDS if any(text.startswith(kind) for text in run.warnings))
    return [f"{counts[kind]} of {len(runs)} runs {text}" for kind, text in KINDS.items() if counts[kind]]
