"""Warnings from a run's own metrics while it trains: a critic that diverges, a policy that overfits, weights that are
almost uniform or concentrated on a few rows.

Each alarm is raised once for a run and does not stop it. Its text says what was observed and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from winnow.data.scaling import reward_transform
from winnow.packs.run import Run

MIN_EFFECTIVE_SHARE = 0.02
MAX_EFFECTIVE_SHARE = 0.98
"""A weighter's weights have degenerated if its effective share of a batch is below the first or above the second."""
UNIFORM_UNTIL = 0.25
"""Weights begin uniform: they are expected to differ only after this fraction of a run."""
VALUE_MARGIN = 1.05
"""Factor by which a value may exceed its bound: by rounding, and while the critic still oscillates."""
DIVERGED = 10.0
"""Factor above its bound at which the value of a single row means that the critic diverges. Smaller excesses on single
rows say little: policies whose critic was three times too high on single rows earned as much as others."""
MAX_NLL_RISE = 0.1
"""Largest rise of the negative log-likelihood of held-out rows, in nats per dimension of the action."""
MAX_ERROR_RATIO = 1.2
"""The same for a squared error, as a factor."""


@dataclass
class Watch:
    """The alarms of one run. It is given all lines of metrics in order, and returns new warnings."""

    run: Run
    steps: int
    """Number of updates of the whole run."""
    raised: dict[str, str] = field(default_factory=dict)
    """The text of each alarm raised so far, by its name."""
    _best: dict[str, dict[str, float]] = field(default_factory=dict)
    _bound: float = field(init=False)

    def __post_init__(self) -> None:
        self._bound = greatest_value(self.run)

    def look(self, step: int, metrics: Mapping[str, float]) -> list[str]:
        """New warnings from the metrics after `step` updates."""
        critic = self._critic(metrics)
        alarms = {
            "critic": critic,
            "values": None if critic else self._values(metrics),
            "memory": self._memory(step, metrics),
            "weights": self._weights(step, metrics),
        }
        fresh = {name: text for name, text in alarms.items() if text and name not in self.raised}
        self.raised |= fresh
        return list(fresh.values())

    def replay(self, lines: Iterable[dict[str, Any]]) -> None:
        """Replay the metrics of an earlier call, whose warnings were given then."""
        for line in lines:
            self.look(line["step"], {name: value for name, value in line.items() if isinstance(value, float)})

    def _critic(self, metrics: Mapping[str, float]) -> str | None:
        largest = max(-metrics.get("q/min", 0.0), metrics.get("q/max", 0.0))
        if abs(metrics.get("q/mean", 0.0)) <= VALUE_MARGIN * self._bound and largest <= DIVERGED * self._bound:
            return None
        return (
            f"its critic diverges: |Q| is {largest:.4g}, and no policy can earn more than {self._bound:.4g} (the "
            "largest reward for ever); do not use this run, and lower its learning rate or look at its rewards"
        )

    def _values(self, metrics: Mapping[str, float]) -> str | None:
        largest = max(-metrics.get("q/min", 0.0), metrics.get("q/max", 0.0))
        if not np.isfinite(self._bound) or largest <= VALUE_MARGIN * self._bound:
            return None
        return (
            f"its critic is wrong on single rows: |Q| reaches {largest:.4g}, and no policy can earn more than "
            f"{self._bound:.4g} (the largest reward for ever); look for rows with extreme observations, and do not "
            "read its Q as an estimate of returns"
        )

    def _memory(self, step: int, metrics: Mapping[str, float]) -> str | None:
        for kind in ("nll", "error"):
            drawn = metrics.get(f"{kind}/drawn")
            held_out = metrics.get(f"{kind}/held_out")
            if drawn is None or held_out is None:
                continue
            best = self._best.setdefault(kind, {"held_out": held_out, "drawn": drawn, "step": step})
            if held_out < best["held_out"]:
                best |= {"held_out": held_out, "drawn": drawn, "step": step}
            elif self._overfits(kind, best, drawn, held_out):
                what = "negative log-likelihood" if kind == "nll" else "squared error"
                return (
                    f"its policy memorises rows: on held-out rows the {what} of actions has risen from "
                    f"{best['held_out']:.3g} after {best['step']:,.0f} updates to {held_out:.3g}, while it fell on "
                    "training rows; train for fewer updates, or on more rows"
                )
        return None

    def _overfits(self, kind: str, best: Mapping[str, float], drawn: float, held_out: float) -> bool:
        if kind == "error":
            return held_out > MAX_ERROR_RATIO * best["held_out"] and drawn < best["drawn"] / MAX_ERROR_RATIO
        spec = self.run.spec
        rise = MAX_NLL_RISE * (spec.action_dim if spec.action_kind == "continuous" else 1)
        return held_out - best["held_out"] > rise and best["drawn"] - drawn > rise

    def _weights(self, step: int, metrics: Mapping[str, float]) -> str | None:
        share = metrics.get("weight/ess")
        if share is None or "weighter/loss" not in metrics:  # the weighter learns nothing
            return None
        if share < MIN_EFFECTIVE_SHARE:
            return (
                f"its weights leave hardly any row: {100 * share:.1f} % of a batch are effective; make the weighter's "
                "regulariser stronger (weighter.lambda_k, weighter.budget or weighter.temperature)"
            )
        if share > MAX_EFFECTIVE_SHARE and step >= UNIFORM_UNTIL * self.steps:
            return (
                f"its weights weigh nothing: {100 * share:.1f} % of a batch are effective, as without weights; make "
                "the weighter's regulariser weaker (weighter.lambda_k, weighter.budget or weighter.temperature)"
            )
        return None


def greatest_value(run: Run) -> float:
    """max |r| / (1 − γ), with rewards as the algorithm reads them; infinity where γ is 1 or nothing is discounted."""
    discount = float(getattr(run.algorithm, "discount", 1.0))
    if discount >= 1:
        return float("inf")
    scale, shift = reward_transform(run.dataset, run.algorithm.reward_scaling)
    edges = [scale * float(edge) + shift for edge in (run.dataset.reward.min(), run.dataset.reward.max())]
    return max(map(abs, edges)) / (1 - discount)
