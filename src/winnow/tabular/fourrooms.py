"""Four rooms: can weights join pieces of episodes, none of which is optimal? Every answer here is exact or a table.

A thousand episodes lead from one room to the opposite one, none by a shortest way. Each way of weighing them is judged
by what it reports (J), by whether the weighted data conserves flow, by how far it is from optimal data, and by what the
policy that it makes is worth in the true grid.
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
"""Of `density`'s tables at first; it falls in the stages of `winnow.tabular.density`."""


@dataclass(frozen=True)
class Settings:
    """What is compared: each field adds rows to the table."""

    episodes: int = 1000
    """Episodes of the behaviour policy."""
    random: float = 0.5
    """How often the behaviour policy moves at random; else it follows a shortest way."""
    aw: tuple[float, ...] = (0.1,)
    """η of advantage weighting."""
    pf: tuple[float, ...] = (0.1,)
    """Share of the episodes that percentage filtering keeps."""
    density: tuple[tuple[float, float], ...] = ((0.2, 0.1), (1.0, 1.0))
    """(λK, λF) of `paper` and `code`: those published with CQL and TD3+BC, and those with IQL."""
    dual: tuple[float, ...] = (0.003,)
    """λ of `dual`. What it learns with its own settings, a budget of nats, is always shown too."""

    def __post_init__(self) -> None:
        if self.episodes < 1:
            raise BadInput(f"episodes is {self.episodes}; give 1 or more")
        if not 0 < self.random <= 1:
            raise BadInput(f"random is {self.random}; it lies above 0 (else every episode is a shortest one), up to 1")
        for name in ("aw", "pf", "dual"):
            if any(not value > 0 for value in getattr(self, name)):
                raise BadInput(f"{name} is {getattr(self, name)}; each number must be above 0")
        if any(value > 1 for value in self.pf):
            raise BadInput(f"pf is {self.pf}; each number is a part of the episodes, at most 1")
        if any(not min(pair) >= 0 for pair in self.density):
            raise BadInput(f"density is {self.density}; λK and λF are at least 0")


class Row(NamedTuple):
    """One way of weighing one dataset."""

    form: str
    judged: Judged
    kl: float | None  # KL(D_w‖D) in nats; None where it is no weighting of the data
    map: np.ndarray  # [S, 4] the part of the weighted data that each pair (s, a) has


@dataclass(frozen=True)
class Seed:
    """One dataset and all ways of weighing it."""

    seed: int
    rows: tuple[Row, ...]
    numbers: dict[str, float]


def run(
    slip: float, seeds: int, settings: Settings | None = None, done: Callable[[int], None] = lambda seed: None
) -> list[Seed]:
    """A dataset for each seed, each weighed in every way. `done` is called after each of them."""
    if not 0 <= slip < 0.5:
        raise BadInput(f"slip is {slip}; each side has that probability, so it is at least 0 and below 0.5")
    if seeds < 1:
        raise BadInput(f"seeds is {seeds}; give 1 or more")
    settings, grid, out = settings or Settings(), Grid(slip), []
    for seed in range(seeds):
        out.append(_measure(collect(grid, seed, settings.episodes, settings.random), seed, settings))
        done(seed)
    return out


def _measure(data: Data, seed: int, settings: Settings) -> Seed:
    best, plan = linear_program(data)
    grid, length = data.grid, data.dataset.episodes.length
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
    """Each way of weighing the data, by name, as log mass."""
    with np.errstate(divide="ignore"):
        yield "linear program", np.log(np.maximum(plan, 0))  # a solver's zero may lie below it
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
    """The mean of the policy's reward as a part of the best policy's."""


def summarise(found: Sequence[Seed], best: float) -> list[Summary]:
    """One line for each form, in the order of the rows."""
    out = []
    for place, first in enumerate(found[0].rows):
        judged = [seed.rows[place].judged for seed in found]
        of = {name: _estimate([getattr(one, name) for one in judged]) for name in MEASURES}
        out.append(Summary(first.form, of, of["value"].value / best))
    return out


def _estimate(values: Sequence[float]) -> stats.Estimate:
    """The mean and its bootstrap interval over seeds."""
    return stats.interval({"rooms": np.asarray(values)}, stats.mean, resamples=10_000)


def record(found: Sequence[Seed]) -> Mapping[str, Any]:
    """Raw values of every seed and form, and the maps of the first seed, as JSON can hold them."""
    return {
        "seeds": [
            {
                "seed": seed.seed,
                "data": seed.numbers,
                "rows": [{"form": row.form, **row.judged._asdict(), "kl": row.kl} for row in seed.rows],
            }
            for seed in found
        ],
        "maps": {row.form: np.round(row.map, 7).tolist() for row in found[0].rows},
    }
