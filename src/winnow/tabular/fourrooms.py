"""Four rooms: can weights join segments of episodes, none of which is optimal? Every answer is exact or a table.

A thousand episodes lead from one room to the opposite one, none by a shortest path. Each weighting of them has four
measures: the average reward that it reports (J), whether the weighted data conserves flow, its distance from optimal
data, and the true value of the policy extracted from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from winnow import stats
from winnow.errors import BadInput
from winnow.samplers import AW, PF
from winnow.tabular import judge as judging
from winnow.tabular.data import Data, collect
from winnow.tabular.density import learn_density
from winnow.tabular.exact import exact_budget, exact_dual, linear_program
from winnow.tabular.grid import Grid
from winnow.tabular.judge import Judged
from winnow.weighters import Density, Dual

LEARNING_RATE = 0.03
"""Initial learning rate of `density`'s tables; it decreases in the stages of `winnow.tabular.density`."""


@dataclass(frozen=True)
class Settings:
    """What is compared: each field adds rows to the table."""

    episodes: int = 1000
    """Episodes of the behaviour policy."""
    random: float = 0.5
    """Probability that the behaviour policy moves at random; otherwise it follows a shortest path."""
    aw: tuple[float, ...] = (0.1,)
    """η of advantage weighting."""
    pf: tuple[float, ...] = (0.1,)
    """Share of the episodes that percentage filtering keeps."""
    density: tuple[tuple[float, float], ...] = ((0.2, 0.1), (1.0, 1.0))
    """(λK, λF) of `paper` and `code`: those published with CQL and TD3+BC, and those with IQL."""
    dual: tuple[float, ...] = (0.003,)
    """λ of `dual`. Its result with default settings, a budget in nats, is always shown too."""

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise BadInput(f"episodes must be at least 1, got {self.episodes}")
        if not 0 < self.random <= 1:
            raise BadInput(
                f"random must be above 0 (or every episode would be a shortest one) and at most 1, got {self.random}"
            )
        for name in ("aw", "pf", "dual"):
            if any(not value > 0 for value in getattr(self, name)):
                raise BadInput(f"{name}: each number must be above 0, got {getattr(self, name)}")
        if any(value > 1 for value in self.pf):
            raise BadInput(f"pf: each number must be at most 1 (a fraction of the episodes), got {self.pf}")
        if any(not min(pair) >= 0 for pair in self.density):
            raise BadInput(f"density: λK and λF must be at least 0, got {self.density}")


class Row(NamedTuple):
    """One weighting of one dataset."""

    form: str
    judged: Judged
    kl: float | None  # KL(D_w‖D) in nats; None for the optimal policy, which is not a weighting of the data
    map: np.ndarray  # [S, 4] fraction of the weighted data of each pair (s, a)


@dataclass(frozen=True)
class Seed:
    """One dataset and all its weightings."""

    seed: int
    rows: tuple[Row, ...]
    numbers: dict[str, float]


def run(
    slip: float, seeds: int, settings: Settings | None = None, done: Callable[[int], None] = lambda seed: None
) -> list[Seed]:
    """A dataset for each seed, each with every weighting. `done` is called after each dataset."""
    if not 0 <= slip < 0.5:
        raise BadInput(f"slip must be at least 0 and below 0.5 (the probability of each side), got {slip}")
    if seeds < 1:
        raise BadInput(f"seeds must be at least 1, got {seeds}")
    settings = settings or Settings()
    grid = Grid(slip)
    out = []
    for seed in range(seeds):
        out.append(_measure(collect(grid, seed, settings.episodes, settings.random), seed, settings))
        done(seed)
    return out


