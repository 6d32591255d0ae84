"""Samplers of whole episodes by their returns: uniform, AW, RW, PF and ReD. They need numpy alone."""

from __future__ import annotations

import math

import numpy as np

from winnow.data.dataset import Dataset
from winnow.samplers.base import check, over_rows, require_episodes, unit
from winnow.types import plugin, setting


@plugin
class Uniform:
    """Every row as often as every other.

    Examples:
        >>> from winnow import from_arrays
        >>> data = from_arrays([[0.0]] * 3, [[0.0]] * 3, [1.0, 5.0, 9.0], terminals=[1] * 3, timeouts=[0] * 3)
        >>> Uniform().probabilities(data).round(2).tolist()  # three episodes of one row each
        [0.33, 0.33, 0.33]
    """

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        return np.full(len(dataset), 1 / len(dataset))


@plugin
class AW:
    """Advantage weighting: rows of episodes that did better than their start promised (Hong et al., 2023).

    A = G − V(s0) with V the least-squares fit of the return on the first observation; p ∝ exp(A/η) with A scaled
    to [0, 1] over rows.

    Follows the authors' code (Improbable-AI/dw-offline-rl). Deviates in this:

    - Rows are drawn as training goes; the authors draw all of a run's rows first, and from these again.
    - G is of raw rewards; their IQL takes AntMaze's rewards less 1.
    - G has the reward of a timeout's last row, which their readers drop.

    Examples:
        >>> from winnow import from_arrays
        >>> data = from_arrays([[0.0]] * 3, [[0.0]] * 3, [1.0, 5.0, 9.0], terminals=[1] * 3, timeouts=[0] * 3)
        >>> AW(temperature=1.0).probabilities(data).round(2).tolist()  # three episodes of one row each
        [0.19, 0.31, 0.51]
    """

    temperature: float = setting(default=0.1, above=0.0)
    """η: the lower, the more the best episodes are drawn. The paper's grid: 0.01, 0.1–0.2, 1, 5."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        check(self)
        require_episodes(dataset, "aw")
        start = dataset.start_obs.astype(np.float64)
        design = np.column_stack([np.ones(len(start)), start])
        fit, *_ = np.linalg.lstsq(design, dataset.returns, rcond=None)
        return boltzmann(dataset, dataset.returns - design @ fit, self.temperature)


@plugin
class RW:
    """Return weighting: as AW with the return itself in place of the advantage.

    Examples:
        >>> from winnow import from_arrays
        >>> data = from_arrays([[0.0]] * 3, [[0.0]] * 3, [1.0, 5.0, 9.0], terminals=[1] * 3, timeouts=[0] * 3)
        >>> RW(temperature=1.0).probabilities(data).round(2).tolist()  # three episodes of one row each
        [0.19, 0.31, 0.51]
    """

    temperature: float = setting(default=0.1, above=0.0)
    """η: the lower, the more the best episodes are drawn."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        check(self)
        require_episodes(dataset, "rw")
        return boltzmann(dataset, dataset.returns, self.temperature)


@plugin
class PF:
    """Percentage filtering: only the rows of the best episodes, each as often as every other.

    Follows the authors' code (Improbable-AI/dw-offline-rl). Deviates in this: at least one episode is kept, and of
    episodes with equal returns the earlier ones are.

    Examples:
        >>> from winnow import from_arrays
        >>> data = from_arrays([[0.0]] * 3, [[0.0]] * 3, [1.0, 5.0, 9.0], terminals=[1] * 3, timeouts=[0] * 3)
        >>> PF(share=0.7).probabilities(data).round(2).tolist()  # three episodes of one row each
        [0.0, 0.5, 0.5]
    """

    share: float = setting(default=0.1, above=0.0, high=1.0)
    """Part of the episodes to keep, by return, at least one. The paper's grid: 0.1, 0.2, 0.5."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        check(self)
        require_episodes(dataset, "pf")
        keep = max(1, int(self.share * len(dataset.episodes) + 1e-9))  # 0.29 × 100 is 29
        best = np.argsort(-dataset.returns, kind="stable")[:keep]
        kept = np.zeros(len(dataset.episodes))
        kept[best] = 1
        return over_rows(dataset, kept)


@plugin
class ReD:
    """Return-based data rebalancing: rows in proportion to their episode's return (Yue et al., 2022, arXiv:2210.09241).

    p ∝ (G − min G) / (max G − min G) + base. ODPR-R (Yue et al., 2023, arXiv:2306.05412) draws by the same numbers.

    Examples:
        >>> from winnow import from_arrays
        >>> data = from_arrays([[0.0]] * 3, [[0.0]] * 3, [1.0, 5.0, 9.0], terminals=[1] * 3, timeouts=[0] * 3)
        >>> ReD(base=0.2).probabilities(data).round(2).tolist()  # three episodes of one row each
        [0.1, 0.33, 0.57]
    """

    base: float = setting(default=0.0, low=0.0, below=math.inf)
    """What every row has beside its share. The authors' code: 0, and 0.2 for AntMaze."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        check(self)
        require_episodes(dataset, "red")
        rows = np.repeat(unit(dataset.returns, dataset.returns) + self.base, dataset.episodes.length)
        return rows / rows.sum() if rows.any() else np.full(len(dataset), 1 / len(dataset))


def boltzmann(dataset: Dataset, score: np.ndarray, temperature: float) -> np.ndarray:
    """[rows] p ∝ exp(score / η), with the score of each episode scaled to [0, 1]."""
    return over_rows(dataset, np.exp((unit(score, dataset.returns) - 1) / temperature))
