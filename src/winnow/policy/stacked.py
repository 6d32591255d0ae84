"""Policies of many runs side by side, on the CPU, with only those parameters that `act` reads.

An algorithm's state also has critics, targets and Adam's moments. A policy needs none of them: the leaves that `act`
reads are found by walking its program back from the actions, and only these are copied from the device and saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from winnow.algorithms import ALGORITHMS
from winnow.errors import BadInput
from winnow.packs.pack import Pack
from winnow.packs.step import act
from winnow.plugins import from_record
from winnow.system import checkpoint
from winnow.types import Algorithm, Array, Spec, State

SCALING = ("shift", "scale", "action_centre", "action_half")


class Actors(NamedTuple):
    """Policies of one shape, stacked along a leading axis. Leaves of `state` that `act` does not read are None."""

    algorithm: Any
    state: State
    shift: Array | np.ndarray  # [runs, O]
    scale: Array | np.ndarray
    action_centre: Array | np.ndarray  # [runs, A]
    action_half: Array | np.ndarray

    def on_cpu(self) -> Acting:
        """The same as a callable on the CPU, where the environments run."""
        try:
            return Acting(jax.device_put(self, jax.local_devices(backend="cpu")[0]))
        except RuntimeError:
            return Acting(jax.device_put(self))

    def finite(self) -> list[bool]:
        """Which of the policies have only finite parameters."""
        leaves = [np.isfinite(np.asarray(leaf)) for leaf in jax.tree.leaves(self.state)]
        return [all(leaf[number].all() for leaf in leaves) for number in range(len(self.shift))]

    def tree(self) -> dict[str, Any]:
        """The arrays that a file stores, under the same names as in a finished run's file."""
        return {"algorithm": self.state, "scaling": {name: getattr(self, name) for name in SCALING}}


class Acting:
    """Policies as a callable: the mean actions of several runs in one call."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self._parts: dict[Any, Actors] = {}

    def __call__(self, obs: np.ndarray, runs: slice = slice(None)) -> np.ndarray:
        """Observations [runs, n, O] of some of the runs to actions [runs, n, A] in the environment's units, or to
        scores of discrete actions [runs, n, K]."""
        bounds = (runs.start, runs.stop)
        if bounds not in self._parts:
            self._parts[bounds] = jax.tree.map(lambda leaf: leaf[runs], self._actors)
        if obs.shape[1] > 1:
            return np.asarray(_act(self._parts[bounds], obs))
        return np.asarray(_act(self._parts[bounds], np.repeat(obs, 2, axis=1)))[
            :, :1
        ]  # XLA rounds a single row differently


@jax.jit
def _act(actors: Actors, obs: Array) -> Array:
    return jax.vmap(lambda actor, seen: act(actor, actor.state, seen))(actors, obs)


@lru_cache
def _read(algorithm: Algorithm, spec: Spec) -> tuple[Any, list[bool]]:
    """The state's shapes, and which of its leaves `act` reads. A nested call counts as reading all its arguments."""
    state = jax.eval_shape(lambda key: algorithm.init(key, spec), jax.random.key(0))
    leaves, structure = jax.tree.flatten(state)
    obs = jax.ShapeDtypeStruct((2, spec.obs_dim), jnp.float32)
    program = jax.make_jaxpr(lambda given, seen: algorithm.act(jax.tree.unflatten(structure, given), seen))(leaves, obs)
    needed = {variable for variable in program.jaxpr.outvars if not isinstance(variable, Literal)}
    for step in reversed(program.jaxpr.eqns):
        if needed.intersection(step.outvars):
            needed.update(variable for variable in step.invars if not isinstance(variable, Literal))
    return state, [variable in needed for variable in program.jaxpr.invars[: len(leaves)]]


def pruned(algorithm: Algorithm, spec: Spec, state: State | None = None) -> State:
    """A state (default: its shapes) with None for every leaf that `act` does not read."""
    shapes, read = _read(algorithm, spec)
    leaves, structure = jax.tree.flatten(shapes if state is None else state, is_leaf=lambda leaf: leaf is None)
    return jax.tree.unflatten(structure, [leaf if wanted else None for leaf, wanted in zip(leaves, read, strict=True)])


def of_pack(pack: Pack) -> Actors:
    """The current policies of a pack, copied from the device."""
    state = pruned(pack.runs[0].algorithm, pack.spec, pack.learners.algorithm)
    scaling = {name: getattr(pack.lanes, name) for name in SCALING}
    return jax.device_get(Actors(pack.lanes.algorithm, state, **scaling))


def of_file(path: str | Path, algorithms: Sequence[Algorithm], spec: Spec, stacked: bool) -> Actors:
    """Policies from a file: that of a finished run, or (`stacked`) those of a snapshot."""
    lead = (len(algorithms),) if stacked else ()
    shapes = pruned(algorithms[0], spec)
    state = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*lead, *leaf.shape), leaf.dtype), shapes)
    obs = np.zeros((*lead, spec.obs_dim))
    action = np.zeros((*lead, spec.action_dim))
    saved = checkpoint.load(path, Actors(None, state, obs, obs, action, action).tree())
    state, scaling = (saved if stacked else jax.tree.map(lambda leaf: leaf[None], saved)).values()
    return Actors(_stacked(algorithms), state, **scaling)


def together(actors: Sequence[Actors]) -> Actors:
    """Several stacks of policies as one."""
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *actors)


def _stacked(algorithms: Sequence[Algorithm]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack([np.float32(leaf) for leaf in leaves]), *algorithms)


def algorithm_of(saved: dict[str, Any], where: str | Path) -> Algorithm:
    """An algorithm by its record."""
    try:
        return from_record(saved, ALGORITHMS)
    except (KeyError, TypeError) as error:
        raise BadInput(f"{where}: its algorithm is not registered ({error}); add it to ALGORITHMS") from error
