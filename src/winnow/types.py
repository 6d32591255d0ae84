"""The seam: what passes between the data, a weighter and an algorithm, and what a plug-in is.

This module knows no plug-in. A plug-in imports from here and from `nets`, and from nothing later.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp

from winnow.errors import BadInput

Array = jax.Array
Metrics = dict[str, Array]
State = Any


class Batch(NamedTuple):
    """Rows drawn by a sampler. `terminal` is 1 where the task ended; a timeout is not a terminal."""

    obs: Array  # [B, O]
    action: Array  # [B, A], scaled to [-1, 1] from the dataset's bounds; one-hot [B, K] where actions are discrete
    reward: Array  # [B], scaled and shifted as the algorithm asked
    next_obs: Array  # [B, O]
    terminal: Array  # [B]
    unit_reward: Array  # [B] the raw reward, scaled as the weighter asks: see `Weighter`
    start_obs: Array  # [B, O] a random initial state, which follows a terminal
    row: Array  # [B] the row's number in its dataset
    step: Array  # [] int: number of updates before this one; the same for every run of a pack
    progress: Array  # [] fraction of the run that is done, 0 at its first update; for schedules
    next_action: Array | None = None  # [B, A] the data's action at s', NaN where an episode's rows end; see `Algorithm`
    frequency: Array | None = None  # [B] sampling probability × dataset size; None unless a weighter `reads_frequency`


class Weights(NamedTuple):
    """How much each row counts. All are ≥ 0 and sum to 1 over the batch; no gradient flows through them."""

    sa: Array  # [B] where the dataset's action is judged
    s: Array  # [B] where the policy's own action is
    fit: Array | None = None  # [B] where a value is fitted to its backup; None: use `sa` and `s` there as well

    @property
    def values(self) -> Weights:
        """The weights of losses that fit values."""
        return self if self.fit is None else Weights(self.fit, self.fit)


ActionKind = Literal["continuous", "discrete"]
"""Actions are A bounded numbers, or one of K choices.

A discrete action is stored as one integer a row and becomes one-hot [B, K] in a batch, not an integer [B]: so whatever
reads an action as numbers (ψ(s, a), a critic of state and action, FQE) works for both kinds with no second path, and an
expectation over choices is a product with π(·|s). An algorithm is written for one kind and says so (`action_kind`); the
names `bc`, `iql` and `cql` mean the one that fits the dataset."""


class Spec(NamedTuple):
    """What a plug-in needs to know about the data to create its parameters."""

    obs_dim: int
    action_dim: int  # columns of an action; the number of choices where actions are discrete
    rows: int  # rows in the dataset (in a pack: in the largest one)
    action_kind: ActionKind = "continuous"


class Weighter(Protocol):
    """Learns how much a drawn row counts. Optional: `standardise` and `reward_scaling`, which say how it reads
    observations and rewards, `check`, `refreshes` and `refresh` (see weighters/__init__.py)."""

    def init(self, key: Array, spec: Spec) -> State: ...

    def update(self, state: State, batch: Batch, key: Array) -> tuple[State, Weights, Metrics]: ...

    def log_weight(self, state: State, batch: Batch) -> Array:
        """log w of each row, up to a constant that is the same for all rows."""
        ...


class Algorithm(Protocol):
    """Turns a batch and its weights into a better policy."""

    @property
    def standardise(self) -> bool:
        """Whether it reads standardised observations or raw ones."""
        ...

    @property
    def reward_scaling(self) -> str:
        """How it wants rewards: see `data.scaling.reward_transform`."""
        ...

    def init(self, key: Array, spec: Spec) -> State: ...

    def update(self, state: State, batch: Batch, weights: Weights, key: Array) -> tuple[State, Metrics]: ...

    def act(self, state: State, obs: Array) -> Array:
        """The policy's mean action in [-1, 1] for observations [..., O]. For discrete actions a score for each choice
        [..., K]; the choice with the greatest one is taken."""
        ...

    # Optional: `action_kind`, "continuous" unless it says "discrete".
    # Optional: `reads_next_action`, a class attribute that is true if batches must have `next_action`.
    # Optional: `inspect(state, batch) -> Metrics`, numbers of each row [B] that training logs and watches. `nll`: the
    # negative log-likelihood of the data's action, or `error`, the squared distance to it, of a policy without a
    # density; `q`, `v`, `advantage` where there are such.


def action_kind_of(algorithm: Algorithm) -> ActionKind:
    return getattr(algorithm, "action_kind", "continuous")


Fetch = Callable[[Array], Batch]  # row numbers [n] -> those rows as a batch


def expect(weight: Array, value: Array) -> Array:
    """E_w[value]: the only way a loss is reduced over a batch."""
    return jnp.sum(weight * value)


# --------------------------------------------------------------------------------- a config is a plug-in

T = TypeVar("T")


def setting(
    *,
    default: Any,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    static: bool = False,
) -> Any:
    """A field with an allowed range, or a float that the program is compiled for (`static`). `low` and `high` belong to
    the range, `above` and `below` do not."""
    span = {"low": low, "high": high, "above": above, "below": below}
    return dataclasses.field(default=default, metadata=span | {"static": static})


BOUNDS: dict[str, tuple[str, Callable[[Any, float], bool]]] = {
    "low": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "high": ("at most", operator.le),
    "below": ("below", operator.lt),
}


def allowed_range(field: dataclasses.Field[Any]) -> str:
    """The range of a setting in words, as in "above 0 and at most 1"; empty if every number is allowed."""
    bounds = {name: field.metadata.get(name) for name in BOUNDS}
    if bounds["low"] is not None and bounds["high"] is not None:
        return f"in [{bounds['low']}, {bounds['high']}]"
    finite = {name: bound for name, bound in bounds.items() if bound is not None and abs(bound) < math.inf}
    return " and ".join(f"{BOUNDS[name][0]} {bound:g}" for name, bound in finite.items())


@dataclass_transform(frozen_default=True, field_specifiers=(setting, dataclasses.field))
def plugin(cls: type[T]) -> type[T]:
    """A frozen dataclass whose float fields are pytree leaves, so that `vmap` can run over settings.

    Everything else (integers, words, network sizes, floats marked static) is part of the compiled program, and
    runs are packed together only where it agrees.
    """
    frozen: Any = dataclasses.dataclass(frozen=True)(cls)
    kind = typing.get_type_hints(frozen)
    fields = dataclasses.fields(frozen)
    leaves = [field.name for field in fields if kind[field.name] is float and not field.metadata.get("static")]
    return jax.tree_util.register_dataclass(frozen, leaves, [f.name for f in fields if f.name not in leaves])


def check_settings(config: Any, where: str) -> None:
    """Refuse a setting outside its range or its choices, before anything is compiled."""
    kind = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if typing.get_origin(kind[field.name]) is Literal and value not in typing.get_args(kind[field.name]):
            choices = ", ".join(map(repr, typing.get_args(kind[field.name])))
            raise BadInput(f"{where}.{field.name} is {value!r}; choose one of {choices}")
        for name, (_, holds) in BOUNDS.items():
            bound = field.metadata.get(name)
            if bound is not None and not holds(value, bound):
                raise BadInput(f"{where}.{field.name} is {value}; it must be {allowed_range(field) or 'finite'}")
