"""Samplers: how often a row is drawn. Probabilities are fixed before training; drawing one costs two look-ups.

A sampler is a frozen dataclass with `probabilities(dataset) -> [rows]`. It needs numpy alone; only ODPR-A,
continued returns and what follows them fit a network first.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol

import numpy as np

from winnow.data.dataset import Dataset
from winnow.errors import BadInput


class Sampler(Protocol):
    def probabilities(self, dataset: Dataset) -> np.ndarray:
        """[rows] float64, ≥ 0, sums to 1."""
        ...


@dataclasses.dataclass(frozen=True)
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


@dataclasses.dataclass(frozen=True)
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

    temperature: float = 0.1
    """η: the lower, the more the best episodes are drawn. The paper's grid: 0.01, 0.1–0.2, 1, 5."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        _need_episodes(dataset, "aw")
        start = dataset.start_obs.astype(np.float64)
        design = np.column_stack([np.ones(len(start)), start])
        fit, *_ = np.linalg.lstsq(design, dataset.returns, rcond=None)
        return _boltzmann(dataset, dataset.returns - design @ fit, self.temperature, "aw")


@dataclasses.dataclass(frozen=True)
class RW:
    """Return weighting: as AW with the return itself in place of the advantage.

    Examples:
        >>> from winnow import from_arrays
        >>> data = from_arrays([[0.0]] * 3, [[0.0]] * 3, [1.0, 5.0, 9.0], terminals=[1] * 3, timeouts=[0] * 3)
        >>> RW(temperature=1.0).probabilities(data).round(2).tolist()  # three episodes of one row each
        [0.19, 0.31, 0.51]
    """

    temperature: float = 0.1
    """η: the lower, the more the best episodes are drawn."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        _need_episodes(dataset, "rw")
        return _boltzmann(dataset, dataset.returns, self.temperature, "rw")


@dataclasses.dataclass(frozen=True)
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

    share: float = 0.1
    """Part of the episodes to keep, by return, at least one. The paper's grid: 0.1, 0.2, 0.5."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        _need_episodes(dataset, "pf")
        if not 0 < self.share <= 1:
            raise BadInput(f"sampler.share is {self.share}; it is a part of the episodes, above 0 and at most 1")
        keep = max(1, int(self.share * len(dataset.episodes) + 1e-9))  # 0.29 × 100 is 29
        best = np.argsort(-dataset.returns, kind="stable")[:keep]
        kept = np.zeros(len(dataset.episodes))
        kept[best] = 1
        return _over_rows(dataset, kept)


