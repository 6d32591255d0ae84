"""winnow against the authors' code, update by update: the same rows, initial parameters and random numbers, in 64 bits.
After 100 updates losses and parameters must still be equal up to rounding.

    python benchmarks/exact.py batches DATASET --out batches.npz
    OTHER_PYTHON benchmarks/authors.py NAME --code FOLDER --batches batches.npz --out NAME.npz     (see there)
    python benchmarks/exact.py compare NAME.npz … --batches batches.npz --json results/conformance/exact.json

The results of several datasets go into one file, under the dataset's name.
"""

from __future__ import annotations

import os

os.environ["JAX_ENABLE_X64"] = "1"

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from authors import LOOKS, MAX_STEPS

from winnow.data.scaling import reward_transform, weighter_reward_transform
from winnow.data.sources import open_dataset
from winnow.errors import run_script
from winnow.methods import make_algorithm, make_weighter
from winnow.system.checkpoint import flatten
from winnow.types import Batch, Spec, Weights

BATCH = 256
KEY = jax.random.key(11)
"""Used in every update: all updates have the same random numbers, on both sides."""


# ---------------------------------------------------------------------------------------------------- batches


def make_batches(name: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows of a dataset as each algorithm reads them, and the random numbers of its updates, in 64 bits."""
    data = open_dataset(name)
    rng = np.random.default_rng(seed)
    rows = data.rows()
    # Rows that a timeout ends have no next action; the authors' code has no such rows.
    follows = np.append(data.episode[1:] == data.episode[:-1], False)
    whole = np.flatnonzero(follows | (rows.terminal > 0))
    index = whole[rng.integers(0, len(whole), (max(LOOKS), BATCH))]
    obs, action, reward, next_obs, terminal = (np.asarray(part, np.float64) for part in data.rows(index.reshape(-1)))
    mean, std = (moment.astype(np.float64) for moment in data.obs_moments)
    scale, shift = reward_transform(data, "return-range")
    deviation, _ = weighter_reward_transform(data, "std")
    unit, low = weighter_reward_transform(data, "min-max")
    columns = {
        "obs": obs,
        "next_obs": next_obs,
        "obs_standard": (obs - mean) / std,
        "next_obs_standard": (next_obs - mean) / std,
        "action": action,
        "action_clipped": np.clip(action, -0.999, 0.999),
        "reward": reward,
        "reward_iql": scale * reward + shift,
        "weighter_std": deviation * reward,
        "weighter_minmax": unit * reward + low,
        "next_action": rows.action[np.minimum(index.reshape(-1) + 1, len(data) - 1)],
        "terminal": terminal,
        "goes_on": 1 - terminal,
    }
    arrays = {
        name: column.astype(np.float32).astype(np.float64).reshape(max(LOOKS), BATCH, *column.shape[1:])
        for name, column in columns.items()  # d3rlpy keeps rows in 32 bits
    }
    arrays["reward_range"] = np.array([data.reward.min(), data.reward.max()], np.float64)
    arrays["dataset"] = np.array(name)
    return arrays | draws(data.action_dim)


def draws(actions: int) -> dict[str, np.ndarray]:
    """The random numbers of winnow's algorithms in an update with this key, with rows on the first axis."""
    k_pi, k_next, k_uniform, k_here, k_there = jax.random.split(KEY, 5)
    k_fql = dict(zip(("next", "start", "time", "noise"), jax.random.split(KEY, 4), strict=True))
    several = (10, BATCH, actions)
    rows_first = (1, 0, 2)
    numbers = {
        "noise_pi": jax.random.normal(k_pi, (BATCH, actions)),
        "noise_next": jax.random.normal(k_next, (BATCH, actions)),
        "uniform": jax.random.uniform(k_uniform, several, minval=-1.0, maxval=1.0).transpose(rows_first),
        "noise_here": jax.random.normal(k_here, several).transpose(rows_first),
        "noise_there": jax.random.normal(k_there, several).transpose(rows_first),
        "noise_td3": jax.random.normal(KEY, (BATCH, actions)),
        "fql_time": jax.random.uniform(k_fql.pop("time"), (BATCH, 1)),
        **{f"fql_{name}": jax.random.normal(key, (BATCH, actions)) for name, key in k_fql.items()},
    }
    return {name: np.asarray(value) for name, value in numbers.items()}


# ------------------------------------------------------------------------------------- against the authors' code


def compare(name: str, peer: dict[str, np.ndarray], batches: dict[str, np.ndarray]) -> dict[str, Any]:
    """The largest relative difference of any parameter array and of any loss after each number of updates. Both sides
    begin with the peer's parameters."""
    family = name.removeprefix("dw-")
    weighted = name.startswith("dw-")
    algorithm: Any = make_algorithm(family)
    weighter: Any = make_weighter("density", family) if weighted else None
    spec = Spec(batches["obs"].shape[-1], batches["action"].shape[-1], 1_000)
    state = _begin(algorithm.init(KEY, spec), peer)
    weigh = _begin(weighter.init(KEY, spec), peer) if weighted else None

    @jax.jit
    def update(state: Any, weigh: Any, batch: Batch) -> Any:
        weights = Weights(*(jnp.full(BATCH, 1 / BATCH),) * 2)
        metrics = {}
        if weighted:
            weigh, weights, metrics = weighter.update(weigh, batch, KEY)
        state, learnt = algorithm.update(state, batch, weights, KEY)
        return state, weigh, metrics | learnt

    out: dict[str, Any] = {"parameters": {}, "losses": {}}
    losses: dict[str, list[float]] = {}
    for number in range(max(LOOKS)):
        batch = _batch(family, batches, number)
        state, weigh, metrics = update(state, weigh, batch)
        if family == "cql":
            metrics["critic"] = metrics["loss/td"] + algorithm.penalty * metrics["loss/penalty"]
        for key, value in metrics.items():
            losses.setdefault(key, []).append(float(value))
        if number + 1 in LOOKS:
            mine = _params(state) | (_params(weigh) if weighted else {})
            theirs = _at(peer, number + 1)
            missing = set(theirs) ^ set(mine)
            if missing:
                raise SystemExit(f"{name}: parameters differ: {sorted(missing)}")
            out["parameters"][str(number + 1)] = max(_apart(mine[key], theirs[key]) for key in theirs)
    for key, theirs in ((key.removeprefix("losses/"), each) for key, each in peer.items() if key.startswith("losses/")):
        for look in LOOKS[1:]:
            apart = abs(losses[key][look - 1] - theirs[look - 1]) / max(abs(theirs[look - 1]), 1e-12)
            out["losses"][str(look)] = max(out["losses"].get(str(look), 0.0), float(apart))
    begin, end = (np.concatenate([part.ravel() for part in _at(peer, look).values()]) for look in (0, max(LOOKS)))
    out["moved"] = _apart(end, begin)
    return out


def _at(peer: dict[str, np.ndarray], look: int) -> dict[str, np.ndarray]:
    prefix = f"{look}/"
    return {name.removeprefix(prefix): value for name, value in peer.items() if name.startswith(prefix)}


def _apart(mine: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.linalg.norm(mine - theirs) / max(np.linalg.norm(theirs), 1e-12))


def _params(state: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in flatten(jax.tree.map(np.asarray, state.params)).items()}


def _begin(state: Any, peer: dict[str, np.ndarray]) -> Any:
    """A state in 64 bits with the peer's parameters, also as targets, and fresh moments."""
    start = _at(peer, 0)
    double = jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if leaf.dtype.kind == "f" else leaf, state)
    leaves = [jnp.asarray(start[name]) for name in flatten(jax.tree.map(np.asarray, double.params))]
    params = jax.tree.unflatten(jax.tree.structure(double.params), leaves)
    changes: dict[str, Any] = {"params": params}
    if hasattr(double, "target_critic"):
        changes["target_critic"] = params["critic"]
    if hasattr(double, "target"):
        changes["target"] = params
    return double._replace(**changes)


