"""When policies are evaluated during training, and with how many episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from winnow.errors import BadInput


@dataclass(frozen=True)
class Evaluation:
    """When policies are evaluated during training, and with how many episodes."""

    episodes: int = 20
    """Episodes in each round."""
    rounds: int = 10
    """Rounds at the end of training; a run's score is the mean over them."""
    spacing: int = 1_000
    """Updates between two of these rounds."""
    curve: int = 10
    """Rounds before them, spread evenly over the training."""
    processes: int | None = None
    """Processes that step environments; default: one for each core."""
    keep: bool = False
    """Keep the policies of every round, so that `winnow evaluate` can play them again."""

    def check(self) -> None:
        least = {"episodes": 1, "rounds": 1, "spacing": 1, "curve": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise BadInput(f"evaluation.{name} must be at least {low}, got {getattr(self, name)}")

    def steps(self, total: int) -> dict[int, int | None]:
        """The updates after which policies are evaluated, in order. The values number the last rounds from 1 on; they
        are None for earlier rounds."""
        last = [step for step in range(total - (self.rounds - 1) * self.spacing, total + 1, self.spacing) if step > 0]
        evenly = [last[0] * number / (self.curve + 1) for number in range(1, self.curve + 1)]
        early = sorted({self.spacing * round(step / self.spacing) for step in evenly} - {0})
        steps: dict[int, int | None] = dict.fromkeys(step for step in early if step < last[0])
        return steps | {step: number for number, step in enumerate(last, 1)}

    def record(self) -> dict[str, Any]:
        """The settings that change the results."""
        return {name: getattr(self, name) for name in ("episodes", "rounds", "spacing", "curve")}
