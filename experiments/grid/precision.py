"""Does the precision of matrix products matter for datasets that are overfitted? The same runs in half floats, TF32 and
float32 (`experiments/grid/run.sh iql-precision` with each WINNOW_PRECISION): scores, AW's lead over the label oracle in
each, and the scores of all of them during training.

python experiments/grid/precision.py
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from winnow.errors import run_script
from winnow.report.runs import Run, read
from winnow.stats import compare

RESULTS = Path(__file__).parents[2] / "results" / "grid"
PRECISIONS = {"half": "half", "default": "TF32", "float32": "float32"}
AW = "aw sampler.temperature=0.1"
LABELS = "best-source"
Scores = dict[tuple[str, str], list[float]]
"""The scores of the seeds, by method and dataset."""


def scores(runs: Sequence[Run]) -> Scores:
    by_cell: Scores = {}
    for run in runs:
        if run.score is not None:  # none ended in NaN
            by_cell.setdefault((run.label, run.dataset), []).append(run.score)
    return by_cell


def while_learning(runs: Sequence[Run]) -> dict[int, Scores]:
    """The same scores by number of updates, at each evaluation."""
    by_step: dict[int, Scores] = {}
    for run in runs:
        for step, score in run.curve:
            by_step.setdefault(step, {}).setdefault((run.label, run.dataset), []).append(score)
    return by_step


def mean(cell: list[float]) -> tuple[float, float]:
    """The mean and its standard error."""
    return float(np.mean(cell)), float(np.std(cell, ddof=1) / np.sqrt(len(cell)))


def ahead(first: Scores, second: Scores) -> tuple[float, float]:
    """The mean lead of the first over the second in all cells, and its standard error."""
    gaps = [(mean(first[cell]), mean(second[cell])) for cell in first]
    errors = [ours[1] ** 2 + theirs[1] ** 2 for ours, theirs in gaps]
    return float(np.mean([ours[0] - theirs[0] for ours, theirs in gaps])), float(np.sqrt(sum(errors)) / len(gaps))


def with_error(number: tuple[float, float]) -> str:
    return f"{number[0]:.1f} ± {number[1]:.1f}".replace("-", "−")


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    runs = {name: read(RESULTS / f"iql-precision-{name}-200k", print) for name in PRECISIONS}
    scores_of = {name: scores(runs_of) for name, runs_of in runs.items()}
    reference = scores_of["float32"]
    others = ("half", "default")
    print("| mean of the seeds |", " | ".join(PRECISIONS.values()), "| half − float32 | TF32 − float32 |")
    print("|---" * (len(PRECISIONS) + 3) + "|")
    for cell in sorted(reference):
        means = [with_error(mean(scores_of[name][cell])) for name in PRECISIONS]
        gaps = [with_error(ahead({cell: scores_of[name][cell]}, reference)) for name in others]
        print(f"| {', '.join(cell)} |", " | ".join(means + gaps), "|")
    print("| all of them | | | |", " | ".join(with_error(ahead(scores_of[name], reference)) for name in others), "|")
    sets = sorted({dataset for _, dataset in reference})
    for name, title in PRECISIONS.items():
        aw, labels = ({dataset: scores_of[name][label, dataset] for dataset in sets} for label in (AW, LABELS))
        lead = compare(aw, labels).iqm
        print(f"{title}: AW ahead of the label oracle by {lead.value:.1f} [{lead.low:.1f}, {lead.high:.1f}] in IQM")
    looks = while_learning([run for runs_of in runs.values() for run in runs_of])
    print("| all precisions, after updates |", " | ".join(f"{step:,}" for step in looks), "|")
    print("|---" * (len(looks) + 1) + "|")
    for cell in sorted(reference):
        print(f"| {', '.join(cell)} |", " | ".join(with_error(mean(look[cell])) for look in looks.values()), "|")


if __name__ == "__main__":
    run_script(main)
