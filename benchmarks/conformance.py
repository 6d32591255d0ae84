"""winnow against d3rlpy: both train on the same rows with the same settings, and their curves are compared.

    python benchmarks/conformance.py run --out FOLDER [--updates 20000] [--seeds 5] [--sides winnow d3rlpy]
    python benchmarks/conformance.py gather FOLDER --json results/conformance/curves.json
    python benchmarks/conformance.py table results/conformance/curves.json

Each run leaves a small JSON file and is not done again; several processes may share the folder. A twentieth of the
episodes is held out of both. winnow trains the seeds of a dataset as one pack: `winnow` in float32, `winnow-half` in
the half floats of its GPU kernels. Where d3rlpy has an option, it is set as the authors have it: networks begin with
winnow's parameters, IQL's policy has a falling learning rate and a log-std of 0 to begin with, CQL has no learned
penalty.

What stays different in d3rlpy 2.8: the last step of a cut episode is dropped; IQL's Q and V learn together, so that Q
reads the V of the update before; IQL's log-std is bounded by a sigmoid; CQL backs up the policy's mean action, learns
the entropy temperature by its own value and not by its logarithm, and moves its policy after its critics; BC here is
deterministic, and winnow's is Gaussian.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from winnow.data.catalogue import open_named
from winnow.data.dataset import Dataset
from winnow.data.scaling import reward_transform
from winnow.envs import normalised, play
from winnow.errors import run_script
from winnow.methods import make_algorithm
from winnow.nets import twins
from winnow.packs.pack import Pack
from winnow.packs.precision import Precision
from winnow.packs.run import Run
from winnow.samplers import Uniform
from winnow.system.files import write_text
from winnow.system.locks import Taken, locked
from winnow.types import Batch
from winnow.weighters import NoWeights

ALGORITHMS = ("bc", "td3bc", "iql", "cql")
SETS = tuple(
    f"{environment}-{kind}@200000"
    for kind in ("expert", "random-expert-10%")
    for environment in ("hopper", "walker2d", "halfcheetah")
)
SIDES = ("winnow", "winnow-half", "d3rlpy")
PAIRS = (("winnow", "d3rlpy"), ("winnow-half", "winnow"))
"""The comparisons: the reference with the peer, and half floats with the reference."""
BATCH = 256
CQL_PART = 3
"""CQL, the slowest, makes a third of the updates."""
LOOKS = 10
"""Points of a curve."""
ROWS = 4_096
"""Rows whose values make a point of a curve."""
EPISODES = 10
"""Episodes that are played at the end."""
SHARED = {"bc": (), "td3bc": (), "iql": ("v", "nll"), "cql": ("nll",)}
"""Values that both sides give for a row, besides Q and the squared error of the policy's mean action."""
HELD_OUT = 20
"""One episode of this many is held out."""


class Data(NamedTuple):
    train: Dataset
    looked_at: dict[str, Any]
    """Rows of the training data (seen) and of the held-out episodes (unseen), for the curves."""


def opened(name: str) -> Data:
    whole = open_named(name, make=True)
    held_out = np.arange(len(whole.episodes)) % HELD_OUT == HELD_OUT - 1
    train = whole.select(np.flatnonzero(~held_out))
    rest = whole.select(np.flatnonzero(held_out))
    rng = np.random.default_rng(0)
    parts = {"seen": train, "unseen": rest}
    return Data(train, {where: part.rows(rng.integers(0, len(part), ROWS)) for where, part in parts.items()})


class Learner(NamedTuple):
    """One side of the comparison while it trains: a run for each seed."""

    advance: Callable[[int], None]
    look: Callable[[], list[dict[str, float]]]
    """The quantities of a curve, for each run."""
    act: play.Act


# ---------------------------------------------------------------------------------------------------- winnow


