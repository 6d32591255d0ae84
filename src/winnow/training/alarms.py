"""What a run's own numbers say against it while it trains: a critic that diverges, a policy that memorises its rows,
weights that weigh nothing or hardly any row.

Each alarm is raised once for a run. It does not stop the run: it says which run, what was seen, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from winnow.data.scaling import reward_transform
from winnow.packs.run import Run

FEW, MOST = 0.02, 0.98
"""A weighter's effective share of a batch below and above which its weights have degenerated."""
SETTLED = 0.25
"""Weights begin even: only after this part of a run do they have to differ."""
MARGIN = 1.05
"""A value may exceed its bound by rounding and by a critic that still swings, as a factor."""
FAR = 10.0
"""A single row's value this many times above its bound means that the critic diverges. Below that single rows say
little: policies whose critic was three times too high on single rows earned what the others did."""
RISE = 0.1
"""Nats for each number of an action by which the likelihood of rows that are held out may fall."""
WORSE = 1.2
"""The same for a squared error, as a factor."""


@dataclass
class Watch:
    """One run's alarms. It is given every line of metrics, in order, and says what is new."""

    run: Run
    steps: int
    """Updates that the run will have."""
    raised: dict[str, str] = field(default_factory=dict)
    """The warning of each alarm that was raised, by its name."""
    _best: dict[str, dict[str, float]] = field(default_factory=dict)
    _bound: float = field(init=False)

    def __post_init__(self) -> None:
        self._bound = greatest_value(self.run)

    def look(self, step: int, metrics: Mapping[str, float]) -> list[str]:
        """New warnings from the metrics after so many updates."""
        critic = self._critic(metrics)
        warnings = {
            "critic": critic,
            "values": None if critic else self._values(metrics),
            "memory": self._memory(step, metrics),
            "weights": self._weights(step, metrics),
        }
        fresh = {name: text for name, text in warnings.items() if text and name not in self.raised}
        self.raised |= fresh
        return list(fresh.values())

    def replay(self, lines: Iterable[dict[str, Any]]) -> None:
        """Read the metrics of an earlier call, whose warnings were shown already."""
        for line in lines:
            self.look(line["step"], {name: value for name, value in line.items() if isinstance(value, float)})

    def _critic(self, metrics: Mapping[str, float]) -> str | None:
        largest = max(-metrics.get("q/min", 0.0), metrics.get("q/max", 0.0))
        if abs(metrics.get("q/mean", 0.0)) <= MARGIN * self._bound and largest <= FAR * self._bound:
            return None
        return (
            f"its critic diverges: |Q| is {largest:.4g}, and no policy can earn more than {self._bound:.4g} (the "
            "largest reward for ever); do not use this run, and lower its learning rate or look at its rewards"
        )

    def _values(self, metrics: Mapping[str, float]) -> str | None:
        largest = max(-metrics.get("q/min", 0.0), metrics.get("q/max", 0.0))
        if not np.isfinite(self._bound) or largest <= MARGIN * self._bound:
            return None
        return (
            f"its critic is wrong on single rows: |Q| reaches {largest:.4g}, and no policy can earn more than "
            f"{self._bound:.4g} (the largest reward for ever); look for rows with extreme observations, and do not "
            "read its Q as an estimate of returns"
        )

    def _memory(self, step: int, metrics: Mapping[str, float]) -> str | None:
        for kind in ("nll", "error"):
            drawn, on_held_out = metrics.get(f"{kind}/drawn"), metrics.get(f"{kind}/held_out")
            if drawn is None or on_held_out is None:
                continue
            best = self._best.setdefault(kind, {"held": on_held_out, "drawn": drawn, "step": step})
            if on_held_out < best["held"]:
                best |= {"held": on_held_out, "drawn": drawn, "step": step}
            elif self._memorises(kind, best, drawn, on_held_out):
                what = "negative log-likelihood" if kind == "nll" else "squared error"
                return (
                    f"its policy memorises rows: on rows held out of training the {what} of actions has risen from "
                    f"{best['held']:.3g} after {best['step']:,.0f} updates to {on_held_out:.3g}, while it fell on "
                    "sampled rows; train for fewer updates, or on more rows"
                )
        return None

    def _memorises(self, kind: str, best: Mapping[str, float], drawn: float, on_held_out: float) -> bool:
        if kind == "error":
            return on_held_out > WORSE * best["held"] and drawn < best["drawn"] / WORSE
        spec = self.run.spec
        rise = RISE * (spec.action_dim if spec.action_kind == "continuous" else 1)
        return on_held_out - best["held"] > rise and best["drawn"] - drawn > rise

    def _weights(self, step: int, metrics: Mapping[str, float]) -> str | None:
        share = metrics.get("weight/ess")
        if share is None or "weighter/loss" not in metrics:  # the weighter learns nothing
            return None
        if share < FEW:
            return (
                f"its weights leave hardly any row: {100 * share:.1f} % of a batch are effective; make the weighter's "
                "regulariser stronger (weighter.lambda_k, weighter.budget or weighter.temperature)"
            )
        if share > MOST and step >= SETTLED * self.steps:
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
