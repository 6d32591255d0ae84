"""A trained policy as a callable: observations in, actions in the environment's units out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from winnow.algorithms import ALGORITHMS
from winnow.errors import BadInput
from winnow.packs.step import act
from winnow.plugins import from_record
from winnow.policy.stacked import pruned
from winnow.system import checkpoint
from winnow.types import Algorithm, Spec, State, action_kind_of


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
        return jax.jit(lambda state, obs: act(self, state, obs))

    @property
    def is_discrete(self) -> bool:
        return action_kind_of(self.algorithm) == "discrete"

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Actions for observations [..., O]: [..., A], or the number of a choice [...] where actions are discrete."""
        values = self.scores(obs)
        return values.argmax(axis=-1) if self.is_discrete else values

    def scores(self, obs: np.ndarray) -> np.ndarray:
        """What the algorithm's `act` gives for observations [..., O]: mean actions, or a score for each choice."""
        obs = np.asarray(obs, np.float32)
        if obs.shape[-1:] != self.shift.shape:
            raise BadInput(f"observations must have shape [..., {len(self.shift)}], got {list(obs.shape)}")
        return np.asarray(self._act(self.state, obs))

    def tree(self) -> dict[str, Any]:
        """The arrays that a file stores."""
        names = ("shift", "scale", "action_centre", "action_half")
        return {"algorithm": self.state, "scaling": {name: getattr(self, name) for name in names}}

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """The policy of a finished run: a file that `winnow train` wrote. Its state has only what `act` reads."""
        record = checkpoint.read_record(path)
        try:
            algorithm = from_record(record["algorithm"], ALGORITHMS)
            spec = Spec(*record["spec"])
        except (KeyError, TypeError) as error:
            raise BadInput(f"{path}: is not a finished run ({error}); give a file that `winnow train` wrote") from error
        if record.get("failure"):
            raise BadInput(f"{path}: this run failed ({record['failure']}); it has no policy")
        state = pruned(algorithm, spec)
        obs = np.zeros(spec.obs_dim)
        action = np.zeros(spec.action_dim)
        like = cls(algorithm, state, obs, obs, action, action).tree()
        saved = checkpoint.load(path, like)
        return cls(algorithm, saved["algorithm"], **saved["scaling"])