def _batch(family: str, batches: dict[str, np.ndarray], number: int) -> Batch:
    standard = "_standard" if family == "td3bc" else ""
    obs = batches[f"obs{standard}"][number]
    following = batches[f"next_obs{standard}"][number]
    return Batch(
        obs=jnp.asarray(obs),
        # The authors clip the data's actions for CQL; ours does so itself, after the weighter has read them.
        action=jnp.asarray(batches["action_clipped" if family == "cql" else "action"][number]),
        reward=jnp.asarray(batches["reward_iql" if family == "iql" else "reward"][number]),
        next_obs=jnp.asarray(following),
        terminal=jnp.asarray(batches["terminal"][number]),
        unit_reward=jnp.asarray(batches["weighter_std" if family == "iql" else "weighter_minmax"][number]),
        start_obs=jnp.asarray(following),  # the authors' flow goes to s' after a terminal too
        next_action=jnp.asarray(batches["next_action"][number]),
        row=jnp.zeros(BATCH, int),
        step=jnp.asarray(number),
        progress=jnp.asarray(number / MAX_STEPS),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    made = parts.add_parser("batches", help="write rows and random numbers for both sides")
    made.add_argument("dataset")
    made.add_argument("--out", type=Path, required=True)
    compared = parts.add_parser("compare", help="compare parameters and losses with those of the authors' code")
    compared.add_argument("peers", type=Path, nargs="+", help="what authors.py wrote, named after its implementation")
    compared.add_argument("--batches", type=Path, required=True)
    compared.add_argument("--json", type=Path, help="the file that the results are added to")
    args = parser.parse_args()
    if args.part == "batches":
        np.savez(args.out, allow_pickle=False, **make_batches(args.dataset))
        return
    with np.load(args.batches) as file:
        batches = dict(file)
    results = {}
    for path in args.peers:
        with np.load(path) as file:
            results[path.stem] = compare(path.stem, dict(file), batches)
        print(path.stem, json.dumps(results[path.stem]), flush=True)
    if args.json:
        known = json.loads(args.json.read_text()) if args.json.exists() else {}
        args.json.write_text(json.dumps(known | {str(batches["dataset"]): results}, indent=1) + "\n")


if __name__ == "__main__":
    run_script(main)
