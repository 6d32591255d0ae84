"""Samplers of the episodes, or fragments of them, that lead somewhere good: `continued` and `followed`."""

from __future__ import annotations

import numpy as np

from winnow.data.dataset import Dataset
from winnow.samplers.base import check, over_rows, require_episodes, unit
from winnow.samplers.checks import checked
from winnow.types import plugin, setting

LEADERS = 5
EPISODES_A_LEADER = 50
"""The best score of the scale is that of the `LEADERS`-th best episode, or of an earlier one where there are fewer than
`EPISODES_A_LEADER` episodes for each: no single episode sets it."""


@plugin
class Continued:
    """The better episodes, by returns continued past their last row: G = Σ γᵏ r_k + γᵗ V(s_t), V fitted to the data.

    For fragments of episodes and for logs cut at some length, whose own returns depend more on their length than on how
    good they are. p ∝ 1 / (1 + exp((level − G)/η)) with G scaled to [0, 1]: all that are well above the level are
    sampled alike, so that a good episode's start, whose G is lower than its middle's, is not left out.

    What is sampled is compared with the logged returns; where they disagree, AW's samples are taken instead, and a line
    says so (`winnow.samplers.checks`).

    Examples:
        >>> from winnow import from_arrays
        >>> data = from_arrays([[0.0]] * 3, [[0.0]] * 3, [1.0, 5.0, 9.0], terminals=[1] * 3, timeouts=[0] * 3)
        >>> Continued(rounds=1, steps=10).probabilities(data).round(2).tolist()  # three episodes of one row each
        [0.0, 0.33, 0.67]
    """

    level: float = 0.5
    """How far an episode must be on the way from the worst to the best to be sampled half as often as the best."""
    temperature: float = setting(default=0.03, above=0.0)
    """η: how soft the level is. With a level of 1 or more this is p ∝ exp(G/η), as in RW."""
    discount: float = setting(default=0.995, low=0.0, below=1.0)
    """γ of G and V: the higher, the less a poor start counts against an episode that gets somewhere."""
    rounds: int = setting(default=10, low=1)
    """How often V is fitted, each time with the V of the round before. A round carries values back a whole fragment."""
    steps: int = setting(default=4_000, low=1)
    """Updates of V in each round, of 256 rows; at most 100 passes over the dataset."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of V."""
    seed: int = 0
    """Of the fit, not of the run: all seeds of a run have the same probabilities."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        return checked(dataset, self, "continued", over_rows(dataset, self.by_where_it_leads(dataset, "continued")))

    def by_where_it_leads(self, dataset: Dataset, name: str) -> np.ndarray:
        """[episodes] how likely a row of each is sampled, 1 at the most. `name`: what messages call the sampler."""
        check(self)
        require_episodes(dataset, name)
        from winnow.samplers.fits.continued import continued_returns

        return self.by_level(dataset, continued_returns(dataset, self))

    def by_level(self, dataset: Dataset, score: np.ndarray) -> np.ndarray:
        """[episodes] how likely a row of each is sampled, 1 at the most, by a score of each."""
        # A few fragments end where V was hardly fitted; they must not set the scale.
        low, high = np.quantile(np.repeat(score, dataset.episodes.length), (0.05, 0.995), method="nearest")
        leaders = min(LEADERS, 1 + len(score) // EPISODES_A_LEADER)
        high = max(low, min(high, np.partition(score, -leaders)[-leaders]))
        above = (unit(np.clip(score, low, high), score) - self.level) / self.temperature
        return np.exp(-np.logaddexp(0, -above))


@plugin
class Followed(Continued):
    """`continued`, and fragments that begin where most of the data is selected, whatever becomes of them, or that end
    where nearly all is.

    So the slow starts and the falls of a good policy are sampled too, and values learn of these. On data from unseen
    policies it adds bad fragments as well: prefer `continued`.

    Examples:
        >>> from winnow import from_arrays
        >>> data = from_arrays([[0.0]] * 3, [[0.0]] * 3, [1.0, 5.0, 9.0], terminals=[1] * 3, timeouts=[0] * 3)
        >>> Followed(rounds=1, steps=10, begins=0.9).probabilities(data).round(2).tolist()  # three episodes of a row
        [0.0, 0.33, 0.67]
    """

    passes: int = setting(default=5, low=1)
    """Maximum number of expansion passes. Each extends the selection by about one fragment; stops early when almost
    nothing is added."""
    begins: float = setting(default=0.5, low=0.0, below=1.0)
    """Fraction of the data near a fragment's first states that must be selected. Where episodes start, bad data is the
    majority."""
    ends: float = setting(default=0.8, low=0.0, below=1.0)
    """Fraction of the data near a fragment's last states that must be selected."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        check(self)
        require_episodes(dataset, "followed")
        from winnow.samplers.fits.followed import with_followers

        selected = with_followers(dataset, self.by_where_it_leads(dataset, "followed"), self)
        return checked(dataset, self, "followed", over_rows(dataset, selected))