def winnow_side(algorithm: str, data: Data, seeds: Sequence[int], updates: int, precision: Precision) -> Learner:
    learner: Any = make_algorithm(algorithm, data.train)
    runs = [Run(data.train, learner, Uniform(), NoWeights(), seed) for seed in seeds]
    pack = Pack(runs, updates, BATCH, precision=precision)
    lane, _ = pack.lane(0)
    like = Batch(*[jnp.zeros(())] * 10)  # `inspect` reads observations and actions
    shift = np.asarray(lane.shift)
    scale = np.asarray(lane.scale)

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None, None))
    def values(state: Any, obs: Any, action: Any) -> dict[str, Any]:
        values_by_row = {"error": jnp.sum((learner.act(state, obs) - action) ** 2, axis=-1)}
        if algorithm != "bc":
            values_by_row["q"] = twins(state.params["critic"], obs, action).mean(axis=0)
        inspected = learner.inspect(state, like._replace(obs=obs, action=action))
        return values_by_row | {name: inspected[name] for name in SHARED[algorithm]}

    policy = jax.jit(jax.vmap(learner.act))

    def look() -> list[dict[str, float]]:
        states = pack.learners.algorithm
        with jax.default_matmul_precision("float32"):
            every = {
                where: jax.device_get(values(states, (rows.obs - shift) / scale, rows.action))
                for where, rows in data.looked_at.items()
            }
        return [
            means({where: {name: value[i] for name, value in every[where].items()} for where in every})
            for i in range(len(seeds))
        ]

    def act(obs: np.ndarray, runs: slice) -> np.ndarray:
        states = jax.tree.map(lambda leaf: leaf[runs], pack.learners.algorithm)
        with jax.default_matmul_precision("float32"):
            return np.asarray(policy(states, (obs - shift) / scale))

    return Learner(pack.advance, look, act)


# ---------------------------------------------------------------------------------------------------- d3rlpy


def d3rlpy_side(algorithm: str, data: Data, seed: int, updates: int, device: str | None = None) -> Learner:
    import d3rlpy
    import structlog
    import torch
    from d3rlpy.models.torch import build_gaussian_distribution, build_squashed_gaussian_distribution

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    torch.set_num_threads(1)
    d3rlpy.seed(seed)
    rows = data.train.rows()
    table = data.train.episodes
    timeout = np.zeros(len(rows.reward), bool)
    timeout[table.start + table.length - 1] = ~table.terminated
    terminal = rows.terminal.astype(np.float32)
    made = d3rlpy.dataset.MDPDataset(rows.obs, rows.action, rows.reward[:, None], terminal, timeout)
    config = d3rlpy_config(algorithm, data.train, updates)
    learner = config.create(device=device or False)
    learner.build_with_dataset(made)
    if learner.observation_scaler:
        learner.observation_scaler.fit_with_transition_picker(made.episodes, made.transition_picker)
    begin_alike(learner, algorithm, data.train, seed)
    impl: Any = learner.impl

    def tensor(x: Any) -> Any:
        return torch.as_tensor(np.asarray(x, np.float32), device=device)

    def scaled(obs: Any) -> Any:
        return learner.observation_scaler.transform(tensor(obs)) if learner.observation_scaler else tensor(obs)

    @torch.no_grad()
    def values(rows: Any) -> dict[str, Any]:
        obs = scaled(rows.obs)
        action = tensor(rows.action)
        policy = impl.policy(obs)
        out = {"error": ((policy.squashed_mu - action) ** 2).sum(dim=-1)}
        if algorithm != "bc":
            out["q"] = impl._q_func_forwarder.compute_expected_q(obs, action, "mean")[:, 0]
        if algorithm == "iql":
            out["v"] = impl._modules.value_func(obs)[:, 0]
            out["nll"] = -build_gaussian_distribution(policy).log_prob(action)[:, 0]
        if algorithm == "cql":
            inside = action.clamp(-0.999, 0.999)
            out["nll"] = -build_squashed_gaussian_distribution(policy).log_prob(inside)[:, 0]
        return {name: value.cpu().numpy() for name, value in out.items()}

    def advance(count: int) -> None:
        learner.fit(
            made,
            n_steps=count,
            n_steps_per_epoch=count,
            show_progress=False,
            save_interval=10**9,
            logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        )

    @torch.no_grad()
    def act(obs: np.ndarray) -> np.ndarray:
        return impl.policy(scaled(obs)).squashed_mu.cpu().numpy()

    def look() -> list[dict[str, float]]:
        return [means({where: values(rows) for where, rows in data.looked_at.items()})]

    return Learner(advance, look, lambda obs, _: act(obs[0])[None])


def d3rlpy_config(algorithm: str, train: Dataset, updates: int) -> Any:
    """d3rlpy's configuration, with the authors' settings where d3rlpy's differ."""
    import d3rlpy
    from d3rlpy.optimizers import AdamFactory
    from d3rlpy.optimizers.lr_schedulers import CosineAnnealingLRFactory

    standard = d3rlpy.preprocessing.StandardObservationScaler()
    if algorithm == "bc":
        return d3rlpy.algos.BCConfig(batch_size=BATCH, learning_rate=3e-4, observation_scaler=standard)
    if algorithm == "td3bc":
        return d3rlpy.algos.TD3PlusBCConfig(batch_size=BATCH, observation_scaler=standard)
    if algorithm == "iql":
        scale, _ = reward_transform(train, "return-range")
        return d3rlpy.algos.IQLConfig(
            batch_size=BATCH,
            reward_scaler=d3rlpy.preprocessing.MultiplyRewardScaler(scale),
            actor_optim_factory=AdamFactory(lr_scheduler_factory=CosineAnnealingLRFactory(T_max=updates)),
        )
    return d3rlpy.algos.CQLConfig(
        batch_size=BATCH,
        actor_learning_rate=3e-4,
        temp_learning_rate=3e-4,
        alpha_learning_rate=0.0,  # no learned penalty
        alpha_threshold=0.0,
        conservative_weight=10.0,
    )


