"""Fitted Q evaluation: estimates the return of a policy from logged rows alone.

Q(s, a) ← r + γ Q̄(s', π(s')), fitted by Adam to rows sampled from the log, with a target network Q̄. Several networks are
fitted for each policy, each on its own resample of the log's episodes. Their spread shows how much the estimate depends
on which episodes were logged and on the initial weights. All policies share the same resamples, initial weights and
batches, so that differences between policies vary less than the values themselves.

Policies are given as functions that return arrays of actions: this module knows no algorithm.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.scaling import action_transform, standardise, unit_actions
from winnow.errors import BadInput
from winnow.nets import Adam, Params, adam_init, adam_step, cosine, mlp_init, track
from winnow.samplers.fits.values import scale_of, to_the_end
from winnow.system.cores import cores_here
from winnow.types import Array

MARGIN = 0.1
"""How far a value may exceed the highest return in the log, as a fraction of the returns' range."""
CHUNK = 250
"""Updates in one call of the compiled program; values are read and progress is reported after each."""


@dataclass(frozen=True)
class FQE:
    """How Q is fitted."""

    discount: float = 0.99
    """Discount γ. The estimate is Σ γᵗ r from an episode's first step on."""
    steps: int = 5_000
    """Updates of each fit."""
    fits: int = 5
    """Fits for each policy, each on its own resample of the episodes."""
    batch_size: int = 128
    """Rows sampled for each update."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of Q."""
    learning_rate: float = 1e-3
    """Adam's learning rate; falls to 0 along a cosine."""
    target_rate: float = 0.1
    """Rate at which the target network tracks Q. At the end, a share of about exp(−(1 − γ) · rate · steps) of the value
    is still missing."""
    members: int = 2
    """Networks in each fit, which learn from the same rows and the same targets."""
    pessimism: float = 0.0
    """A fit's target is the mean over its members' target networks minus this many of their standard deviations. With 1
    and two members that is the lower of the two. Members differ most where nothing was logged."""
    clip: Literal["returns", "rewards", "none"] = "returns"
    """Bounds of the targets. returns: from the lowest discounted return in the log to a tenth of their range above the
    highest; rewards: the lowest and the highest reward in the log, earned forever."""
    seed: int = 0
    """Seed of the resamples, the initial weights and the batches."""

    def check(self) -> None:
        for name, low in (("steps", 1), ("fits", 1), ("members", 1), ("batch_size", 1)):
            if getattr(self, name) < low:
                raise BadInput(f"fqe.{name} must be at least {low}, got {getattr(self, name)}")
        if not 0 <= self.discount < 1:
            raise BadInput(f"fqe.discount must be at least 0 and below 1, got {self.discount}")
        if not self.learning_rate > 0:
            raise BadInput(f"fqe.learning_rate must be above 0, got {self.learning_rate}")
        if not 0 < self.target_rate <= 1:
            raise BadInput(f"fqe.target_rate must be above 0 and at most 1, got {self.target_rate}")
        if not self.pessimism >= 0:
            raise BadInput(f"fqe.pessimism must be at least 0, got {self.pessimism}")
        if self.pessimism and self.members < 2:
            raise BadInput(f"fqe.pessimism needs at least 2 fqe.members, got {self.members}; or set it to 0")


USUAL = FQE()


class Values(NamedTuple):
    """The estimated values of one policy, in the units of the log's rewards."""

    value: np.ndarray  # [fits, states] Σ γᵗ r from each state on
    drift: float  # the change of the mean over the last tenth of the updates
    clipped: float  # the share of targets that were clipped, at the end
    choices: np.ndarray | None = None  # [rows, K] value of every choice at `choices_at`, averaged over fits


class Log(NamedTuple):
    """The rows that all fits read, and which of them each fit samples from."""

    obs: Array  # [N, O] standardised
    action: Array  # [N, A] in [−1, 1]
    reward: Array  # [N] scaled, so that values are within ±1
    next_obs: Array
    goes_on: Array  # [N] 0 after a terminal
    resample: Array  # [fits, longest] rows of each resample, padded
    size: Array  # [fits]
    low: Array  # [] lowest and highest target
    high: Array


