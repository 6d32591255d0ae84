"""Discrete methods on a tabular process of 700 states and 25 actions, whose values are known exactly.

    python experiments/discrete/tabular.py            trains, and writes results/discrete/tabular.json
    python experiments/discrete/tabular.py --table    the table of docs/discrete.md from that file

The process is made to look like a course of treatment: a state has a severity, and each state has one right dose out of
a grid of 5 × 5. Doses far from it make severity rise. An episode ends well (+1) where severity is low and badly (−1)
where it is high. A tenth of the rows are of nearly the best policy, the rest of one that doses at random. Observations
are one-hot and networks have no hidden layer, so that Q and policies are tables.

J is the mean reward of a step, with a new episode after each end. It is computed exactly from the transitions: for the
policy that training gave, and for the policy that the weights mean, π(a|s) ∝ the weight of the data's rows (s, a).
`promised` is the mean reward of the weighted rows themselves, which is a policy's only where weights conserve flow.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import winnow
from winnow.data.dataset import Dataset
from winnow.errors import run_script
from winnow.methods import make_algorithm, method
from winnow.training import train_runs
from winnow.training.planning import plan

STATES = 700
SIDE = 5
ACTIONS = SIDE * SIDE
GOOD = STATES
BAD = STATES + 1
ROWS = 40_000
SHARE = 0.1
SEEDS = 3
STEPS = 3_000
BATCH = 128
RATE = 1e-2
PAIRS = [
    *(("bc", name) for name in ("uniform", "aw", "dw-uniform", "dw-aw", "dual-uniform", "best-source")),
    *(("cql", name) for name in ("uniform", "aw", "dual-uniform")),
    *(("iql", name) for name in ("uniform", "aw", "dual-uniform")),
]
FILE = Path(__file__).parents[2] / "results" / "discrete" / "tabular.json"


@dataclass(frozen=True)
class Process:
    """Transitions [S, A, S + 2] (the last two are the ends), and the distribution of first states [S]."""

    transition: np.ndarray
    start: np.ndarray

    @property
    def reward(self) -> np.ndarray:
        """[S, A] the mean reward of each pair."""
        return self.transition[..., GOOD] - self.transition[..., BAD]

    def average(self, policy: np.ndarray) -> float:
        """J of a policy [S, A]: the mean reward of a step in the long run."""
        flow = np.einsum("sa,sat->st", policy, self.transition)
        chain = flow[:, :STATES] + flow[:, STATES:].sum(axis=1, keepdims=True) * self.start
        equations = np.vstack([chain.T - np.eye(STATES), np.ones(STATES)])
        visits = np.linalg.lstsq(equations, np.append(np.zeros(STATES), 1.0), rcond=None)[0]
        return float(visits @ (policy * self.reward).sum(axis=1))

    def best(self) -> tuple[float, np.ndarray]:
        """The greatest J and a policy that has it, by policy iteration on the average reward."""
        policy = np.full((STATES, ACTIONS), 1 / ACTIONS)
        while True:
            average = self.average(policy)
            flow = np.einsum("sa,sat->st", policy, self.transition)
            chain = flow[:, :STATES] + flow[:, STATES:].sum(axis=1, keepdims=True) * self.start
            gain = (policy * self.reward).sum(axis=1) - average
            value = np.linalg.lstsq(np.eye(STATES) - chain, gain, rcond=None)[0]
            ends = self.transition[..., STATES:].sum(axis=-1)
            q = self.reward + self.transition[..., :STATES] @ value + ends * (self.start @ value)
            better = np.eye(ACTIONS)[q.argmax(axis=1)]
            if self.average(better) <= average + 1e-12:
                return average, policy
            policy = better


def process(seed: int = 0) -> Process:
    rng = np.random.default_rng(seed)
    severity = rng.random(STATES)
    dose = np.stack(np.divmod(np.arange(ACTIONS), SIDE), axis=1)
    right = rng.integers(SIDE, size=(STATES, 2))
    far = np.abs(dose[None] - right[:, None]).sum(axis=-1) / (2 * (SIDE - 1))  # [S, A] in [0, 1]
    after = np.clip(severity[:, None] - 0.1 + 0.3 * far, 0, 1)
    transition = np.zeros((STATES, ACTIONS, STATES + 2))
    for state in range(STATES):
        for action in range(ACTIONS):
            candidates = rng.integers(STATES, size=12)
            near = np.exp(-(((severity[candidates] - after[state, action]) / 0.08) ** 2)) + 1e-6
            np.add.at(transition[state, action], candidates, near / near.sum())
    well = 0.3 * np.clip(0.25 - after, 0, None) / 0.25
    badly = 0.3 * np.clip(after - 0.75, 0, None) / 0.25
    transition[..., :STATES] *= (1 - well - badly)[..., None]
    transition[..., GOOD] = well
    transition[..., BAD] = badly
    start = np.where((severity > 0.4) & (severity < 0.7), 1.0, 0.0)
    return Process(transition, start / start.sum())


def episodes(world: Process, policy: np.ndarray, rows: int, seed: int, name: str) -> Dataset:
    """So many rows of a policy's episodes, with its propensities."""
    rng = np.random.default_rng(seed)
    ladder = world.transition.cumsum(axis=-1)
    choice = policy.cumsum(axis=1)
    first = world.start.cumsum()
    steps: list[tuple[int, int, int]] = []
    while len(steps) < rows or steps[-1][2] < STATES:
        begins = not steps or steps[-1][2] >= STATES
        state = int(first.searchsorted(rng.random() * first[-1])) if begins else steps[-1][2]
        action = min(int(choice[state].searchsorted(rng.random())), ACTIONS - 1)
        steps.append((state, action, min(int(ladder[state, action].searchsorted(rng.random())), BAD)))
    state, action, following = np.array(steps).T
    ends = following >= STATES
    eye = np.eye(STATES + 1, STATES, dtype=np.float32)  # an end looks like no state
    return winnow.from_arrays(
        eye[state],
        action,
        np.where(following == GOOD, 1.0, np.where(following == BAD, -1.0, 0.0)),
        ends,
        timeouts=np.zeros(len(steps)),
        next_observations=eye[np.minimum(following, STATES)],
        action_choices=ACTIONS,
        propensities=policy[state, action],
        name=name,
    )