def begin_alike(learner: Any, algorithm: str, train: Dataset, seed: int) -> None:
    """Give d3rlpy's networks the parameters that winnow's begin with."""
    import torch

    ours: Any = make_algorithm(algorithm, train)
    run = Run(train, ours, Uniform(), NoWeights(), seed)
    params = jax.device_get(ours.init(jax.random.key(1_000 + seed), run.spec).params)
    impl: Any = learner.impl
    modules = impl._modules

    def put(encoder: Any, heads: Any, layers: Any) -> None:
        hidden = [part for part in encoder.modules() if isinstance(part, torch.nn.Linear)]
        for linear, layer in zip([*hidden, heads], layers, strict=True):
            linear.weight.copy_(torch.as_tensor(np.asarray(layer["w"]).T.copy()))
            linear.bias.copy_(torch.as_tensor(np.asarray(layer["b"])))

    def critics(funcs: Any) -> None:
        for number, func in enumerate(funcs):
            layers = [{name: value[number] for name, value in layer.items()} for layer in params["critic"]]
            put(func._encoder, func._fc, layers)

    with torch.no_grad():
        if algorithm == "bc":
            put(modules.imitator._encoder, modules.imitator._fc, params["actor"]["mean"])
            return
        critics(modules.q_funcs)
        critics(modules.targ_q_funcs)
        if algorithm == "td3bc":
            for policy in (modules.policy, modules.targ_policy):
                put(policy._encoder, policy._fc, params["actor"])
        if algorithm == "iql":
            put(modules.policy._encoder, modules.policy._mu, params["actor"]["mean"])
            put(modules.value_func._encoder, modules.value_func._fc, params["value"])
            modules.policy._logstd.fill_(float(np.log(5 / 2)))  # −5 + 7 sigmoid(x) is 0
        if algorithm == "cql":
            *hidden, last = params["actor"]
            mean, log_std = ({name: np.split(value, 2, axis=-1)[i] for name, value in last.items()} for i in range(2))
            put(modules.policy._encoder, modules.policy._mu, [*hidden, mean])
            put(modules.policy._encoder, modules.policy._logstd, [*hidden, log_std])
            modules.policy._logstd.bias.sub_(1.0)  # log-std begins at 1 · output − 1


# -------------------------------------------------------------------------------------------------- running


