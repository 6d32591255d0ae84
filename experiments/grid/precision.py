"""Does it matter what networks multiply in, where a set is learnt by heart? The same runs in half floats, in TF32 and
in float32 (`experiments/grid/run.sh iql-precision` with each WINNOW_PRECISION): scores, how far AW is ahead of the
labels in each, and all of them together while they learn.

python experiments/grid/precision.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from winnow.report.runs import Run, read
from winnow.stats import compare

RESULTS = Path(__file__).parents[2] / "results" / "grid"
PRECISIONS = {"half": "half", "default": "TF32", "float32": "float32"}
AW, LABELS = "aw sampler.temperature=0.1", "best-source"
Scores = dict[tuple[str, str], list[float]]
"""The seeds' scores of each method on each dataset."""


def scores(runs: Sequence[Run]) -> Scores:
    found: Scores = {}
    for run in runs:
        if run.score is not None:  # none ended in NaN
            found.setdefault((run.label, run.dataset), []).append(run.score)
    return found


def while_learning(runs: Sequence[Run]) -> dict[int, Scores]:
    """The same after so many updates: at each look at the runs."""
    found: dict[int, Scores] = {}
    for run in runs:
        for step, score in run.curve:
            found.setdefault(step, {}).setdefault((run.label, run.dataset), []).append(score)
    return found


def mean(cell: list[float]) -> tuple[float, float]:
    """It, and its standard error."""
    return float(np.mean(cell)), float(np.std(cell, ddof=1) / np.sqrt(len(cell)))


def ahead(first: Scores, second: Scores) -> tuple[float, float]:
    """The mean over all cells of how far the first is ahead of the second, and its standard error."""
    gaps = [(mean(first[cell]), mean(second[cell])) for cell in first]
    errors = [one[1] ** 2 + other[1] ** 2 for one, other in gaps]
    return float(np.mean([one[0] - other[0] for one, other in gaps])), float(np.sqrt(sum(errors)) / len(gaps))


def told(number: tuple[float, float]) -> str:
    return f"{number[0]:.1f} ± {number[1]:.1f}".replace("-", "−")


def main() -> None:
    runs = {name: read(RESULTS / f"iql-precision-{name}-200k", print) for name in PRECISIONS}
    found = {name: scores(some) for name, some in runs.items()}
    reference, others = found["float32"], ("half", "default")
    print("| mean of the seeds |", " | ".join(PRECISIONS.values()), "| half − float32 | TF32 − float32 |")
    print("|---" * (len(PRECISIONS) + 3) + "|")
    for cell in sorted(reference):
        means = [told(mean(found[name][cell])) for name in PRECISIONS]
        gaps = [told(ahead({cell: found[name][cell]}, reference)) for name in others]
        print(f"| {', '.join(cell)} |", " | ".join(means + gaps), "|")
    print("| all of them | | | |", " | ".join(told(ahead(found[name], reference)) for name in others), "|")
    sets = sorted({dataset for _, dataset in reference})
    for name, title in PRECISIONS.items():
        aw, labels = ({dataset: found[name][label, dataset] for dataset in sets} for label in (AW, LABELS))
        lead = compare(aw, labels).iqm
        print(f"{title}: AW ahead of the labels by {lead.value:.1f} [{lead.low:.1f}, {lead.high:.1f}] in IQM")
    looks = while_learning([run for some in runs.values() for run in some])
    print("| all precisions, after updates |", " | ".join(f"{step:,}" for step in looks), "|")
    print("|---" * (len(looks) + 1) + "|")
    for cell in sorted(reference):
        print(f"| {', '.join(cell)} |", " | ".join(told(mean(look[cell])) for look in looks.values()), "|")


if __name__ == "__main__":
    main()
