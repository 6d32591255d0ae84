"""Reasons not to trust a grid's numbers: oracles that learn almost nothing, and runs that raised an alarm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from winnow.report.runs import Run
from winnow.report.statistics import grouped

ORACLE = "best-source"
"""The method that samples only the good rows, by their source label."""
MIN_ORACLE_SHARE = 0.75
"""Fraction of its source's own score that an oracle must reach: below it a comparison of methods means little."""
KINDS = {
    "its critic diverges": "have a critic that diverged: do not use their scores",
    "its critic is wrong on single rows": "have a critic that is wrong on single rows: do not read its Q as returns",
    "its policy memorises rows": "have a policy that overfitted: train them for fewer updates",
    "its weights leave hardly any row": "have weights that leave hardly any row",
    "its weights weigh nothing": "have weights that weigh nothing",
}
"""Beginning of a warning of `winnow.training.alarms`, and the sentence about all runs that have it."""


def weak_oracles(runs: Sequence[Run]) -> list[str]:
    """A line for each dataset and algorithm whose oracle scores far less than its source's own policy."""
    lines = []
    for (dataset, algorithm, label), same in grouped(runs, "dataset", "algorithm", "label").items():
        scores = [run.score for run in same if run.score is not None]
        sources = same[0].facts.get("source_scores")
        if same[0].method != ORACLE or not scores or not isinstance(sources, dict) or not sources:
            continue
        source = max(map(float, sources.values()))
        mean = float(np.mean(scores))
        if source > 0 and mean < MIN_ORACLE_SHARE * source:
            lines.append(
                f"{dataset}, {algorithm}: {label} scores {mean:.1f}, the policy that made its rows {source:.1f} "
                f"({max(mean, 0) / source:.0%})"
            )
    return lines


def warned(runs: Sequence[Run]) -> list[str]:
    """How many runs raised each alarm."""
    counts = Counter(kind for run in runs for kind in KINDS if any(text.startswith(kind) for text in run.warnings))
    return [f"{counts[kind]} of {len(runs)} runs {text}" for kind, text in KINDS.items() if counts[kind]]
