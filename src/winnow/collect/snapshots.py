"""Behaviour policies as files: those that a run writes, and those that ship with winnow."""

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
    """A policy in training: its environment and its seed."""

    env: str
    seed: int
    shape: envs.Shape

    @property
    def name(self) -> str:
        return f"{self.env}-{self.seed}"


def save_snapshot(path: Path, lane: Lane, actor: Any, point: dict[str, Any], hidden: Sequence[int]) -> None:
    """Write a policy with its environment, its sizes, and its latest evaluation `point`."""
    entry = envs.lookup(lane.env)
    source = entry.source
    record = {
        "env": lane.env,
        "source": source if isinstance(source, str) else f"{source.__module__}.{source.__name__}",
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
        sac = SAC(hidden=tuple(record["hidden"]))
        spec = record["spec"]
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path}: is not a policy that `winnow collect` wrote ({error})") from error
    like = jax.eval_shape(lambda: sac_.init(sac, jax.random.key(0), *spec).params["actor"])
    return checkpoint.load(path, {"actor": like})["actor"], record


def behaviour(env: str, level: str) -> tuple[Any, dict[str, Any]]:
    """A behaviour policy that ships with winnow: `medium` or `expert`, for one of the four locomotion environments."""
    return load_snapshot(policy_file(env, level))
