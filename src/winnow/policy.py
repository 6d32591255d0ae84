"""A trained policy as one thing to call: observations in, actions in the environment's units out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from winnow import checkpoint
from winnow.algorithms import ALGORITHMS
from winnow.errors import BadInput
from winnow.methods import from_record
from winnow.types import Algorithm, Spec, State


@dataclass(frozen=True)
class Policy:
    """The mean action of an algorithm's state, with the dataset's scaling on both sides."""

    algorithm: Algorithm
    state: State
    shift: np.ndarray  # [O]
    scale: np.ndarray
    action_centre: np.ndarray  # [A]
    action_half: np.ndarray

    @cached_property
    def _act(self) -> Any:
        def act(state: State, obs: Any) -> Any:
            unit = self.algorithm.act(state, (obs - self.shift) / self.scale)
            return self.action_centre + self.action_half * unit

        return jax.jit(act)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Actions for observations [..., O]."""
        obs = np.asarray(obs, np.float32)
        if obs.shape[-1:] != self.shift.shape:
            raise BadInput(f"the policy reads {len(self.shift)} numbers an observation, it was given {obs.shape[-1:]}")
        return np.asarray(self._act(self.state, obs))

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """The policy of a finished run: a file that `winnow train` wrote."""
        record = checkpoint.read_record(path)
        try:
            algorithm = from_record(record["algorithm"], ALGORITHMS)
            spec = Spec(record["obs_dim"], record["action_dim"], record["rows"])
        except (KeyError, TypeError) as error:
            raise BadInput(f"{path}: is not a finished run ({error}); give a file that `winnow train` wrote") from error
        state = jax.eval_shape(lambda key: algorithm.init(key, spec), jax.random.key(0))
        scaling = {name: np.zeros(spec.obs_dim) for name in ("shift", "scale")}
        scaling |= {name: np.zeros(spec.action_dim) for name in ("action_centre", "action_half")}
        saved = checkpoint.load_part(path, {"algorithm": state, "scaling": scaling})
        return cls(algorithm, saved["algorithm"], **saved["scaling"])
