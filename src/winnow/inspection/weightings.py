"""Ways to weigh a dataset's rows, and what each amounts to: uniform, AW, PF, and what finished runs have learnt."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from winnow.data.advice import AUTO, Advice
from winnow.data.dataset import Dataset
from winnow.errors import BadInput
from winnow.samplers import AW, PF, checks
from winnow.system.files import file_stem

MOST_RUNS = 12
POINTS = 201
"""Points of a curve."""
BINS = 40
WIDEST = 6
"""Colours tell weights from 2⁻⁶ to 2⁶; what lies beyond is drawn as that."""


@dataclass(frozen=True)
class Weighting:
    """How much each row counts."""

    name: str
    description: str
    """What it does, in short."""
    weight: np.ndarray  # [rows] float64, its mean is 1: a row's share of the weighted data times the number of rows

    @cached_property
    def is_even(self) -> bool:
        """Whether all rows count alike, to rounding."""
        return bool(np.ptp(self.weight) <= 1e-6)

    @cached_property
    def octaves(self) -> int:
        """How many doublings up and down from 1 hold nearly all weights that are not 0; at least one."""
        positive = self.weight[self.weight > 0]
        far = np.abs(np.log2(np.quantile(positive, (0.01, 0.99)))).max()
        return int(np.clip(np.ceil(far - 1e-6), 1, WIDEST))


@dataclass(frozen=True)
class Summary:
    """What a weighting amounts to."""

    effective_share: float
    """(Σw)² / Σw² as a part of the rows: so many rows of equal weight would make estimates as noisy."""
    mean_return: float | None
    """Mean over weighted rows of the return of the episode they are in; None without episodes."""
    mean_reward: float
    shares: tuple[float, ...]
    """Part of the weight on each source."""
    largest: float | None
    """Part of the weight on the episode that has the most of it; None without episodes."""


def plain(data: Dataset) -> list[Weighting]:
    """What needs no training: uniform, and AW and PF where there are episodes."""
    from winnow.methods import make_sampler

    even = Weighting("uniform", "every row counts as it is in the data", np.ones(len(data)))
    if not data.has_episodes:
        return [even]
    aw, pf = (make_sampler(name) for name in ("aw", "pf"))
    assert isinstance(aw, AW)
    assert isinstance(pf, PF)
    better = f"rows of episodes that did better than their start promised, η = {aw.temperature:g}"
    best = f"rows of the best {100 * pf.share:g} % of the episodes and no others"
    return [
        even,
        Weighting("aw", better, len(data) * aw.probabilities(data)),
        Weighting("pf", best, len(data) * pf.probabilities(data)),
    ]


def recommended(data: Dataset, advice: Advice) -> Weighting | None:
    """What the recommended method samples; None where its weights are learned while it trains, and nothing is sampled
    unevenly."""
    from winnow.methods import METHODS, for_dataset

    if METHODS[advice.method][0] == "uniform":
        return None
    sampler = for_dataset(AUTO, data).sampler
    weight = len(data) * sampler.probabilities(data)
    refused = checks.fallback(data, sampler).removeprefix(f"{data.meta.name}: ")
    return Weighting(advice.method, refused or f"recommended, since {advice.why}", weight)


def of_runs(data: Dataset, paths: Sequence[Path], say: Callable[[str], None]) -> list[Weighting]:
    """What finished runs do with the rows of their dataset."""
    from winnow.plugins import record
    from winnow.training.trained import Trained

    if len(paths) > MOST_RUNS:
        raise BadInput(f"--run names {len(paths)} runs; one page can tell {MOST_RUNS} apart, choose among them")
    by_path: dict[Path, Weighting] = {}
    for path in paths:
        say(f"weighing every row with {path.stem}")
        trained = Trained.load(path, data)
        if trained.failure:
            raise BadInput(f"{path}: this run failed ({trained.failure}); it has no weights")
        run = trained.run
        parts = [record(part)["name"] for part in (run.algorithm, run.sampler, run.weighter)]
        description = "{} with {} sampling and the weighter {}".format(*parts) + f", {trained.steps:,} updates"
        by_path[path] = Weighting(
            run.name.removeprefix(f"{file_stem(data.meta.name)}."), description, trained.weights().weight
        )
    if len({weighting.name for weighting in by_path.values()}) < len(by_path):  # of several folders
        return [
            dataclasses.replace(weighting, name=f"{path.parent.name}/{weighting.name}")
            for path, weighting in by_path.items()
        ]
    return list(by_path.values())


# --------------------------------------------------------------------------------------------- what it amounts to


def summary(data: Dataset, weight: np.ndarray) -> Summary:
    rows = len(data)
    total = weight.sum()
    shares = np.bincount(data.source, weight, len(data.meta.sources)) / total
    mean_return = None
    largest = None
    if data.has_episodes:
        of_episode = np.add.reduceat(weight, data.episodes.start) / total
        mean_return = float(of_episode @ data.returns)
        largest = float(of_episode.max())
    return Summary(
        effective_share=float(total**2 / (weight @ weight) / rows),
        mean_return=mean_return,
        mean_reward=float(weight @ data.reward / total),
        shares=tuple(map(float, shares)),
        largest=largest,
    )


def scores(data: Dataset) -> np.ndarray:
    """[rows] what makes a row good at first sight: the return of its episode, or its reward without episodes."""
    return np.repeat(data.returns, data.episodes.length) if data.has_episodes else data.reward.astype(np.float64)


def on_the_best(score: np.ndarray, weights: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """How much of each weight lies on the best part of the rows, from none to all of them. Rows with one score share
    its weight evenly, so that their order says nothing."""
    value, code = np.unique(-score, return_inverse=True)
    count = np.concatenate([[0], np.cumsum(np.bincount(code, minlength=len(value)))])
    part = np.linspace(0, 1, POINTS)
    lines = []
    for weight in weights:
        mass = np.concatenate([[0], np.cumsum(np.bincount(code, weight, len(value)))])
        lines.append(np.interp(part * count[-1], count, mass / mass[-1]))
    return part, lines


def over_scores(score: np.ndarray, weights: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Edges of bins, and the part of each weight that lies in each."""
    low = float(score.min())
    high = float(score.max())
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    bin_of_row = np.clip(np.searchsorted(edges, score, side="right") - 1, 0, BINS - 1)
    return edges, [np.bincount(bin_of_row, weight, BINS) / weight.sum() for weight in weights]


def along_episodes(data: Dataset, weights: Sequence[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The mean weight of the rows at each step of their episodes, in at most `POINTS` stretches of steps."""
    step = data.step
    edges = np.unique(np.linspace(0, int(step.max()) + 1, POINTS).astype(int))
    bin_of_row = np.searchsorted(edges, step, side="right") - 1
    count = np.bincount(bin_of_row, minlength=len(edges) - 1)
    seen = count > 0
    means = [np.bincount(bin_of_row, weight, len(edges) - 1)[seen] / count[seen] for weight in weights]
    return edges[:-1][seen], means