def extracted(data: Dataset, weight: np.ndarray) -> np.ndarray:
    """π(a|s) ∝ the weight of the rows (s, a); uniform in a state without weight."""
    rows = data.rows()
    state = rows.obs.argmax(axis=1)
    action = rows.action[:, 0]
    table = np.zeros((STATES, ACTIONS))
    np.add.at(table, (state, action), weight)
    total = table.sum(axis=1, keepdims=True)
    return np.where(total > 0, table / np.where(total > 0, total, 1), 1 / ACTIONS)


def plug_in(config: Any) -> Any:
    """Tables in place of networks, and their learning rate."""
    known = {field.name for field in dataclasses.fields(config)}
    wanted = {"hidden": (), "standardise": False, "learning_rate": RATE, "initialisation": "he"}
    return dataclasses.replace(config, **{name: value for name, value in wanted.items() if name in known})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true")
    if parser.parse_args().table:
        print(table(json.loads(FILE.read_text())))
        return
    world = process()
    best, policy = world.best()
    random = np.full((STATES, ACTIONS), 1 / ACTIONS)
    good = 0.9 * policy + 0.1 * random
    low, high = (
        episodes(world, each, ROWS, seed, name)
        for seed, (each, name) in enumerate(((random, "random"), (good, "good")))
    )
    data = winnow.mixed(low, high, SHARE, rows=ROWS, low_label="random", high_label="good", name="tabular")
    runs = []
    for algorithm, name in PAIRS:
        learner = plug_in(make_algorithm(algorithm, data))
        weighter = plug_in(method(name, f"discrete-{algorithm}")[1])
        runs += plan(data, learner, name, weighter=weighter, seeds=SEEDS)
    lines = []
    for trained in train_runs(runs, steps=STEPS, batch_size=BATCH, chunk=STEPS):
        weights = trained.weights()
        mass = weights.probability * weights.ratio
        _, algorithm, label, seed = trained.run.name.split(".")
        greedy = np.eye(ACTIONS)[trained.policy(np.eye(STATES, dtype=np.float32))]
        lines.append(
            {
                "algorithm": algorithm.removeprefix("discrete-"),
                "method": label,
                "seed": int(seed.removeprefix("seed")),
                "policy": world.average(greedy),
                "weights": world.average(extracted(data, mass)),
                "promised": float(mass @ data.reward),
                "good_rows": weights.share(data.source == 1),
            }
        )
    known = {"best": best, "random": world.average(random), "good": world.average(good)}
    known["data"] = world.average(extracted(data, np.ones(len(data))))
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps({"known": known, "runs": lines}) + "\n")
    print(table(json.loads(FILE.read_text())))


def table(kept: dict[str, Any]) -> str:
    known = kept["known"]
    rows = [f"| exact | J |\n|---|---|\n| the best policy | {known['best']:.4f} |"]
    rows += [f"| the good source (a tenth of the rows) | {known['good']:.4f} |"]
    rows += [f"| the random source | {known['random']:.4f} |", f"| the whole data, cloned | {known['data']:.4f} |\n"]
    heads = ("algorithm, method", "J of the policy", "J of the weights' policy", "promised", "weight on good rows")
    rows += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for pair in dict.fromkeys((line["algorithm"], line["method"]) for line in kept["runs"]):
        mine = [line for line in kept["runs"] if (line["algorithm"], line["method"]) == pair]
        cells = [np.mean([line[name] for line in mine]) for name in ("policy", "weights", "promised", "good_rows")]
        spread = np.std([line["policy"] for line in mine], ddof=1)
        shown = [f"{cells[0]:.4f} ± {spread:.4f}", f"{cells[1]:.4f}", f"{cells[2]:.4f}", f"{cells[3]:.0%}"]
        rows.append(f"| {', '.join(pair)} | {' | '.join(shown)} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    run_script(main)
