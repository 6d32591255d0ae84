"""Results of evaluation: rounds of episodes, and the score of several rounds."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from winnow import envs
from winnow.system.metrics import read_metrics


@dataclass(frozen=True)
class Round:
    """The returns of one run's policy in one round, episode by episode."""

    run: str
    step: int
    """Updates that the policy was trained for."""
    round: int | None
    """The number of a round at the end of training, from 1 on. None for earlier rounds, and after training."""
    environment: str
    returns: list[float] = dataclasses.field(default_factory=list)
    lengths: list[int] = dataclasses.field(default_factory=list)
    score: float | None = None
    """The mean return as a normalised score, if the environment has reference returns."""
    failed: str | None = None
    """Why there are no returns, if there are none."""

    def line(self) -> dict[str, Any]:
        """The round as plain JSON."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "failed" or value}

    def metrics(self) -> dict[str, Any]:
        """The round as a line of metrics: the mean return, and the score if there is one."""
        mean = float(np.mean(self.returns)) if self.returns else None
        values = {"evaluation/return": mean, "evaluation/score": self.score}
        return {"run": self.run, "step": self.step} | {
            name: value for name, value in values.items() if value is not None
        }


def read_rounds(path: Path) -> list[Round]:
    """The rounds in a returns.jsonl, in its order. Lines that are not valid rounds are left out."""
    rounds = []
    for line in read_metrics(path):
        with contextlib.suppress(TypeError):
            played = Round(**line)
            numbers = [*played.returns, *played.lengths, *([] if played.score is None else [played.score])]
            if all(type(number) in (int, float) for number in numbers) and isinstance(played.environment, str):
                rounds.append(played)
    return rounds


def make_round(
    run: str, step: int, number: int | None, environment: str, returns: Sequence[float], lengths: Sequence[int]
) -> Round:
    """The round with these returns, and with their score."""
    if not np.all(np.isfinite(returns)):
        return Round(run, step, number, environment, failed="its returns are not finite")
    scores = envs.normalised(environment, returns) if envs.lookup(environment).reference else None
    score = None if scores is None else float(scores.mean())
    return Round(run, step, number, environment, list(map(float, returns)), list(map(int, lengths)), score)


def score_of(rounds: Iterable[Round]) -> float | None:
    """A run's score: the mean over the rounds at the end of its training. None if one of them has no score."""
    scores = [played.score for played in rounds if played.round is not None]
    known = [score for score in scores if score is not None]
    return float(np.mean(known)) if scores and len(known) == len(scores) else None
