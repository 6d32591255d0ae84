"""ODPR-A: single rows by the advantages of a fitted value function. It needs no episodes."""

from __future__ import annotations

import math

import numpy as np

from winnow.data.dataset import Dataset
from winnow.samplers.base import check
from winnow.types import plugin, setting


@plugin
class ODPRA:
    """ODPR-A, once OPER-A: single rows by advantages of a fitted value function (Yue et al., 2023, arXiv:2306.05412).

    V is fitted by temporal differences to rows drawn by priority; every priority is multiplied by A − min A with
    A = r + γ V(s') − V(s); and again, `iterations` times. p is the mean of the priorities over `fits`, stretched to a
    standard deviation and not below a least value. It needs no episodes. The authors fit networks of 256×256 three
    times with 1,000,000 updates an iteration: give `hidden`, `fits` and `steps` for that.

    Examples:
        >>> from winnow import from_arrays
        >>> data = from_arrays([[0.0]] * 3, [[0.0]] * 3, [1.0, 5.0, 9.0], terminals=[1] * 3, timeouts=[0] * 3)
        >>> ODPRA(iterations=1, steps=10).probabilities(data).round(2).tolist()  # three episodes of one row each
        [0.02, 0.22, 0.76]
    """

    iterations: int = setting(default=5, low=1)
    """How often V is fitted and priorities multiplied. The authors use 4 for BC and IQL, 5 for TD3+BC."""
    steps: int = setting(default=20_000, low=1)
    """Updates of V in each iteration, of 256 rows; at most 100 passes over the dataset."""
    fits: int = setting(default=1, low=1)
    """Fits from other random numbers, to take the mean of their priorities. The authors: 3."""
    deviation: float = setting(default=2.0, low=0.0, below=math.inf)
    """Standard deviation of the priorities, whose mean is 1, before the least one is raised."""
    least: float = setting(default=0.1, low=0.0, below=1.0)
    """No row is drawn less often than this part of its share in the dataset, about."""
    discount: float = setting(default=0.99, low=0.0, below=1.0)
    """γ of V."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of V."""
    seed: int = 0
    """Of the fits. It is not the run's: all seeds of a run draw alike."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        check(self)
        from winnow.samplers.fits.odpr import priorities, spread

        return spread(priorities(dataset, self), self.deviation, self.least)