def _measure(data: Data, seed: int, settings: Settings) -> Seed:
    best, plan = linear_program(data)
    grid = data.grid
    length = data.dataset.episodes.length
    often = grid.occupancy(grid.optimal)
    assert often is not None
    rows = [Row("optimal policy", Judged(grid.best, 0.0, 0.0, grid.best), None, often)]
    for form, log_mass in _ways(data, settings, plan):
        mass = np.exp(log_mass)
        kl = float(mass[mass > 0] @ (log_mass - np.log(data.share))[mass > 0])
        rows.append(Row(form, judging.judge(data, log_mass, "grid"), kl, judging.pairs(data, log_mass)))
    numbers = {
        "rows": float(len(data.dataset)),
        "shortest": float(length.min()),
        "mean": float(length.mean()),
        "pairs": float(len(np.unique(data.pair))),
        "linear program": best,
        "linear program by outcome": linear_program(data, "edge")[0],
    }
    return Seed(seed, tuple(rows), numbers)


def _ways(data: Data, settings: Settings, plan: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Each weighting of the data, by name, as log mass."""
    with np.errstate(divide="ignore"):
        yield "linear program", np.log(np.maximum(plan, 0))  # a solver's zeros may be slightly negative
    yield "behaviour", judging.from_rows(data)
    for eta in settings.aw:
        yield f"AW η={eta:g}", judging.from_rows(data, sampler=AW(eta))
    for share in settings.pf:
        yield f"PF {100 * share:g} %", judging.from_rows(data, sampler=PF(share))
    yield "best episode alone", judging.from_rows(data, sampler=PF(1 / len(data.dataset.episodes)))
    for form in ("paper", "code") if settings.density else ():
        weighters = [
            Density(form=form, lambda_k=lambda_k, lambda_f=lambda_f, learning_rate=LEARNING_RATE, hidden=())
            for lambda_k, lambda_f in settings.density
        ]
        for weighter, log_weight in zip(weighters, learn_density(data, weighters), strict=True):
            name = f"DW {form} ({weighter.lambda_k:g}, {weighter.lambda_f:g})"
            yield name, judging.from_edges(data, log_weight)
    usual = Dual()
    spent = exact_budget(data, usual.budget, usual.least_temperature)[1]
    yield f"DW dual ε={usual.budget:g} λ≥{usual.least_temperature:g}", judging.from_edges(data, spent)
    for heat in settings.dual:
        yield f"DW dual λ={heat:g}", judging.from_edges(data, exact_dual(data, heat))
        if data.grid.slip > 0:
            yield f"DW dual λ={heat:g} by (s,a)", judging.from_edges(data, exact_dual(data, heat, by="pair"))


# ------------------------------------------------------------------------------------------------------- summary

MEASURES = {
    "reported": "J(D_w)",
    "flow": "flow residual",
    "distance": "distance",
    "value": "policy's reward",
}


class Summary(NamedTuple):
    """A form over all seeds: the mean of each measure with its interval over seeds."""

    form: str
    of: dict[str, stats.Estimate]  # by the names of `MEASURES`
    optimum: float
    """The mean of the policy's reward as a fraction of the best policy's."""


def summarise(seeds: Sequence[Seed], best: float) -> list[Summary]:
    """One line for each form, in the order of the rows."""
    out = []
    for number, first in enumerate(seeds[0].rows):
        judged = [seed.rows[number].judged for seed in seeds]
        of = {name: _estimate([getattr(result, name) for result in judged]) for name in MEASURES}
        out.append(Summary(first.form, of, of["value"].value / best))
    return out


def _estimate(values: Sequence[float]) -> stats.Estimate:
    """The mean and its bootstrap interval over seeds."""
    return stats.interval({"rooms": np.asarray(values)}, stats.mean, resamples=10_000)


def record(seeds: Sequence[Seed]) -> Mapping[str, Any]:
    """Raw values of every seed and form, and the maps of the first seed, as plain JSON."""
    return {
        "seeds": [
            {
                "seed": seed.seed,
                "data": seed.numbers,
                "rows": [{"form": row.form, **row.judged._asdict(), "kl": row.kl} for row in seed.rows],
            }
            for seed in seeds
        ],
        "maps": {row.form: np.round(row.map, 7).tolist() for row in seeds[0].rows},
    }
