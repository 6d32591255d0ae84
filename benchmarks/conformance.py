"""winnow beside d3rlpy: both train on the same rows with the same settings, and their curves are compared.

    python benchmarks/conformance.py run --out results/conformance/curves [--updates 12000] [--seeds 5] [--shard 1/2]
    python benchmarks/conformance.py table results/conformance/curves

Each run leaves a small JSON file and is not done again. A twentieth of the episodes is held out of both. What d3rlpy
does otherwise than the authors is set as the authors have it where it has an option: networks begin with winnow's
parameters, IQL's policy has a falling learning rate and a log-std of 0 to begin with, CQL has no learned penalty.

What stays different in d3rlpy 2.8: the last step of a cut episode is dropped; IQL's Q and V learn together, so that Q
reads the V of the update before; IQL's log-std is bounded by a sigmoid; CQL backs up the policy's mean action, learns
the entropy temperature by its own value and not by its logarithm, and moves its policy after its critics; BC here is
deterministic, and winnow's is Gaussian.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from winnow import games
from winnow.data.dataset import Dataset
from winnow.data.scaling import reward_transform
from winnow.data.sources import open_dataset
from winnow.envs import normalised
from winnow.methods import make_algorithm
from winnow.nets import twins
from winnow.pack import Pack
from winnow.runs import Run
from winnow.samplers import Uniform
from winnow.types import Batch
from winnow.weighters import NoWeights

ALGORITHMS = ("bc", "td3bc", "iql", "cql")
SETS = tuple(
    f"{place}-{kind}@200000"
    for kind in ("expert", "random-expert-10%")
    for place in ("hopper", "walker2d", "halfcheetah")
)
SIDES = ("winnow", "d3rlpy")
BATCH = 256
CQL_PART = 3
"""CQL, the slowest, has a third of the updates."""
LOOKS = 10
"""Points of a curve."""
ROWS, EPISODES = 4_096, 10
"""Rows that a curve's values are of, and episodes at the end."""
SHARED = {"bc": (), "td3bc": (), "iql": ("v", "nll"), "cql": ("nll",)}
"""What both sides say of a row besides Q and the squared distance of the policy's mean action to the data's."""
HELD_OUT = 20
"""One episode of so many."""


class Data(NamedTuple):
    train: Dataset
    seen: Any
    """Some rows of the training data."""
    unseen: Any
    """Some rows of the episodes that are held out."""


def opened(name: str) -> Data:
    whole = open_dataset(name)
    held = np.arange(len(whole.episodes)) % HELD_OUT == HELD_OUT - 1
    train, rest = whole.select(np.flatnonzero(~held)), whole.select(np.flatnonzero(held))
    rng = np.random.default_rng(0)
    return Data(train, *(part.rows(rng.integers(0, len(part), ROWS)) for part in (train, rest)))


class Learner(NamedTuple):
    """One side in training."""

    advance: Callable[[int], None]
    look: Callable[[], dict[str, float]]
    act: Callable[[np.ndarray], np.ndarray]
    """Raw observations to actions."""


# ---------------------------------------------------------------------------------------------------- winnow


def winnow_side(algorithm: str, data: Data, seed: int, updates: int) -> Learner:
    learner: Any = make_algorithm(algorithm, data.train)
    pack = Pack([Run(data.train, learner, Uniform(), NoWeights(), seed)], updates, BATCH)
    lane, _ = pack.lane(0)
    like = Batch(*[jnp.zeros(())] * 10)  # `inspect` reads observations and actions
    shift, scale = np.asarray(lane.shift), np.asarray(lane.scale)

    @jax.jit
    def values(state: Any, obs: Any, action: Any) -> dict[str, Any]:
        found = {"error": jnp.sum((learner.act(state, obs) - action) ** 2, axis=-1)}
        if algorithm != "bc":
            found["q"] = twins(state.params["critic"], obs, action).mean(axis=0)
        inspected = learner.inspect(state, like._replace(obs=obs, action=action))
        return found | {name: inspected[name] for name in SHARED[algorithm]}

    def look() -> dict[str, float]:
        _, now = pack.lane(0)
        return _both(data, lambda rows: values(now.algorithm, (rows.obs - shift) / scale, rows.action))

    def act(obs: np.ndarray) -> np.ndarray:
        return np.asarray(learner.act(pack.lane(0)[1].algorithm, (obs - shift) / scale))

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
    rows, table = data.train.rows(), data.train.episodes
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
        obs, action = scaled(rows.obs), tensor(rows.action)
        policy = impl.policy(obs)
        found = {"error": ((policy.squashed_mu - action) ** 2).sum(dim=-1)}
        if algorithm != "bc":
            found["q"] = impl._q_func_forwarder.compute_expected_q(obs, action, "mean")[:, 0]
        if algorithm == "iql":
            found["v"] = impl._modules.value_func(obs)[:, 0]
            found["nll"] = -build_gaussian_distribution(policy).log_prob(action)[:, 0]
        if algorithm == "cql":
            inside = action.clamp(-0.999, 0.999)
            found["nll"] = -build_squashed_gaussian_distribution(policy).log_prob(inside)[:, 0]
        return {name: value.cpu().numpy() for name, value in found.items()}

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

    return Learner(advance, lambda: _both(data, values), act)


