"""Puck: a small continuous-control problem with a known optimum, for the demo and the tests.

A puck slides on a table and must be brought to rest in the middle. Two forces push it; the cost is quadratic in its
place, its speed and the force, so the best policy is linear and comes from a Riccati equation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from winnow.data.dataset import Dataset, from_arrays

STEPS = 100
"""An episode's length. It ends in a timeout: the puck is never done."""
DISCOUNT = 0.99

# (x, y, vx, vy): friction takes 5 % of the speed each step, full force adds 0.1
DYNAMICS = np.array([[1, 0, 0.1, 0], [0, 1, 0, 0.1], [0, 0, 0.95, 0], [0, 0, 0, 0.95]])
CONTROL = np.array([[0, 0], [0, 0], [0.1, 0], [0, 0.1]])
STATE_COST = np.diag([1.0, 1.0, 0.1, 0.1])
FORCE_COST = 0.05 * np.eye(2)

Act = Callable[[np.ndarray, np.random.Generator], np.ndarray]


@cache
def optimal_gain() -> np.ndarray:
    """K of the best policy a = −K s, from the discounted Riccati equation."""
    from scipy.linalg import solve_discrete_are

    a, b = np.sqrt(DISCOUNT) * DYNAMICS, np.sqrt(DISCOUNT) * CONTROL
    cost_to_go = solve_discrete_are(a, b, STATE_COST, FORCE_COST)
    return np.linalg.solve(FORCE_COST + b.T @ cost_to_go @ b, b.T @ cost_to_go @ a)


def random(state: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Forces drawn uniformly: what most of the data looks like."""
    return rng.uniform(-1, 1, (len(state), 2))


def expert(state: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The best policy with a little noise."""
    return np.clip(-state @ optimal_gain().T + rng.normal(0, 0.1, (len(state), 2)), -1, 1)


def best(state: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The best policy."""
    return np.clip(-state @ optimal_gain().T, -1, 1)


def play(act: Act, episodes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Episodes side by side: states [T + 1, E, 4], actions [T, E, 2], rewards [T, E]."""
    rng = np.random.default_rng(seed)
    angle, radius = rng.uniform(0, 2 * np.pi, episodes), rng.uniform(0.5, 1.0, episodes)
    state = np.zeros((episodes, 4))
    state[:, 0], state[:, 1] = radius * np.cos(angle), radius * np.sin(angle)
    states, actions, rewards = [state], [], []
    for _ in range(STEPS):
        action = np.clip(act(state, rng), -1, 1)
        cost = np.einsum("ei,ij,ej->e", state, STATE_COST, state) + np.einsum("ei,ij,ej->e", action, FORCE_COST, action)
        state = state @ DYNAMICS.T + action @ CONTROL.T
        states.append(state)
        actions.append(action)
        rewards.append(-cost)
    return np.array(states), np.array(actions), np.array(rewards)


def make(act: Act, rows: int, seed: int, name: str = "puck") -> Dataset:
    """A dataset of whole episodes by one behaviour."""
    episodes = max(1, -(-rows // STEPS))
    states, actions, rewards = play(act, episodes, seed)

    def flat(column: np.ndarray) -> np.ndarray:
        return np.swapaxes(column, 0, 1).reshape(episodes * STEPS, *column.shape[2:])

    timeouts = np.arange(episodes * STEPS) % STEPS == STEPS - 1
    return from_arrays(
        flat(states[:-1]),
        flat(actions),
        flat(rewards),
        np.zeros_like(timeouts),
        timeouts,
        flat(states[1:]),
        action_bounds=([-1, -1], [1, 1]),
        where=name,
        name=name,
        environment="puck",
    )


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