def means(values: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Means over rows of the training data and over held-out rows."""
    return {
        f"{name}, {where}": float(np.mean(value))
        for where, columns in values.items()
        for name, value in columns.items()
    }


def train(
    side: str, algorithm: str, name: str, seeds: Sequence[int], updates: int, device: str | None = None
) -> list[dict[str, Any]]:
    """One side's runs of an algorithm on a dataset, as results: one for each seed."""
    data = opened(name)
    if side == "d3rlpy":
        learner = d3rlpy_side(algorithm, data, seeds[0], updates, device)
    else:
        learner = winnow_side(algorithm, data, seeds, updates, "half" if side == "winnow-half" else "float32")
    curve = [[{"update": 0} | point for point in learner.look()]]
    began = time.monotonic()
    for number in range(1, LOOKS + 1):
        learner.advance(updates // LOOKS)
        curve.append([{"update": number * (updates // LOOKS)} | point for point in learner.look()])
    seconds = time.monotonic() - began
    environment = str(data.train.meta.environment)
    played = play.play(environment, learner.act, list(seeds), EPISODES, processes=1)
    scores: Any = normalised(environment, played.returns)
    source: Any = normalised(environment, source_return(data.train))
    return [
        {
            "side": side,
            "algorithm": algorithm,
            "dataset": name,
            "fingerprint": data.train.fingerprint,
            "seed": seed,
            "updates": updates,
            "curve": [points[i] for points in curve],
            "returns": played.returns[i].tolist(),
            "score": float(scores[i].mean()),
            "source": float(source.mean()),
            "updates/s": len(seeds) * updates / seconds,
        }
        for i, seed in enumerate(seeds)
    ]


def source_return(train: Dataset) -> np.ndarray:
    """The mean return of the best source's episodes."""
    means = [train.returns[train.episodes.source == number] for number in range(len(train.meta.sources))]
    return np.array([max(part.mean() for part in means if len(part))])


def run_all(options: argparse.Namespace) -> None:
    """Train what has no result yet, the first seed of everything first."""
    seeds = [(seed,) for seed in range(options.seeds)]
    groups = {side: seeds if side == "d3rlpy" else [tuple(range(options.seeds))] for side in options.sides}
    plan = [
        (side, algorithm, name, group)
        for number in range(options.seeds)
        for algorithm, name, side in itertools.product(options.algorithms, options.sets, options.sides)
        for group in groups[side][number : number + 1]
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    for side, algorithm, name, group in plan:
        stem = f"{side}.{algorithm}.{name}"
        paths = [options.out / f"{stem}.{seed}.json" for seed in group]
        with contextlib.suppress(Taken), locked(options.out / f"{stem}.{group[0]}.lock"):
            if all(path.exists() for path in paths):
                continue
            updates = options.updates // CQL_PART if algorithm == "cql" else options.updates
            results = train(side, algorithm, name, group, updates, options.device)
            for path, result in zip(paths, results, strict=True):
                write_text(path, json.dumps(result) + "\n")
            scores = ", ".join(f"{result['score']:.1f}" for result in results)
            print(f"{stem}: scores {scores}; {results[0]['updates/s']:.0f} updates/s", flush=True)


def gather(folder: Path) -> list[dict[str, Any]]:
    """The results of a folder, in the order of their names."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


# ------------------------------------------------------------------------------------------------------ table


def table(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By pair of sides, algorithm, dataset and quantity: both means at the end, and the interval of the difference.

    Only runs on the same rows are compared.
    """
    lines = []
    for pair, algorithm, name in itertools.product(PAIRS, ALGORITHMS, SETS):
        mine = [run for run in runs if (run["algorithm"], run["dataset"]) == (algorithm, name)]
        for rows in sorted({run["fingerprint"] for run in mine}):
            sides = [[run for run in mine if (run["side"], run["fingerprint"]) == (side, rows)] for side in pair]
            if min(map(len, sides)) > 1:
                lines += compared(pair, sides)
    return lines


def compared(pair: Sequence[str], sides: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """A line for each quantity of two sides."""
    example = sides[0][0]
    lines = []
    for quantity in ["score", *(key for key in example["curve"][-1] if key != "update")]:
        first, second = (np.array([_last(run, quantity) for run in side]) for side in sides)
        low, high = difference(first, second)
        lines.append(
            {
                "sides": list(pair),
                "algorithm": example["algorithm"],
                "dataset": example["dataset"],
                "updates": example["updates"],
                "quantity": quantity,
                "means": [float(first.mean()), float(second.mean())],
                "seeds": [len(first), len(second)],
                "low": low,
                "high": high,
            }
        )
    return lines


def _last(run: Mapping[str, Any], quantity: str) -> float:
    return run["score"] if quantity == "score" else run["curve"][-1][quantity]


def difference(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """A 95 % interval of the difference of means, for unequal variances (Welch)."""
    from scipy.stats import ttest_ind

    interval = ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    return float(interval.low), float(interval.high)


def main() -> None:
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    runs = parts.add_parser("run", help="train what has no result yet")
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--updates", type=int, default=20_000, help="of each run; a third of them with CQL")
    runs.add_argument("--seeds", type=int, default=5)
    runs.add_argument("--algorithms", nargs="+", default=ALGORITHMS, choices=ALGORITHMS)
    runs.add_argument("--sets", nargs="+", default=SETS)
    runs.add_argument("--sides", nargs="+", default=("winnow", "d3rlpy"), choices=SIDES)
    runs.add_argument("--device", help="where d3rlpy trains, say cuda:0; without it on the CPU")
    gathered = parts.add_parser("gather", help="put the results of a folder into one file")
    gathered.add_argument("folder", type=Path)
    gathered.add_argument("--json", type=Path, required=True)
    shown = parts.add_parser("table", help="show the differences and their intervals")
    shown.add_argument("json", type=Path)
    options = parser.parse_args()
    if options.part == "run":
        run_all(options)
    elif options.part == "gather":
        write_text(options.json, "[\n" + ",\n".join(map(json.dumps, gather(options.folder))) + "\n]\n")
    else:
        for line in table(json.loads(options.json.read_text())):
            mark = "" if line["low"] <= 0 <= line["high"] else "  differs"
            print(
                f"{' − '.join(line['sides']):20} {line['algorithm']:6} {line['dataset']:36} {line['quantity']:14} "
                f"{line['means'][0]:10.3f} {line['means'][1]:10.3f}  [{line['low']:.3f}, {line['high']:.3f}]{mark}"
            )


if __name__ == "__main__":
    run_script(main)