class Learner(NamedTuple):
    params: Params  # every leaf [fits, members, …]
    target: Params
    optimiser: Adam


class Numbers(NamedTuple):
    """Settings that may change without another compilation."""

    discount: Array
    learning_rate: Array
    target_rate: Array
    pessimism: Array


def evaluate(
    log: Dataset,
    states: np.ndarray,
    policies: Sequence[Callable[[np.ndarray], np.ndarray]],
    settings: FQE = USUAL,
    tick: Callable[[int], None] = lambda updates: None,
    block: int | None = None,
    done: Callable[[int, Values], None] = lambda number, values: None,
    choices_at: np.ndarray | None = None,
) -> list[Values]:
    """The values of policies at the given states [E, O], estimated from the rows of a log.

    tick: called with the number of updates done since the last call; there are steps × policies of them
    block: number of policies fitted as one batch; default: all on an accelerator, and one on a CPU, which is faster
        with plain products and fits one policy on each core
    done: called with each policy's number and its values as soon as they are known, in order
    choices_at: states [rows, O] at which the value of every choice of a discrete action is estimated too
    """
    settings.check()
    mean, std = log.obs_moments
    centre, half = action_transform(log)
    rows = log.rows()
    scale = scale_of(rows.reward, settings.discount)
    low, high = bounds(log, settings)
    index, count = resamples(log, settings.fits, settings.seed)
    standard = lambda obs: jnp.asarray(standardise(obs, mean, std), jnp.float32)  # noqa: E731
    table = Log(
        obs=standard(rows.obs),
        action=jnp.asarray(unit_actions(rows.action, centre, half)),
        reward=jnp.asarray(scale * rows.reward, jnp.float32),
        next_obs=standard(rows.next_obs),
        goes_on=jnp.asarray(1.0 - rows.terminal, jnp.float32),
        resample=jnp.asarray(index),
        size=jnp.asarray(count),
        low=jnp.asarray(scale * low, jnp.float32),
        high=jnp.asarray(scale * high, jnp.float32),
    )
    lock = threading.Lock()

    def count_up(updates: int) -> None:
        with lock:
            tick(updates)

    size = block or (1 if jax.default_backend() == "cpu" else len(policies))
    groups = [policies[low : low + size] for low in range(0, len(policies), size)]
    shown = standard(states)
    at = None if choices_at is None else standard(choices_at)

    def fit_group(group: Sequence[Callable[[np.ndarray], np.ndarray]]) -> list[Values]:
        actions = [[(policy(obs) - centre) / half for policy in group] for obs in (rows.next_obs, states)]
        following, first = (jnp.asarray(np.stack(part), jnp.float32) for part in actions)
        return _fit(table, shown, following, first, settings, scale, count_up, at)

    with ThreadPoolExecutor(1 if size > 1 else cores_here()) as cores:
        values: list[Values] = []
        for fitted in cores.map(fit_group, groups):
            for value in fitted:
                done(len(values), value)
                values.append(value)
        return values