def d3rlpy_config(algorithm: str, train: Dataset, updates: int) -> Any:
    """d3rlpy's settings where they are not what the authors have."""
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


def _both(data: Data, values: Callable[[Any], dict[str, Any]]) -> dict[str, float]:
    """Means over rows that were trained on, and over rows that were held out."""
    found = {}
    for where, rows in (("seen", data.seen), ("unseen", data.unseen)):
        found |= {f"{name}, {where}": float(np.mean(value)) for name, value in values(rows).items()}
    return found


def one_run(side: str, algorithm: str, name: str, seed: int, updates: int, device: str | None = None) -> dict[str, Any]:
    data = opened(name)
    if side == "winnow":
        learner = winnow_side(algorithm, data, seed, updates)
    else:
        learner = d3rlpy_side(algorithm, data, seed, updates, device)
    curve, began = [{"update": 0} | learner.look()], time.monotonic()
    for number in range(1, LOOKS + 1):
        learner.advance(updates // LOOKS)
        curve.append({"update": number * (updates // LOOKS)} | learner.look())
    seconds = time.monotonic() - began
    environment = str(data.train.meta.environment)
    played = games.play(environment, lambda obs, _: learner.act(obs[0])[None], [seed], EPISODES, processes=1)
    score = normalised(environment, played.returns[0])
    assert score is not None
    return {
        "side": side,
        "algorithm": algorithm,
        "dataset": name,
        "seed": seed,
        "updates": updates,
        "curve": curve,
        "returns": played.returns[0].tolist(),
        "score": float(score.mean()),
        "source": float(normalised(environment, source_return(data.train)).mean()),  # pyright: ignore
        "updates/s": updates / seconds,
    }


def source_return(train: Dataset) -> np.ndarray:
    """The mean return of the best source's episodes."""
    means = [train.returns[train.episodes.source == number] for number in range(len(train.meta.sources))]
    return np.array([max(part.mean() for part in means if len(part))])


def run_all(words: argparse.Namespace) -> None:
    number, count = map(int, words.shard.split("/"))
    plan: list[Any] = list(itertools.product(range(words.seeds), words.algorithms, words.sets, words.sides))
    words.out.mkdir(parents=True, exist_ok=True)
    for seed, algorithm, name, side in plan[number - 1 :: count]:
        updates = words.updates // CQL_PART if algorithm == "cql" else words.updates
        path = words.out / f"{side}.{algorithm}.{name}.{seed}.json"
        if path.exists():
            continue
        found = one_run(side, algorithm, name, seed, updates, words.device)
        path.write_text(json.dumps(found) + "\n")
        print(f"{path.stem}: score {found['score']:.1f}, {found['updates/s']:.0f} updates/s", flush=True)


# ------------------------------------------------------------------------------------------------------ table


def table(folder: Path) -> list[dict[str, Any]]:
    """For each algorithm, set and quantity both sides' means at the end, and an interval of their difference."""
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    lines = []
    for algorithm, name in itertools.product(ALGORITHMS, SETS):
        sides = {
            side: [r for r in runs if (r["side"], r["algorithm"], r["dataset"]) == (side, algorithm, name)]
            for side in SIDES
        }
        if not all(sides.values()):
            continue
        quantities = [key for key in sides["winnow"][0]["curve"][-1] if key != "update"]
        for quantity in ["score", *quantities]:
            ours, theirs = (np.array([_last(run, quantity) for run in sides[side]]) for side in SIDES)
            low, high = difference(ours, theirs)
            lines.append(
                {
                    "algorithm": algorithm,
                    "dataset": name,
                    "quantity": quantity,
                    "winnow": float(ours.mean()),
                    "d3rlpy": float(theirs.mean()),
                    "seeds": [len(ours), len(theirs)],
                    "low": low,
                    "high": high,
                }
            )
    return lines


def _last(run: dict[str, Any], quantity: str) -> float:
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
    runs = parts.add_parser("run")
    runs.add_argument("--out", type=Path, required=True)
    runs.add_argument("--updates", type=int, default=12_000, help="of each run; a third of them with CQL")
    runs.add_argument("--seeds", type=int, default=5)
    runs.add_argument("--algorithms", nargs="+", default=ALGORITHMS, choices=ALGORITHMS)
    runs.add_argument("--sets", nargs="+", default=SETS)
    runs.add_argument("--sides", nargs="+", default=SIDES, choices=SIDES)
    runs.add_argument("--device", help="where d3rlpy trains, say cuda:0; without it on the CPU")
    runs.add_argument("--shard", default="1/1", help="every so manieth run, for several processes side by side")
    shown = parts.add_parser("table")
    shown.add_argument("folder", type=Path)
    words = parser.parse_args()
    if words.part == "run":
        run_all(words)
        return
    for line in table(words.folder):
        mark = "" if line["low"] <= 0 <= line["high"] else "  differs"
        print(
            f"{line['algorithm']:6} {line['dataset']:36} {line['quantity']:14} {line['winnow']:10.3f} "
            f"{line['d3rlpy']:10.3f}  [{line['low']:.3f}, {line['high']:.3f}]{mark}"
        )


if __name__ == "__main__":
    main()
