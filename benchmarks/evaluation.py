"""Speed of evaluation against its limit: steps per second of policies played on all cores, and of bare environments.

python benchmarks/evaluation.py [--runs 8] [--rounds 3] [--level expert] [--environments hopper …] [--json FILE]

The limit is the rate of one process that steps the environment with actions from a list, times the number of cores.
The actions are the policy's own, since steps after a fall cost another time than steps while running. The same loop is
also timed on all cores at once, because cores that share caches and power are slower together.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np

from winnow import envs
from winnow.errors import run_script
from winnow.system.cores import cores_here

LOOP = "from evaluation import loop; loop()"
GOAL = 0.9


def loop() -> None:
    """Read an environment and actions; then, for each line (a number of seconds), print the steps per second."""
    job = json.loads(sys.stdin.readline())
    env = envs.make(job["name"])
    actions = [np.array(action, env.action_space.dtype) for action in job["actions"]]
    for line in sys.stdin:
        began = time.perf_counter()
        steps = 0
        while time.perf_counter() - began < float(line):
            env.reset(seed=job["seed"])
            for action in actions:
                env.step(action)
            steps += len(actions)
        print(steps / (time.perf_counter() - began), flush=True)


class Loops:
    """The bare environment in as many processes as there are cores."""

    def __init__(self, name: str, policy: Any) -> None:
        seed = envs.episode_seed(envs.EVALUATION_SEEDS, 0, 0)
        env = envs.make(name)
        actions = []
        over = False
        obs = env.reset(seed=seed)[0]
        while not over:
            actions.append(policy(obs[None, None].astype(np.float32))[0, 0])
            obs, _, terminated, truncated, _ = env.step(actions[-1])
            over = terminated or truncated
        job = {"name": name, "seed": seed, "actions": np.array(actions, float).tolist()}
        command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; {LOOP}"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
        self.children: list[Any] = [subprocess.Popen(command, **pipes) for _ in range(cores_here())]
        self._send(self.children, json.dumps(job))

    def _send(self, children: list[Any], line: str) -> None:
        for child in children:
            child.stdin.write(line + "\n")
            child.stdin.flush()

    def rate(self, processes: int, seconds: float) -> float:
        """Steps per second of this many processes together."""
        children = self.children[:processes]
        self._send(children, str(seconds))
        return sum(float(child.stdout.readline()) for child in children)

    def close(self) -> None:
        for child in self.children:
            child.stdin.close()
            child.wait()


def measure(name: str, level: str, runs: int, rounds: int, seconds: float) -> dict[str, float]:
    """Medians over rounds; in each round the three measurements take turns."""
    import jax
    import jax.numpy as jnp

    from winnow.collect import behaviour
    from winnow.envs.play import Games
    from winnow.nets import squashed_mean

    actor, _ = behaviour(name, level)
    batched = jax.jit(jax.vmap(squashed_mean))
    copies = jax.tree.map(lambda leaf: jnp.stack([leaf] * runs), actor)
    parts = {count: jax.tree.map(lambda leaf, n=count: leaf[:n], copies) for count in range(1, runs + 1)}

    def act(obs: np.ndarray, runs: slice = slice(0, 1)) -> np.ndarray:
        return np.asarray(batched(parts[runs.stop - runs.start], obs))

    loops = Loops(name, act)
    seen: dict[str, list[float]] = {"one": [], "all": [], "play": [], "steps": []}
    with Games([name] * runs, 20) as games:
        loops.rate(len(loops.children), 0.1)
        for group in games.groups:
            act(np.zeros((group.runs.stop - group.runs.start, group.seats, envs.shape(name).obs_dim)), group.runs)
        for number in range(rounds):
            seen["one"].append(loops.rate(1, seconds))
            seen["all"].append(loops.rate(len(loops.children), seconds))
            played = games.play(act, range(runs), 20 * number)
            seen["play"].append(played.rate)
            seen["steps"].append(float(played.lengths.mean()))
    loops.close()
    medians = {what: float(np.median(values)) for what, values in seen.items()}
    cores = cores_here()
    played = medians["play"]
    return medians | {"of one × cores": played / medians["one"] / cores, "of all": played / medians["all"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=8, help="policies that are played together, 20 episodes each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn of the bare environment")
    parser.add_argument("--level", default="expert", choices=["medium", "expert"])
    parser.add_argument("--environments", nargs="+", default=["hopper", "halfcheetah", "walker2d", "ant"])
    parser.add_argument("--json", help="also write every number to this file")
    args = parser.parse_args()
    print(f"{args.runs} {args.level} policies × 20 episodes on {cores_here()} cores (goal {GOAL})", flush=True)
    names = ("", "own rate", "all at once", "played", "of own × cores", "of all at once", "steps")
    print("".join(name.rjust(16) for name in names), flush=True)
    numbers = {}
    for name in args.environments:
        numbers[name] = f = measure(name, args.level, args.runs, args.rounds, args.seconds)
        cells = [f"{f[what]:,.0f}/s" for what in ("one", "all", "play")]
        cells += [f"{f['of one × cores']:.2f}", f"{f['of all']:.2f}", f"{f['steps']:.0f}"]
        print("".join(cell.rjust(16) for cell in (name, *cells)), flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"cores": cores_here(), "runs": args.runs, "level": args.level} | numbers, file, indent=1)


if __name__ == "__main__":
    run_script(main)
