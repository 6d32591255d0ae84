"""How a run treats each row of its dataset: how often it samples the row, and the row's weight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RowWeights:
    """How a run treats each row of its dataset."""

    probability: np.ndarray
    """Sampling probability; sums to 1."""
    ratio: np.ndarray
    """Weight w(s,a) of the row when it is sampled; its mean over samples is 1."""

    @classmethod
    def of(cls, probability: np.ndarray, log_weight: np.ndarray) -> RowWeights:
        """From each row's log w up to a constant, which is chosen so that the mean of w over samples is 1."""
        score = log_weight.astype(np.float64)
        ratio = np.exp(score - score[probability > 0].max())
        return cls(probability, ratio / (probability @ ratio))

    @property
    def weight(self) -> np.ndarray:
        """Both together: the row's share of the weighted data times the number of rows; its mean over rows is 1."""
        return len(self.probability) * self.probability * self.ratio

    def share(self, rows: np.ndarray, batch_size: int = 256, batches: int = 1_000, seed: int = 0) -> float:
        """The part of a batch's weight that falls on some rows (a mask), in the mean over drawn batches: what an
        algorithm sees, since weights are normalised over a batch. A row that is hardly ever drawn may have a weight
        that nothing has trained, and would rule a sum over all rows."""
        rng = np.random.default_rng(seed)
        drawn = rng.choice(len(self.probability), (batches, batch_size), p=self.probability)
        weight = self.ratio[drawn]
        return float(np.mean((weight * rows[drawn]).sum(axis=1) / weight.sum(axis=1)))