@dataclasses.dataclass(frozen=True)
class ReD:
    """Return-based data rebalancing: rows in proportion to their episode's return (Yue et al., 2022, arXiv:2210.09241).

    p ∝ (G − min G) / (max G − min G) + base. ODPR-R (Yue et al., 2023, arXiv:2306.05412) draws by the same numbers.

    Examples:
        >>> from winnow import from_arrays
        >>> data = from_arrays([[0.0]] * 3, [[0.0]] * 3, [1.0, 5.0, 9.0], terminals=[1] * 3, timeouts=[0] * 3)
        >>> ReD(base=0.2).probabilities(data).round(2).tolist()  # three episodes of one row each
        [0.1, 0.33, 0.57]
    """

    base: float = 0.0
    """What every row has beside its share. The authors' code: 0, and 0.2 for AntMaze."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        _need_episodes(dataset, "red")
        if not 0 <= self.base < np.inf:
            raise BadInput(f"sampler.base is {self.base}; it must be a number of at least 0")
        rows = np.repeat(_unit(dataset.returns, dataset.returns) + self.base, dataset.episodes.length)
        return rows / rows.sum() if rows.any() else np.full(len(dataset), 1 / len(dataset))


@dataclasses.dataclass(frozen=True)
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

    iterations: int = 5
    """How often V is fitted and priorities multiplied. The authors use 4 for BC and IQL, 5 for TD3+BC."""
    steps: int = 20_000
    """Updates of V in each iteration, of 256 rows; at most 100 passes over the dataset."""
    fits: int = 1
    """Fits from other random numbers, to take the mean of their priorities. The authors: 3."""
    deviation: float = 2.0
    """Standard deviation of the priorities, whose mean is 1, before the least one is raised."""
    least: float = 0.1
    """No row is drawn less often than this part of its share in the dataset, about."""
    discount: float = 0.99
    """γ of V."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of V."""
    seed: int = 0
    """Of the fits. It is not the run's: all seeds of a run draw alike."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        _need_counts(self, "iterations", "steps", "fits")
        _need_within(self, deviation=(0, np.inf), least=(0, 1), discount=(0, 1))
        from winnow.samplers.fits.odpr import priorities, spread

        return spread(priorities(dataset, self), self.deviation, self.least)


@dataclasses.dataclass(frozen=True)
class Continued:
    """The better episodes, by returns continued past their last row: G = Σ γᵏ r_k + γᵗ V(s_t), V fitted to the data.

    For pieces of episodes and for logs cut at some length, whose own returns say more of their length than of their
    worth. p ∝ 1 / (1 + exp((level − G)/η)) with G scaled to [0, 1]: all that are well above the level are drawn alike,
    so that a good episode's start, which promises less than its middle, is not left out.

    Examples:
        >>> from winnow import from_arrays
        >>> data = from_arrays([[0.0]] * 3, [[0.0]] * 3, [1.0, 5.0, 9.0], terminals=[1] * 3, timeouts=[0] * 3)
        >>> Continued(rounds=1, steps=10).probabilities(data).round(2).tolist()  # three episodes of one row each
        [0.0, 0.33, 0.67]
    """

    level: float = 0.5
    """How far an episode must be on the way from the worst to the best to be drawn half as often as the best."""
    temperature: float = 0.03
    """η: how soft the level is. With a level of 1 or more this is p ∝ exp(G/η), as RW draws."""
    discount: float = 0.995
    """γ of G and V: the higher, the less a poor start counts against an episode that gets somewhere."""
    rounds: int = 10
    """How often V is fitted to what it was the round before. A round carries values back by a whole piece."""
    steps: int = 4_000
    """Updates of V in each round, of 256 rows; at most 100 passes over the dataset."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of V."""
    seed: int = 0
    """Of the fit. It is not the run's: all seeds of a run draw alike."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        return _over_rows(dataset, self.by_where_it_leads(dataset, "continued"))

    def by_where_it_leads(self, dataset: Dataset, name: str) -> np.ndarray:
        """[episodes] how likely a row of each is drawn, 1 at the most. Messages call the sampler by its name."""
        _need_episodes(dataset, name)
        _need_counts(self, "rounds", "steps")
        _need_within(self, discount=(0, 1))
        _need_heat(self.temperature, name)
        from winnow.samplers.fits.continued import continued_returns

        return self.by_level(dataset, continued_returns(dataset, self))

    def by_level(self, dataset: Dataset, score: np.ndarray) -> np.ndarray:
        """[episodes] how likely a row of each is drawn, 1 at the most, by a score of each."""
        # A few pieces end where V was hardly fitted; they may not set the scale.
        ends = np.quantile(np.repeat(score, dataset.episodes.length), (0.05, 0.995), method="nearest")
        above = (_unit(np.clip(score, *ends), score) - self.level) / self.temperature
        return np.exp(-np.logaddexp(0, -above))


@dataclasses.dataclass(frozen=True)
class Followed(Continued):
    """`continued`, and what belongs to it: pieces that begin where most of what passes is drawn, whatever becomes of
    them, or that end where nearly all is.

    So all that a good policy does is drawn, its slow starts and its falls among it, and values learn of these.

    Examples:
        >>> from winnow import from_arrays
        >>> data = from_arrays([[0.0]] * 3, [[0.0]] * 3, [1.0, 5.0, 9.0], terminals=[1] * 3, timeouts=[0] * 3)
        >>> Followed(rounds=1, steps=10).probabilities(data).round(2).tolist()  # three episodes of one row each
        [0.0, 0.33, 0.67]
    """

    passes: int = 5
    """How often pieces are added. Each pass goes on by a piece, about; it is the last if hardly any are."""
    begins: float = 0.5
    """How much of what passes must be drawn where a piece begins. Bad data is the majority where episodes start."""
    ends: float = 0.8
    """How much must be drawn where a piece ends."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        _need_counts(self, "passes")
        _need_within(self, begins=(0, 1), ends=(0, 1))
        from winnow.samplers.fits.followed import with_followers

        return _over_rows(dataset, with_followers(dataset, self.by_where_it_leads(dataset, "followed"), self))


@dataclasses.dataclass(frozen=True)
class Source:
    """The rows of one source alone. It reads labels that data of one's own hardly ever have: the mark to reach, not a
    method.

    Examples:
        >>> from winnow import toy
        >>> data = toy.imbalanced(1_000, share=0.1)  # of random's rows and expert's
        >>> bool((data.source[Source().probabilities(data) > 0] == data.meta.sources.index("expert")).all())
        True
    """

    label: str = ""
    """Which source; empty for the one whose episodes return most on average."""

    def probabilities(self, dataset: Dataset) -> np.ndarray:
        labels = dataset.meta.sources
        if self.label:
            if self.label not in labels:
                known = f"it has {', '.join(labels)}" if labels else "its rows have none"
                raise BadInput(f"{dataset.meta.name}: sampler.label is {self.label!r}, which is no source; {known}")
            chosen = labels.index(self.label)
        else:
            _need_episodes(dataset, "source")
            count = np.bincount(dataset.episodes.source)
            total = np.bincount(dataset.episodes.source, dataset.returns)
            chosen = int(np.argmax(np.where(count > 0, total / np.maximum(count, 1), -np.inf)))
        kept = (dataset.source == chosen).astype(np.float64)
        return kept / kept.sum()


