"""What the numbers of a dataset say, in words; also what can't be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.imbalance import Imbalance
from winnow.inspection.weightings import Weighting


class Number(NamedTuple):
    name: str
    value: str
    meaning: str


def numbers(measured: Imbalance) -> list[Number]:
    """Names, values and meanings of what is measured."""
    of = measured.of
    things = "episodes" if of == "return" else "rows"
    quantiles = "  ".join(f"{100 * float(q):g} %: {value:.4g}" for q, value in measured.quantiles.items())
    top = "  ".join(f"{100 * float(part):g} %: {100 * value:.0f} %" for part, value in measured.top_share.items())
    discounted = f", discount {measured.discount:g}" if measured.discount < 1 else ""
    lines = [
        Number(
            "mean",
            f"{measured.mean:.4g} over {measured.count:,} {of}s{discounted}",
            f"each of the {things} counts once",
        ),
        Number("quantiles", quantiles, f"the part of {things} with a {of} of at most so much"),
        Number(
            "RPSV",
            f"{measured.rpsv:.4g}   on max–min scaled {of}s: {measured.rpsv_scaled:.4g}",
            f"positive-sided variance: the mean square of how far {of}s lie above their mean. High where some "
            f"{things} are far better than most, which is what weights can use",
        ),
        Number(
            f"{of} held by the top",
            top,
            f"part of everything above the worst {of} that the best {things} hold",
        ),
        Number("Gini", f"{measured.gini:.3f}", "of the same: 0 if all are equal, near 1 if one holds everything"),
        Number(
            "effective sample size",
            f"{measured.effective_count:,.1f} of {measured.count:,}",
            f"so many equally good {things} would carry all that lies above the mean",
        ),
        Number(
            "effective share of rows",
            f"{100 * measured.effective_share:.1f} %",
            "the same counted in rows: how often a row drawn uniformly is one worth learning from",
        ),
    ]
    if measured.start_spread is not None:
        lines.append(
            Number(
                "initial-state spread",
                f"{measured.start_spread:.3g} of that of all states",
                "near 0 if every episode starts alike; the more they differ, the more of a return is luck of the "
                "start, which AW takes out",
            )
        )
    return lines


def unshown(data: Dataset, weightings: Sequence[Weighting], runs: int) -> list[str]:
    """What this data leaves out of the page, and why."""
    sentences = []
    table = data.episodes
    if not data.has_episodes:
        sentences.append(
            f"There are no episodes in {data.meta.kind} data: no returns, no strips, and no AW and PF, which sample by "
            "returns. Rewards replace returns where that makes sense."
        )
    if np.ptp(data.reward) == 0:
        sentences.append(
            f"Every reward is {data.reward[0]:g}: no row pays more than another, so rewards colour nothing and weights "
            "that are learned from them can't prefer a row for its reward."
        )
    if data.has_episodes:
        if len(table) == 1:
            sentences.append("There is one episode: nothing to compare it with; AW and PF sample all its rows alike.")
        elif np.ptp(data.returns) == 0:
            sentences.append(f"Every return is {data.returns[0]:g}: it does not tell good episodes from bad ones.")
        if table.length.max() == 1:
            sentences.append("Every episode is one step long: there is nothing along it to show.")
    if len(data.meta.sources) == 1:
        sentences.append("The data does not say that rows come from different sources, so nothing is shown by source.")
    even = [weighting.name for weighting in weightings[1:] if weighting.is_even]
    if even:
        sentences.append(
            f"{' and '.join(even)} weigh{'s' if len(even) == 1 else ''} all rows alike here, as uniform does."
        )
    if not runs:
        sentences.append("No run was given, so there are no learned weights: --run RUN adds those of finished runs.")
    return sentences


def heaviness(weighting: Weighting) -> str:
    """How a weighting spreads over rows, for those who don't see the colours."""
    if weighting.is_even:
        return "every row counts alike"
    low, middle, high = (f"{value:.2g}" for value in np.quantile(weighting.weight, (0.05, 0.5, 0.95)))
    none = float(np.mean(weighting.weight == 0))
    zero = f"{100 * none:.0f} % of the rows count nothing, " if none else ""
    return f"{zero}a row in the middle weighs {middle}, 5 % weigh at most {low} and 5 % at least {high}"