def _fit(
    log: Log,
    states: Array,
    following: Array,
    first: Array,
    settings: FQE,
    scale: float,
    tick: Any,
    choices_at: Array | None = None,
) -> list[Values]:
    """Fit one group of policies, from initial networks to their values."""
    sizes = (log.obs.shape[1] + log.action.shape[1], *settings.hidden, 1)
    fresh = _start(settings.seed, (settings.fits, settings.members), sizes)
    learners = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(following), *leaf.shape)), fresh)
    numbers = Numbers(*(jnp.float32(getattr(settings, name)) for name in Numbers._fields))
    means: list[np.ndarray] = []
    values = np.zeros((len(following), 1, 1))
    for done, size in _chunks(settings.steps):
        learners = _advance(
            log,
            learners,
            following,
            numbers,
            jnp.asarray(done),
            jnp.asarray(settings.steps),
            jnp.asarray(size),
            batch_size=settings.batch_size,
            seed=settings.seed,
        )
        values = np.asarray(_values(learners.params, states, first), np.float64) / scale
        means.append(values.mean(axis=(1, 2)))
        tick(size * len(following))
    early = means[max(0, len(means) - 1 - max(1, len(means) // 10))]
    clipped = np.asarray(_clipped(log, learners, following, numbers))
    results = [Values(v, float(m - e), float(c)) for v, m, e, c in zip(values, means[-1], early, clipped, strict=True)]
    if choices_at is None:
        return results
    every = _choice_values(learners.params, choices_at, log.action.shape[1]) / scale
    return [result._replace(choices=mine) for result, mine in zip(results, every, strict=True)]


def _choice_values(params: Params, states: Array, choices: int) -> np.ndarray:
    """[policies, rows, K] the value of every choice, averaged over fits."""
    columns = []
    for one_hot in np.eye(choices, dtype=np.float32):
        action = jnp.broadcast_to(one_hot, (jax.tree.leaves(params)[0].shape[0], len(states), choices))
        columns.append(np.asarray(_values(params, states, action), np.float64).mean(axis=1))
    return np.stack(columns, axis=-1)


def _chunks(steps: int) -> Iterator[tuple[int, int]]:
    size = min(CHUNK, -(-steps // 10))
    for done in range(0, steps, size):
        yield done, min(size, steps - done)


def bounds(log: Dataset, settings: FQE) -> tuple[float, float]:
    """The lowest and the highest value that a target may have."""
    if settings.clip == "none":
        return -np.inf, np.inf
    forever = log.reward.astype(np.float64) / (1 - settings.discount)
    # After a terminal, rewards are 0 forever: so 0 is possible if the log has terminals.
    ends = [0.0] if log.episodes.terminated.any() else []
    reach = min([forever.min(), *ends]), max([forever.max(), *ends])
    if settings.clip == "rewards" or not log.has_episodes:
        return reach
    known = returns_to_go(log, settings.discount)
    low = min([known.min(), *ends])
    high = max([known.max(), *ends])
    return max(reach[0], low), min(reach[1], high + MARGIN * (high - low))


def returns_to_go(log: Dataset, discount: float) -> np.ndarray:
    """[rows] discounted return from each row on. After a timeout, the episode's mean reward is assumed to go on."""
    table = log.episodes
    tail = np.where(table.terminated, 0.0, log.returns / table.length / (1 - discount))
    return to_the_end(log.reward.astype(np.float64), table.length, discount, tail)


def resamples(log: Dataset, fits: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Resamples of the log's episodes, with replacement inside each source: rows [fits, longest], padded, and how many
    rows each resample has. A single fit gets every episode once."""
    table = log.episodes
    rng = np.random.default_rng([seed, 1])
    parts = []
    for _ in range(fits):
        by_source = [np.flatnonzero(table.source == source) for source in np.unique(table.source)]
        chosen = np.concatenate([rng.choice(inside, len(inside)) if fits > 1 else inside for inside in by_source])
        length = table.length[chosen]
        begin = np.repeat(table.start[chosen] - np.concatenate([[0], np.cumsum(length)[:-1]]), length)
        parts.append(begin + np.arange(length.sum()))
    longest = max(map(len, parts))
    rows = np.stack([np.pad(part, (0, longest - len(part))) for part in parts]).astype(np.int32)
    return rows, np.array([len(part) for part in parts], np.int32)


@partial(jax.jit, static_argnums=(1, 2))
def _start(seed: Any, shape: tuple[int, int], sizes: tuple[int, ...]) -> Learner:
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 2**31 - 1), shape)
    params = jax.vmap(jax.vmap(lambda key: mlp_init(key, sizes, last_scale=0.01)))(keys)
    return Learner(params, params, adam_init({"q": params}))


def _q(params: Params, obs: Array, action: Array) -> Array:
    """Q of every fit, each on its own rows [fits, B, …]: [fits, members, B]."""
    return jax.vmap(jax.vmap(_network, (0, None, None)))(params, obs, action)


def _network(params: Params, obs: Array, action: Array) -> Array:
    """Q(s, a) of one network. Its hidden layers are normalised, so that Q stays bounded for actions far from all logged
    ones."""
    x = jnp.concatenate([obs, action], axis=-1)
    for layer in params[:-1]:
        x = x @ layer["w"] + layer["b"]
        x = x - x.mean(axis=-1, keepdims=True)
        x = jax.nn.relu(x * jax.lax.rsqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6))
    return (x @ params[-1]["w"] + params[-1]["b"])[..., 0]


@partial(jax.jit, static_argnames=("batch_size",), donate_argnames=("learners",))
def _advance(
    log: Log,
    learners: Learner,
    following: Array,
    numbers: Numbers,
    first: Array,
    total: Array,
    count: Array,
    *,
    batch_size: int,
    seed: int,
) -> Learner:
    """`count` updates of every policy's fits."""
    key = jax.random.key(seed)
    fits = jnp.arange(log.size.shape[0])[:, None]

    def update(learner: Learner, action: Array, row: Array, rate: Array) -> Learner:
        target = _target(log, learner.target, action, row, numbers)
        obs = log.obs[row]
        logged_action = log.action[row]

        def loss(params: dict[str, Params]) -> Array:
            # Adam treats each number separately, so the sum over networks gives each network its own loss.
            return jnp.sum(jnp.mean((_q(params["q"], obs, logged_action) - target[:, None]) ** 2, axis=-1))

        before = {"q": learner.params}
        params, optimiser = adam_step(before, jax.grad(loss)(before), learner.optimiser, rate)
        return Learner(params["q"], track(learner.target, params["q"], numbers.target_rate), optimiser)

    def step(i: Array, learners: Learner) -> Learner:
        bits = jax.random.bits(jax.random.fold_in(key, first + i), (fits.shape[0], batch_size), jnp.uint32)
        row = log.resample[fits, bits % log.size[:, None].astype(jnp.uint32)]
        rate = numbers.learning_rate * cosine((first + i) / total)
        if following.shape[0] == 1:  # one policy needs no batched products
            alone = jax.tree.map(lambda leaf: leaf[0], learners)
            return jax.tree.map(lambda leaf: leaf[None], update(alone, following[0], row, rate))
        return jax.vmap(update, (0, 0, None, None))(learners, following, row, rate)

    return jax.lax.fori_loop(0, count, step, learners)


def _target(log: Log, target: Params, action: Array, row: Array, numbers: Numbers) -> Array:
    """r + γ Q̄(s', π(s')), clipped to its bounds: [fits, B]."""
    every = _q(target, log.next_obs[row], action[row])
    value = every.mean(axis=1) - numbers.pessimism * every.std(axis=1)
    return jnp.clip(log.reward[row] + numbers.discount * log.goes_on[row] * value, log.low, log.high)


@jax.jit
def _values(params: Params, states: Array, first: Array) -> Array:
    """[policies, fits, states]"""
    of_fits = jax.vmap(jax.vmap(_network, (0, None, None)), (0, None, None))
    return jax.vmap(lambda networks, action: of_fits(networks, states, action).mean(axis=1))(params, first)


@jax.jit
def _clipped(log: Log, learners: Learner, following: Array, numbers: Numbers) -> Array:
    """The share of targets that are clipped, over the first rows of each fit's resample."""
    row = log.resample[:, : min(log.resample.shape[1], 4096)]
    unbounded = log._replace(low=-jnp.inf, high=jnp.inf)

    def share(learner: Learner, action: Array) -> Array:
        target = _target(unbounded, learner.target, action, row, numbers)
        return jnp.mean((target < log.low) | (target > log.high))

    return jax.lax.map(lambda pair: share(*pair), (learners, following))