SAMPLERS: dict[str, type] = {
    "uniform": Uniform,
    "aw": AW,
    "pf": PF,
    "rw": RW,
    "red": ReD,
    "odpr-a": ODPRA,
    "continued": Continued,
    "followed": Followed,
    "source": Source,
}


def _need_episodes(dataset: Dataset, name: str) -> None:
    if not dataset.has_episodes:
        raise BadInput(
            f"{dataset.meta.name}: is {dataset.meta.kind} data, and {name} needs the returns of whole episodes; "
            "use a method that weighs single rows (dual-uniform, dw-uniform, odpr-a) or uniform"
        )


def _need_counts(sampler: Sampler, *names: str) -> None:
    for name in names:
        if getattr(sampler, name) < 1:
            raise BadInput(f"sampler.{name} is {getattr(sampler, name)}; it must be at least 1")


def _need_within(sampler: Sampler, **ranges: tuple[float, float]) -> None:
    for name, (low, high) in ranges.items():
        if not low <= getattr(sampler, name) < high:
            raise BadInput(f"sampler.{name} is {getattr(sampler, name)}; it must be at least {low} and below {high}")


def _over_rows(dataset: Dataset, drawn: np.ndarray) -> np.ndarray:
    """[rows] probabilities from how likely a row of each episode is drawn."""
    rows = np.repeat(drawn, dataset.episodes.length)
    return rows / rows.sum()


def _need_heat(temperature: float, name: str) -> None:
    if not temperature > 0:
        raise BadInput(f"sampler.temperature is {temperature}; {name} needs one above 0")


def _boltzmann(dataset: Dataset, score: np.ndarray, temperature: float, name: str) -> np.ndarray:
    _need_heat(temperature, name)
    return _over_rows(dataset, np.exp((_unit(score, dataset.returns) - 1) / temperature))


def _unit(score: np.ndarray, source: np.ndarray) -> np.ndarray:
    """A score of each episode, scaled to [0, 1]; 0 for all where they are alike, seen from the size of their source."""
    span = score.max() - score.min()
    # What is left by rounding where the start explains every return is no advantage.
    flat = span <= 1e-9 * np.abs(source).max()
    return np.zeros_like(score) if flat else (score - score.min()) / span


# ------------------------------------------------------------------------------------------------ drawing


class Alias(NamedTuple):
    """A table for drawing in constant time: take column i at random, keep it with `keep[i]`, else `other[i]`."""

    keep: np.ndarray  # [rows] float32
    other: np.ndarray  # [rows] int32


def alias_table(probability: np.ndarray) -> Alias:
    """Walker's alias table, built in float64 with sums and searches over whole arrays.

    Lay the deficits of light columns (p < mean) and the surpluses of heavy ones end to end. A light column borrows
    from the heavy one that its deficit begins in. A heavy column whose last borrower reaches beyond its surplus is
    itself short by that overhang, and borrows it from the next heavy column.
    """
    scaled = np.asarray(probability, np.float64) * (len(probability) / np.sum(probability, dtype=np.float64))
    light, heavy = np.flatnonzero(scaled < 1), np.flatnonzero(scaled >= 1)
    keep, other = np.ones(len(scaled)), np.arange(len(scaled))
    if len(light) == 0 or len(heavy) == 0:  # all equal, to rounding
        return Alias(keep.astype(np.float32), other.astype(np.int32))
    deficit = np.cumsum(1 - scaled[light])
    surplus = np.cumsum(scaled[heavy] - 1)
    begins = np.concatenate([[0.0], deficit[:-1]])
    lender = np.minimum(np.searchsorted(surplus, begins, side="right"), len(heavy) - 1)
    keep[light], other[light] = scaled[light], heavy[lender]
    last = np.searchsorted(deficit, surplus, side="left")
    # The last heavy columns may have no borrower at their edge (rounding), and those before any surplus lend nothing.
    short = (last < len(light)) & (surplus > 0)
    overhang = np.where(short, deficit[np.minimum(last, len(light) - 1)] - surplus, 0.0)
    keep[heavy] = np.clip(1 - overhang, 0.0, 1.0)
    other[heavy] = heavy[np.minimum(np.arange(len(heavy)) + 1, len(heavy) - 1)]
    return Alias(keep.astype(np.float32), other.astype(np.int32))
