"""What a policy earned when it was played: rounds of episodes, and the score of several."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from winnow import envs
from winnow.system.metrics import read_metrics

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Round:
    """What one run's policy earned in one round, episode by episode."""

    run: str
    step: int
    """The updates it was trained for."""
    round: int | None
    """Which of the last rounds this is, from 1 on; None for one of the curve, and for one played after training."""
    environment: str
    returns: list[float] = dataclasses.field(default_factory=list)
    lengths: list[int] = dataclasses.field(default_factory=list)
    score: float | None = None
    """The mean return as a normalised score, where the environment has reference returns."""
    failed: str | None = None
    """Why there are no returns, if there are none."""

    def line(self) -> dict[str, Any]:
        """The round as plain JSON."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "failed" or value}

    def metrics(self) -> dict[str, Any]:
        """The round as a line of metrics: the mean return, and the score if there is one."""
        found = {"evaluation/return": float(np.mean(self.returns)) if self.returns else None}
        named = (found | {"evaluation/score": self.score}).items()
        return {"run": self.run, "step": self.step} | {name: value for name, value in named if value is not None}


def read_rounds(path: Path) -> list[Round]:
    """The rounds in a returns.jsonl, in its order; lines that are none are left out, as `read_metrics` does it."""
    found = []
    for line in read_metrics(path):
        with contextlib.suppress(TypeError):
            one = Round(**line)
            numbers = [*one.returns, *one.lengths, *([] if one.score is None else [one.score])]
            if all(type(number) in (int, float) for number in numbers) and isinstance(one.environment, str):
                found.append(one)
    return found


def earned(
    run: str, step: int, number: int | None, environment: str, returns: Sequence[float], lengths: Sequence[int]
) -> Round:
    """The round of these returns, with its score."""
    if not np.all(np.isfinite(returns)):
        return Round(run, step, number, environment, failed="its returns are not finite")
    scores = envs.normalised(environment, returns) if envs.lookup(environment).reference else None
    score = None if scores is None else float(scores.mean())
    return Round(run, step, number, environment, list(map(float, returns)), list(map(int, lengths)), score)


def score_of(rounds: Iterable[Round]) -> float | None:
    """A run's score: the mean over the last rounds of its training."""
    scores = [one.score for one in rounds if one.round is not None]
    good = [score for score in scores if score is not None]
    return float(np.mean(good)) if scores and len(good) == len(scores) else None
