"""Makes the expert policies of CartPole and Acrobot that winnow ships: the cross-entropy method on a small network.

    python experiments/discrete/policies.py --out src/winnow/data/behaviour

Seeded, and done in a few minutes on one core. The method keeps the best tenth of random networks and samples the next
ones around them; a network's fitness is its mean return over a few episodes, acting greedily.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from safetensors.numpy import save_file

from winnow.errors import run_script

HIDDEN = 16
"""Units of the hidden layer."""
LOGIT_SPREAD = 12.0
"""Standard deviation of a shipped policy's logits over the states it visits: sampled, it is nearly greedy."""


@dataclass(frozen=True)
class Task:
    name: str
    environment: str
    generations: int
    population: int = 40
    elite: int = 8
    episodes: int = 2
    seed: int = 0


TASKS = (Task("cartpole", "CartPole-v1", 25), Task("acrobot", "Acrobot-v1", 25))


def layers(vector: np.ndarray, inputs: int, outputs: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """A network's weights and biases out of one vector."""
    first = inputs * HIDDEN
    second = HIDDEN * outputs
    parts = np.split(vector, np.cumsum([first, HIDDEN, second]))
    return [(parts[0].reshape(inputs, HIDDEN), parts[1]), (parts[2].reshape(HIDDEN, outputs), parts[3])]


def logits(network: list[tuple[np.ndarray, np.ndarray]], obs: np.ndarray) -> np.ndarray:
    hidden = np.maximum(obs @ network[0][0] + network[0][1], 0)
    return hidden @ network[1][0] + network[1][1]


def play(env: Any, network: list[tuple[np.ndarray, np.ndarray]], seed: int) -> tuple[float, list[np.ndarray]]:
    """The return of one greedy episode, and the states in it."""
    obs, _ = env.reset(seed=seed)
    total = 0.0
    states = []
    over = False
    while not over:
        states.append(obs)
        obs, reward, terminated, truncated, _ = env.step(int(logits(network, obs).argmax()))
        total += float(reward)
        over = terminated or truncated
    return total, states


def search(task: Task) -> Iterator[tuple[int, float, np.ndarray]]:
    """Generations: their number, the mean return of the mean network, and that network."""
    env = gymnasium.make(task.environment)
    rng = np.random.default_rng(task.seed)
    space: Any = env.action_space
    inputs = env.observation_space.shape[0]  # pyright: ignore[reportOptionalSubscript]
    outputs = int(space.n)
    size = inputs * HIDDEN + HIDDEN + HIDDEN * outputs + outputs
    mean = np.zeros(size)
    deviation = np.ones(size)
    for generation in range(task.generations):
        candidates = mean + deviation * rng.normal(size=(task.population, size))
        seeds = [1000 * generation + episode for episode in range(task.episodes)]
        fitness = [
            np.mean([play(env, layers(vector, inputs, outputs), seed)[0] for seed in seeds]) for vector in candidates
        ]
        best = candidates[np.argsort(fitness)[-task.elite :]]
        mean = best.mean(axis=0)
        deviation = best.std(axis=0) + 0.3 * max(0.0, 1 - generation / 15)
        tests = [play(env, layers(mean, inputs, outputs), 10**6 + seed)[0] for seed in range(5)]
        yield generation, float(np.mean(tests)), mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only")
    options = parser.parse_args()
    for task in TASKS:
        if options.only in (None, task.name):
            earned, vector = max(
                ((earned, tuple(vector)) for _, earned, vector in watched(task)), key=lambda pair: pair[0]
            )
            save(task, np.array(vector), options.out / f"{task.name}-expert.safetensors")
            print(f"{task.name}: {earned:.1f}", flush=True)


def watched(task: Task) -> Iterator[tuple[int, float, np.ndarray]]:
    for generation, earned, vector in search(task):
        print(f"{task.name} {generation}: {earned:.1f}", flush=True)
        yield generation, earned, vector


def save(task: Task, vector: np.ndarray, path: Path) -> None:
    """The network in the layout of winnow's behaviour policies, its logits scaled."""
    env = gymnasium.make(task.environment)
    space: Any = env.action_space
    network = layers(vector, env.observation_space.shape[0], int(space.n))  # pyright: ignore[reportOptionalSubscript]
    states = np.concatenate([play(env, network, seed)[1] for seed in range(3)])
    spread = logits(network, states).std()
    (last_weight, last_bias) = network[1]
    network[1] = (last_weight * LOGIT_SPREAD / spread, last_bias * LOGIT_SPREAD / spread)
    tensors = {}
    for depth, (weight, bias) in enumerate(network):
        tensors |= {f"actor/{depth}/w": np.float32(weight), f"actor/{depth}/b": np.float32(bias)}
    save_file(tensors, str(path))


if __name__ == "__main__":
    run_script(main)
