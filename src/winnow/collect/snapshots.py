"""A behaviour policy as a file: those that a run leaves, and those that come with winnow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from winnow import envs
from winnow.collect import sac as sac_
from winnow.collect.sac import SAC
from winnow.data.pools import policy_file
from winnow.errors import BadInput
from winnow.system import checkpoint


class Lane(NamedTuple):
    """What a policy is trained for, and with which random numbers."""

    env: str
    seed: int
    shape: envs.Shape

    @property
    def name(self) -> str:
        return f"{self.env}-{self.seed}"


def save_snapshot(path: Path, lane: Lane, actor: Any, point: dict[str, Any], hidden: Sequence[int]) -> None:
    """A policy alone, with what it is for and what it was worth."""
    entry = envs.lookup(lane.env)
    record = {
        "env": lane.env,
        "source": entry.source
        if isinstance(entry.source, str)
        else f"{entry.source.__module__}.{entry.source.__name__}",
        "options": entry.options,
        "physics": envs.physics(lane.env),
        "seed": lane.seed,
        "spec": [lane.shape.obs_dim, lane.shape.action_dim],
        "hidden": list(hidden),
        "action_low": lane.shape.low.tolist(),
        "action_high": lane.shape.high.tolist(),
        **point,
    }
    checkpoint.save(path, {"actor": sac_.trimmed(actor, lane.shape.obs_dim, lane.shape.action_dim)}, record)


def load_snapshot(path: str | Path) -> tuple[Any, dict[str, Any]]:
    """The actor's parameters of a snapshot (see `nets.squashed_mean` and `squashed_sample`), and its record."""
    record = checkpoint.read_record(path)
    try:
        sac, spec = SAC(hidden=tuple(record["hidden"])), record["spec"]
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path}: is no policy that `winnow collect` wrote ({error})") from error
    like = jax.eval_shape(lambda: sac_.init(sac, jax.random.key(0), *spec).params["actor"])
    return checkpoint.load(path, {"actor": like})["actor"], record


def behaviour(env: str, level: str) -> tuple[Any, dict[str, Any]]:
    """A behaviour policy that comes with winnow: `medium` or `expert` of one of the four locomotion environments."""
    return load_snapshot(policy_file(env, level))
