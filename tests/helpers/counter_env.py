"""An environment that counts its steps, and can fail. Worker processes import this module: it must not import jax."""

from __future__ import annotations

import os
import sys
from typing import Any

import gymnasium
import numpy as np


class Counter(gymnasium.Env[np.ndarray, np.ndarray]):
    """Observes how many steps were made. `fault` says what goes wrong at the third step."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gymnasium.spaces.Box(-2.0, 4.0, (1,))

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        self.mark = self.np_random.random()
        return np.array([0.0, self.mark]), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.count += 1
        if self.count == 3 and self.fault == "exit":
            os._exit(7)
        if self.count == 3 and self.fault == "raise":
            raise ValueError("the hinge broke")
        print("an environment that talks")
        reward = float("jax" in sys.modules) if self.fault == "jax" else float(action[0])
        return np.array([self.count, self.mark]), reward, False, False, {}
