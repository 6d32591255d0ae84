"""Returns of the shipped behaviour policies in episodes that were not used to choose them.

    python experiments/policies/evaluate.py       writes results/policies/returns.json and prints the table of the docs

Twenty episodes each, seeds 20000 to 20019, once with the mean action and once with sampled actions.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

import jax
import numpy as np

from winnow import envs
from winnow.collect import behaviour
from winnow.errors import run_script
from winnow.nets import squashed_mean, squashed_sample

SEEDS = range(20_000, 20_020)


def play(env: str, level: str, drawn: bool) -> list[float]:
    """Returns of the twenty episodes, which are played together."""
    actor, record = behaviour(env, level)
    low = np.asarray(record["action_low"])
    high = np.asarray(record["action_high"])
    mean = jax.jit(partial(squashed_mean, actor))
    sample = jax.jit(lambda obs, key: squashed_sample(actor, obs, key)[0])
    games = [envs.make(env) for _ in SEEDS]
    obs = np.stack([game.reset(seed=seed)[0] for game, seed in zip(games, SEEDS, strict=True)]).astype(np.float32)
    total = np.zeros(len(games))
    over = np.zeros(len(games), bool)
    key = jax.random.key(0)
    while not over.all():
        key, k_draw = jax.random.split(key)
        action = np.asarray(sample(obs, k_draw) if drawn else mean(obs), np.float64)
        action = low + (action + 1) / 2 * (high - low)
        for number in np.flatnonzero(~over):
            seen, reward, terminal, timeout, _ = games[number].step(action[number])
            obs[number] = seen
            over[number] = terminal or timeout
            total[number] += float(reward)
    return total.tolist()


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    returns_of = {}
    print("| policy | step of its run | mean action | score | drawn actions | score |\n|---|---|---|---|---|---|")
    for env in ("hopper", "halfcheetah", "walker2d", "ant"):
        for level in ("medium", "expert"):
            record = behaviour(env, level)[1]
            cells = []
            for kind, drawn in (("mean", False), ("drawn", True)):
                returns = np.asarray(play(env, level, drawn))
                returns_of[f"{env}-{level}-{kind}"] = returns.tolist()
                scores = envs.normalised(env, returns)
                assert scores is not None
                cells += [f"{returns.mean():.0f} ± {returns.std():.0f}", f"{scores.mean():.1f}"]
            print(f"| {env}-{level} | {record['step']:,} | {' | '.join(cells)} |", flush=True)
    kept = {"physics": envs.physics(), "seeds": list(SEEDS), "returns": returns_of}
    (Path(__file__).parents[2] / "results" / "policies" / "returns.json").write_text(json.dumps(kept))


if __name__ == "__main__":
    run_script(main)
