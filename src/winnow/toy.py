"""Two made-up problems: the dome, a small control problem with a known optimum, and the log of a plant.

A puck lies on top of a slippery dome. The further it is from the top, the harder it is pulled down, and when it slides
over the edge the episode ends. Two forces push it. The reward of a step is 1 minus a quadratic cost of position, speed
and force, so the best policy is linear and comes from a Riccati equation. Random forces lose the puck within some tens
of steps. As in the locomotion tasks, bad data is many short episodes and good data is few long ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset, combine
from winnow.data.recipes import mixed

STEPS = 200
"""The time limit. An episode that reaches it ends with a timeout, not with a terminal."""
EDGE = 1.0
"""Beyond this distance from the top on either axis the puck is lost: a terminal."""
START = 0.3
"""Episodes begin at rest, at most this far from the top on either axis."""
DISCOUNT = 0.99

# (x, y, vx, vy): a step lasts 0.1, the slope pulls with x, full force pushes with 0.8
DYNAMICS = np.array([[1, 0, 0.1, 0], [0, 1, 0, 0.1], [0.1, 0, 1, 0], [0, 0.1, 0, 1]])
CONTROL = np.array([[0, 0], [0, 0], [0.08, 0], [0, 0.08]])
STATE_COST = np.diag([2.0, 2.0, 0.2, 0.2])
FORCE_COST = 0.1 * np.eye(2)

Act = Callable[[np.ndarray, np.random.Generator], np.ndarray]


@cache
def optimal_gain() -> np.ndarray:
    """K of the best policy a = −K s, from the discounted Riccati equation."""
    from scipy.linalg import solve_discrete_are

    a = np.sqrt(DISCOUNT) * DYNAMICS
    b = np.sqrt(DISCOUNT) * CONTROL
    cost_to_go = solve_discrete_are(a, b, STATE_COST, FORCE_COST)
    return np.linalg.solve(FORCE_COST + b.T @ cost_to_go @ b, b.T @ cost_to_go @ a)


def random(state: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Uniformly random forces: most of the data."""
    return rng.uniform(-1, 1, (len(state), 2))


