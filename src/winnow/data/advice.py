"""Which method fits a dataset: the decision behind `winnow inspect`, `--method auto`, `winnow tune` and the plug-ins.

It looks at the data alone. What it chooses rests on the grids that were made with the corrected code
(`results/as_published`): on whole episodes AW is level with DW-AW. On fragments AW is far behind, and `continued`
judges them by where they lead. Where its fit disagrees with the logged returns, the sampler takes AW instead and says
so (`winnow.samplers.checks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.imbalance import Imbalance, imbalance

AUTO = "auto"
"""The name of a method that is chosen by the data."""
STRONG = 0.07
"""Effective share of rows below which a set is strongly imbalanced: between mixtures with 5 % and 10 % of good rows."""
IMBALANCED = 0.2
"""Below it a set is imbalanced: between a mixture with 10 % of good rows and the returns of one policy, whose share is
0.32 if they are normally distributed. An even mixture of a good and a bad policy has 0.5."""
ALIKE = 0.01
"""Where returns span less than this part of their greatest size, choosing among episodes gains next to nothing."""
IMBALANCED_FRAGMENTS = 0.3
"""The same for fragments, whose returns differ less than those of the episodes they are from: a mixture of fragments
with 10 % of good rows can have a share of 0.21."""
LEAST_EPISODES = 20
"""With fewer episodes than this, a high return may be luck."""
LEAST_FRAGMENTS = 200
"""With fewer fragments than this, a value function that is fitted to two thirds of them is not to be trusted."""
EPISODES_A_COLUMN = 4
"""Episodes for each observation column that AW's linear fit needs: with fewer it explains the returns by chance."""
FEW_ROWS = 20_000
"""Good rows that are so few that a policy overfits them: between mixtures of a million rows with 1 % and with 5 %."""


class Advice(NamedTuple):
    """A method for a dataset."""

    method: str
    settings: Mapping[str, float]
    """Settings that differ from the method's own, as `sampler.temperature`."""
    why: str
    """The reason, in one sentence without its full stop."""

    def line(self, dataset: str) -> str:
        """What training says of it."""
        given = "".join(f" with {name} {value:g}" for name, value in self.settings.items())
        return f"{dataset}: auto chose {self.method}{given}: {self.why}"


def advise(dataset: Dataset, measured: Imbalance | None = None) -> Advice:
    """The method that the evidence points to for a dataset, and why."""
    return decide(measured or imbalance(dataset))


def decide(measured: Imbalance) -> Advice:
    """The decision itself, from what is known of the data."""
    if measured.of == "reward":
        why = "there are no episodes, so no returns to sample by; it learns a weight for each row from rewards"
        return Advice("dw-uniform", {}, why)
    if measured.count < LEAST_EPISODES:
        return Advice("uniform", {}, f"{measured.count} episodes are too few to tell a good one from luck")
    if alike(measured):
        return Advice("uniform", {}, "returns hardly differ, so no episode is worth more than another")
    if degree(measured) == "balanced":
        return Advice("uniform", {}, "good rows are not rare, so uniform samples have enough of them")
    if measured.fragments and measured.count >= LEAST_FRAGMENTS:
        why = "the episodes are fragments, whose own returns say little; it judges them by where they lead"
        return Advice("continued", {}, why)
    rare = f"only about {percent(measured.effective_share)} of the rows are good"
    if measured.count < EPISODES_A_COLUMN * (measured.columns + 1):
        few = f"{measured.count:,} episodes are too few to fit the return of a start in {measured.columns} columns"
        return Advice("rw", {}, f"{rare}, and {few}")
    if measured.fragments:
        return Advice("aw", {}, f"{rare}, and {measured.count} fragments are too few to fit a value function to")
    if measured.effective_share * measured.rows <= FEW_ROWS:
        return Advice("aw", {}, f"{rare} and so few that a policy may overfit them: train for few updates")
    return Advice("aw", {}, f"{rare}, and they are in whole episodes, whose returns show which are good")


# ---------------------------------------------------------------------------------------------------- in words


def alike(measured: Imbalance) -> bool:
    """Whether returns (or rewards) hardly differ."""
    least = measured.quantiles["0"]
    greatest = measured.quantiles["1"]
    return greatest - least <= ALIKE * max(abs(least), abs(greatest))


def degree(measured: Imbalance) -> str:
    """ "balanced", "imbalanced" or "strongly imbalanced"."""
    if alike(measured) or measured.effective_share >= (IMBALANCED_FRAGMENTS if measured.fragments else IMBALANCED):
        return "balanced"
    return "imbalanced" if measured.effective_share >= STRONG else "strongly imbalanced"


def verdict(measured: Imbalance) -> str:
    """How imbalanced the data is, in a sentence or two."""
    things = "episodes" if measured.of == "return" else "rows"
    if alike(measured):
        text = f"Balanced: all {measured.of}s are nearly the same, so no row is worth more than another."
    else:
        top = (
            f"the best 5 % of {things} hold {percent(measured.top_share['0.05'])} of all {measured.of} above the worst"
        )
        rows = f"about {percent(measured.effective_share)} of the rows are worth learning from"
        text = f"{degree(measured).capitalize()}: {rows}; {top}."
    if measured.of == "reward":
        text += f" There are no episodes in {measured.kind} data, so this is about rewards of single rows."
    return text


def percent(share: float) -> str:
    """A share in as many digits as it needs: 12 %, 3.4 %, 0.08 %."""
    digits = 0 if share >= 0.0995 else 1 if share >= 0.00995 else 2
    return f"{np.round(100 * share, digits):.{digits}f} %"