def expert(state: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The best policy with a little noise."""
    return np.clip(-state @ optimal_gain().T + rng.normal(0, 0.1, (len(state), 2)), -1, 1)


def best(state: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The best policy."""
    return np.clip(-state @ optimal_gain().T, -1, 1)


def play(act: Act, episodes: int, seed: int | list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Episodes side by side: states [T + 1, E, 4], actions [T, E, 2], rewards [T, E] and lengths [E].

    After an episode's end everything is zero.
    """
    rng = np.random.default_rng(seed)
    state = np.concatenate([rng.uniform(-START, START, (episodes, 2)), np.zeros((episodes, 2))], axis=1)
    alive = np.ones(episodes, bool)
    length = np.zeros(episodes, int)
    states = [state]
    actions = []
    rewards = []
    for _ in range(STEPS):
        action = np.clip(act(state, rng), -1, 1)
        cost = np.einsum("ei,ij,ej->e", state, STATE_COST, state) + np.einsum("ei,ij,ej->e", action, FORCE_COST, action)
        state = state @ DYNAMICS.T + action @ CONTROL.T
        length += alive
        states.append(state)
        actions.append(action)
        rewards.append((1 - cost) * alive)
        alive = alive & (np.abs(state[:, :2]) <= EDGE).all(axis=1)
        state = np.where(alive[:, None], state, 0.0)
    return np.array(states), np.array(actions), np.array(rewards), length


def make(act: Act, rows: int, seed: int, name: str = "dome") -> Dataset:
    """At least `rows` rows of whole episodes by one behaviour."""
    parts: list[tuple[np.ndarray, ...]] = []
    while sum(len(part[2]) for part in parts) < rows:
        states, actions, rewards, length = play(act, 256, [seed, len(parts)])
        inside = np.arange(STEPS)[:, None] < length
        last = np.arange(STEPS)[:, None] == length - 1
        lost = last & (np.abs(states[1:, :, :2]) > EDGE).any(axis=2)
        columns = (states[:-1], actions, rewards, lost, last & ~lost, states[1:])
        parts.append(tuple(np.swapaxes(column, 0, 1)[inside.T] for column in columns))
    observations, action, reward, terminal, timeout, following = (np.concatenate(c) for c in zip(*parts, strict=True))
    whole = from_arrays(
        observations,
        action,
        reward,
        terminal,
        timeout,
        following,
        action_bounds=([-1, -1], [1, 1]),
        where=name,
        name=name,
        environment="dome",
    )
    enough = int(np.searchsorted(np.cumsum(whole.episodes.length), rows)) + 1
    return whole.select(np.arange(min(enough, len(whole.episodes))))


def imbalanced(rows: int, share: float = 0.05, expert_rows: int | None = None) -> Dataset:
    """So many rows: a share from the expert, the rest random.

    expert_rows: rows that the expert plays, from which its share is sampled; default: a tenth of the rows
    """
    low = make(random, rows, 0, "random")
    high = make(expert, expert_rows or rows // 10, 1, "expert")
    name = f"dome-random-expert-{100 * share:g}"
    return mixed(low, high, share, rows, low_label="random", high_label="expert", name=name)


def evaluate(act: Callable[[np.ndarray], np.ndarray], episodes: int = 100, seed: int = 12345) -> np.ndarray:
    """Undiscounted returns of episodes under a policy."""
    return play(lambda state, _: act(state), episodes, seed)[2].sum(axis=0)


@cache
def references(episodes: int = 1000, seed: int = 12345) -> tuple[float, float]:
    """Mean returns of the random and of the best policy: 0 and 100 of the normalised score."""
    return tuple(float(play(act, episodes, seed)[2].sum(axis=0).mean()) for act in (random, best))  # pyright: ignore


def normalised(returns: np.ndarray) -> np.ndarray:
    """100 · (G − random) / (best − random)."""
    low, high = references()
    return 100 * (returns - low) / (high - low)


# ------------------------------------------------------------------------------------------------------------ plant


def plant(episodes: int = 150, steps: int = 199, sensors: int = 42, good: float = 0.05, seed: int = 0) -> Dataset:
    """The log of a plant: few episodes of a good controller, many of bad ones, and mostly sensors that say nothing.

    Nine columns are the plant's state and sums of it. Each of the `sensors` is noise about a level that differs between
    episodes. In the worst tenth of the episodes the sensors drift away before the recording ends, to about 20 standard
    deviations. A step earns at most 1; now and then there is a large penalty for a trip. A row's source says whose
    episode it is.
    """
    rng = np.random.default_rng(seed)
    skilled = np.zeros(episodes, bool)
    skilled[rng.permutation(episodes)[: max(1, round(good * episodes))]] = True
    bias = rng.normal(0, 1.2, (episodes, 3))
    state = rng.normal(0, 1, (episodes, 6))
    states = [state]
    actions: list[np.ndarray] = []
    rewards: list[np.ndarray] = []
    for _ in range(steps):
        wanted = np.where(skilled[:, None], -0.9 * state[:, :3], bias)
        action = np.clip(wanted + rng.normal(0, 0.3, (episodes, 3)), -2, 2)
        trip = rng.random(episodes) < 0.0005
        actions.append(action)
        rewards.append(np.exp(-0.7 * (state[:, :3] ** 2).sum(axis=1)) - 0.1 * (action**2).mean(axis=1) - 100 * trip)
        push = np.concatenate([0.5 * action, 0.15 * action], axis=1)
        state = 0.9 * state + push + rng.normal(0, 0.15, (episodes, 6))
        states.append(state)
    seen = np.stack(states, axis=1)
    sums = np.stack(
        [seen[..., :3].sum(axis=-1), seen[..., 3:].sum(axis=-1), np.abs(seen[..., :3]).max(axis=-1)], axis=-1
    )
    level = rng.normal(0, 1, (episodes, 1, sensors))
    noise = level + rng.normal(0, 0.3, (episodes, steps + 1, sensors))
    reward = np.stack(rewards, axis=1)
    worst = np.argsort(np.where(skilled, np.inf, reward.sum(axis=1)))[: max(1, episodes // 10)]
    noise[worst] += 12 * rng.normal(0, 1, (len(worst), 1, sensors)) * np.linspace(0, 1, steps + 1)[:, None] ** 4
    obs = np.concatenate([seen, sums, noise], axis=-1)

    def rows(column: np.ndarray) -> np.ndarray:
        return column.reshape(episodes * steps, *column.shape[2:])

    end = np.zeros((episodes, steps), bool)
    end[:, -1] = True
    made = from_arrays(
        rows(obs[:, :-1]),
        rows(np.stack(actions, axis=1)),
        rows(reward),
        np.zeros(episodes * steps, bool),
        rows(end),
        rows(obs[:, 1:]),
        where="plant",
        name="plant",
    )
    parts = {"bad": made.select(np.flatnonzero(~skilled)), "good": made.select(np.flatnonzero(skilled))}
    return combine(parts, name="plant")
