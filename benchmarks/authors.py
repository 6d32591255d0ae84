"""Runs the authors' own code, one implementation at a time, on batches from a file, for `exact.py compare`.

    python benchmarks/authors.py NAME --code FOLDER --batches batches.npz --out NAME.npz

    iql, dw-iql      FOLDER/IQL of Improbable-AI/dw-offline-rl (ikostrikov's IQL, with weights added)
    cql, dw-cql      FOLDER/CQL of the same, which is JaxCQL
    td3bc            sfujim/TD3_BC
    dw-td3bc         FOLDER/TD3BC of Improbable-AI/dw-offline-rl, with its d3rlpy built in place
    rebrac           tinkoff-ai/ReBRAC
    fql              seohongpark/fql

It needs old versions of the libraries, and not winnow: jax 0.4.20 with flax 0.7.4, optax 0.1.9, distrax 0.1.5 and
tensorflow-probability 0.23 ran IQL and CQL, jax 0.4.35 with flax 0.10.2, optax 0.2.4 and ml_collections ReBRAC and FQL,
PyTorch 2.13 with numpy 1.26 the others. The code is unchanged, except that parameters are cast to 64 bits and random
numbers are read from the file, so that both sides use the same.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ["JAX_ENABLE_X64"] = "1"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

LOOKS = (0, 1, 10, 100)
"""Numbers of updates after which parameters are compared; 0: before the first."""
MAX_STEPS = 1_000
"""The length of the run, which schedules need."""

Params = dict[str, np.ndarray]
Step = Callable[[int], dict[str, float]]


def layers(name: str, *networks: list[Any]) -> Params:
    """Layers [(weights, biases), …] under winnow's names, several networks of one shape stacked."""
    params = {}
    for depth in range(len(networks[0])):
        for number, kind in enumerate(("w", "b")):
            parts = [np.array(network[depth][number], np.float64) for network in networks]  # a copy: it goes on
            params[f"{name}/{depth}/{kind}"] = np.stack(parts) if len(parts) > 1 else parts[0]
    return params


def flax_layers(tree: Mapping[str, Any], count: int = 3) -> list[Any]:
    return [(tree[f"Dense_{depth}"]["kernel"], tree[f"Dense_{depth}"]["bias"]) for depth in range(count)]


def torch_layers(*linears: Any) -> list[Any]:
    return [(linear.weight.detach().numpy().T, linear.bias.detach().numpy()) for linear in linears]


# ------------------------------------------------------------------------------------------------------- JAX


def in_double(tree: Any) -> Any:
    import jax

    return jax.tree_util.tree_map(lambda leaf: np.asarray(leaf, np.float64), tree)


def iql(batches: Mapping[str, np.ndarray], weighted: bool) -> tuple[Step, Callable[[], Params]]:
    import collections

    import flax  # pyright: ignore[reportMissingImports]
    import learner  # pyright: ignore[reportMissingImports]

    flax.config.update("flax_return_frozendict", True)  # as flax was when the code was written
    settings = {"expectile": 0.7, "temperature": 3.0, "max_steps": MAX_STEPS, "exp_a_clip": 100}
    kind: Any = learner.Learner
    if weighted:
        kind = learner.DensityRatioWeightedLearner
        settings |= {"flow_coeff": 1.0, "flow_discount": 1.0, "weight_temp": 1.0, "discriminator_lr": 1e-4}
        settings |= {"clip_ratio": 0.2, "kl_penalty_coeff": 1.0}
    made = kind(0, batches["obs"][0, :1], batches["action"][0, :1], **settings)
    for name in ("actor", "critic", "value", "target_critic", *(["discriminator"] if weighted else [])):
        model = getattr(made, name)
        params = in_double(model.params)
        fresh = model.tx.init(params) if model.tx else None
        setattr(made, name, model.replace(params=params, opt_state=fresh))
    names = ("observations", "actions", "rewards", "masks", "next_observations", "normalized_rewards")
    batch_of = collections.namedtuple("Batch", names)
    columns = ("obs", "action", "reward_iql", "goes_on", "next_obs", "weighter_std")

    def step(number: int) -> dict[str, float]:
        info = made.update(batch_of(*(batches[column][number] for column in columns)))
        out = {"loss/value": info["value_loss"], "loss/critic": info["critic_loss"]}
        out["loss/actor"] = info["actor_loss"]
        if weighted:
            out["weighter/loss"] = info["discriminator_loss"]
        return {name: float(value) for name, value in out.items()}

    def params() -> Params:
        critic = made.critic.params
        actor = made.actor.params
        mean = [*flax_layers(actor["MLP_0"], 2), (actor["Dense_0"]["kernel"], actor["Dense_0"]["bias"])]
        out = layers("critic", *(flax_layers(critic[f"Critic_{i}"]["MLP_0"]) for i in range(2)))
        out |= layers("value", flax_layers(made.value.params["MLP_0"])) | layers("actor/mean", mean)
        out["actor/log_std"] = np.asarray(actor["log_stds"], np.float64)
        if weighted:
            ratio = made.discriminator.params
            out |= layers("psi", flax_layers(ratio["MLP_0"])) | layers("phi", flax_layers(ratio["MLP_1"]))
        return out

    return step, params


def cql(batches: Mapping[str, np.ndarray], weighted: bool) -> tuple[Step, Callable[[], Params]]:
    import jax
    from JaxCQL import conservative_sac, jax_utils, model  # pyright: ignore[reportMissingImports]

    jax_utils.init_rng(0)
    sizes = batches["obs"].shape[-1], batches["action"].shape[-1]
    policy = model.TanhGaussianPolicy(*sizes, "256-256", False, 1.0, -1.0)
    critic = model.FullyConnectedQFunction(*sizes, "256-256", False)
    config = {"cql_min_q_weight": 10.0, "target_entropy": -float(sizes[1])}
    if weighted:
        ratio = model.FullyConnectedFlowConserveDiscriminator(*sizes, "256-256", False)
        made = conservative_sac.DensityRatioWeightedConservativeSAC(
            config, policy, critic, ratio, 0.2, 0.1, 1.0, 1.0, 0.2, 1e-4
        )
    else:
        made = conservative_sac.ConservativeSAC(config, policy, critic)
    for name, state in made._train_states.items():
        params = in_double(state.params)
        made._train_states[name] = state.replace(params=params, opt_state=state.tx.init(params))
    made._target_qf_params = in_double(made._target_qf_params)
    # In the order in which the loss asks for them: π(s), a' ~ π(s'), then of the penalty uniform, π(s), π(s').
    normal = itertools.cycle([batches[name] for name in ("noise_pi", "noise_next", "noise_here", "noise_there")])
    usual = jax.random.uniform

    def uniform(key: Any, shape: Any = (), *args: Any, **kwargs: Any) -> Any:
        """Initialisers of flax call this for shapes too; only calls for the batch's shape get the file's numbers."""
        wanted = batches["uniform"]
        return wanted.reshape(shape) if np.prod(shape) == wanted.size else usual(key, shape, *args, **kwargs)

    jax.random.normal = lambda key, shape=(), dtype=None: next(normal).reshape(shape)
    jax.random.uniform = uniform
    columns = {
        "observations": "obs",
        "actions": "action_clipped",
        "rewards": "reward",
        "next_observations": "next_obs",
        "dones": "terminal",
        "normalized_rewards": "weighter_minmax",
    }

    def step(number: int) -> dict[str, float]:
        info = made.train({name: batches[column][number] for name, column in columns.items()})
        out = {"loss/actor": info["policy_loss"]}
        out["critic"] = info["qf1_loss"] + info["qf2_loss"]
        if weighted:
            out["weighter/loss"] = info["discriminator_loss"]
        return {name: float(value) for name, value in out.items()}

    def params() -> Params:
        trees = {name: state.params for name, state in made._train_states.items()}
        network = "FullyConnectedNetwork_0"
        out = layers("critic", *(flax_layers(trees[name]["params"][network]) for name in ("qf1", "qf2")))
        actor = trees["policy"]["params"]
        out |= layers("actor", flax_layers(actor["base_network"]))
        line = [actor[f"log_std_{name}_module"]["value"] for name in ("multiplier", "offset")]
        out["log_std_line"] = np.asarray(line, np.float64)
        out["log_alpha"] = np.asarray(trees["log_alpha"]["params"]["value"], np.float64)
        if weighted:
            ratio = trees["discriminator"]["params"]
            out |= layers("psi", flax_layers(ratio[network]))
            out |= layers("phi", flax_layers(ratio["FullyConnectedNetwork_1"]))
        return out

    return step, params


def normed_layers(name: str, networks: Mapping[str, Any]) -> Params:
    """A flax network of dense layers, perhaps normalised, under winnow's names; twins are stacked in both."""
    params = {}
    for depth in range(sum(key.startswith("Dense_") for key in networks)):
        params[f"{name}/{depth}/w"] = networks[f"Dense_{depth}"]["kernel"]
        params[f"{name}/{depth}/b"] = networks[f"Dense_{depth}"]["bias"]
        if norm := networks.get(f"LayerNorm_{depth}"):
            params[f"{name}/{depth}/scale"] = norm["scale"]
            params[f"{name}/{depth}/offset"] = norm["bias"]
    return {key: np.array(value, np.float64) for key, value in params.items()}


def leave_out(*names: str) -> None:
    """Stand-ins for modules that the authors' updates import and never call."""
    import types

    for name in names:
        module = types.ModuleType(name)
        module.__dict__["__getattr__"] = lambda attribute: type(attribute, (), {})
        module.__dict__["wrap"] = lambda *_: lambda function: function  # a decorator of pyrallis
        module.__dict__["__path__"] = []
        sys.modules[name] = module


def rebrac(batches: Mapping[str, np.ndarray], weighted: bool) -> tuple[Step, Callable[[], Params]]:
    import jax
    import optax

    leave_out("wandb", "pyrallis", "distrax", "tqdm", "tqdm.auto", "src.utils.buffer", "src.utils.common")
    from src.algorithms import rebrac as code  # pyright: ignore[reportMissingImports]
    from src.networks import DetActor, EnsembleCritic  # pyright: ignore[reportMissingImports]

    obs, action = batches["obs"][0, :1], batches["action"][0, :1]
    modules = DetActor(action.shape[-1], layernorm=False), EnsembleCritic(num_critics=2, layernorm=True)
    begin = [
        in_double(module.init(jax.random.PRNGKey(number), *inputs))
        for number, (module, inputs) in enumerate(zip(modules, ((obs,), (obs, action)), strict=True))
    ]
    kinds = code.ActorTrainState, code.CriticTrainState
    states = [
        kind.create(apply_fn=module.apply, params=params, target_params=params, tx=optax.adam(1e-3))
        for kind, module, params in zip(kinds, modules, begin, strict=True)
    ]
    jax.random.normal = lambda *_, **__: batches["noise_td3"]
    columns = {
        "states": "obs",
        "actions": "action",
        "rewards": "reward",
        "next_states": "next_obs",
        "next_actions": "next_action",
        "dones": "terminal",
    }

    class Losses(dict[str, Any]):
        """What stands in for the authors' running means: the last values."""

        def update(self, values: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return Losses(self | values)

    penalties = {"actor_bc_coef": 0.01, "critic_bc_coef": 0.01}
    settings = {"gamma": 0.99, "tau": 0.005, "policy_noise": 0.2, "noise_clip": 0.5} | penalties

    def step(number: int) -> dict[str, float]:
        batch = {name: batches[column][number] for name, column in columns.items()}
        update = code.update_td3_no_targets if number % 2 else code.update_td3
        more = {} if number % 2 else {"normalize_q": True}
        actor, critic = states
        _, *states[:], info = update(jax.random.PRNGKey(0), actor, critic, batch, metrics=Losses(), **settings, **more)
        return {"loss/critic": float(info["critic_loss"])}

    def params() -> Params:
        actor, critic = (state.params["params"] for state in states)
        (twins,) = critic.values()
        return normed_layers("actor", actor_tree(actor)) | normed_layers("critic", actor_tree(twins))

    def actor_tree(tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """Layers of a `Sequential` are numbered by their place in it: `layers_0`, `layers_2`, …"""
        order = sorted(tree, key=lambda name: int(name.rpartition("_")[2]))
        if not order[0].startswith("layers_"):
            return tree
        dense = [tree[name] for name in order if "kernel" in tree[name]]
        norms = [tree[name] for name in order if "scale" in tree[name]]
        named = {f"Dense_{depth}": layer for depth, layer in enumerate(dense)}
        return named | {f"LayerNorm_{depth}": layer for depth, layer in enumerate(norms)}

    return step, params


def fql(batches: Mapping[str, np.ndarray], weighted: bool) -> tuple[Step, Callable[[], Params]]:
    import jax

    leave_out("distrax", "wandb")
    from agents.fql import FQLAgent, get_config  # pyright: ignore[reportMissingImports]

    config = get_config()
    made = FQLAgent.create(0, batches["obs"][0, :1], batches["action"][0, :1], config)
    network = made.network
    start = in_double(network.params)
    made = made.replace(network=network.replace(params=start, opt_state=network.tx.init(start)))
    of_loss = itertools.cycle([batches["fql_start"], batches["fql_noise"]])

    def normal(*_: Any, **__: Any) -> Any:
        """By who asks: actions of the next state, or the two draws of the policy's loss. A program may be traced again,
        so the number of calls says nothing."""
        return batches["fql_next"] if sys._getframe(1).f_code.co_name == "sample_actions" else next(of_loss)

    jax.random.normal = normal
    time, usual = batches["fql_time"], jax.random.uniform

    def uniform(key: Any, shape: Any = (), *args: Any, **kwargs: Any) -> Any:
        """Flax asks its initialisers for shapes in every call; these may draw as they like."""
        return time if shape == time.shape else usual(key, shape, *args, **kwargs)

    jax.random.uniform = uniform
    columns = {
        "observations": "obs",
        "actions": "action",
        "rewards": "reward",
        "next_observations": "next_obs",
        "masks": "goes_on",
    }

    def step(number: int) -> dict[str, float]:
        nonlocal made
        made, info = made.update({name: batches[column][number] for name, column in columns.items()})
        names = {"critic": "critic/critic_loss", "flow": "actor/bc_flow_loss", "distillation": "actor/distill_loss"}
        return {f"loss/{name}": float(info[theirs]) for name, theirs in names.items()}

    def params() -> Params:
        trees = made.network.params
        out = normed_layers("critic", trees["modules_critic"]["value_net"])
        out |= normed_layers("flow", trees["modules_actor_bc_flow"]["mlp"])
        return out | normed_layers("policy", trees["modules_actor_onestep_flow"]["mlp"])

    return step, params


# --------------------------------------------------------------------------------------------------- PyTorch


def td3bc(batches: Mapping[str, np.ndarray], weighted: bool) -> tuple[Step, Callable[[], Params]]:
    import torch

    torch.set_default_dtype(torch.float64)
    noise = torch.as_tensor(batches["noise_td3"])
    torch.randn_like = lambda like, **_: noise.clone()
    torch.randn = lambda *_, **__: noise.clone()
    return (_dw_td3bc if weighted else _td3bc)(batches)


def _td3bc(batches: Mapping[str, np.ndarray]) -> tuple[Step, Callable[[], Params]]:
    import TD3_BC  # pyright: ignore[reportMissingImports]
    import torch

    sizes = batches["obs"].shape[-1], batches["action"].shape[-1]
    made = TD3_BC.TD3_BC(*sizes, 1.0)
    made.total_it = 1  # so that the first update moves the policy, as in d3rlpy, which made the paper's numbers

    class Buffer:
        number = 0

        def sample(self, _: int) -> Any:
            columns = [batches[name][self.number] for name in ("obs_standard", "action", "next_obs_standard")]
            columns += [batches[name][self.number][:, None] for name in ("reward", "goes_on")]
            return [torch.as_tensor(column) for column in columns]

    def step(number: int) -> dict[str, float]:
        Buffer.number = number
        made.train(Buffer(), 256)
        return {}

    def params() -> Params:
        critic = made.critic
        actor = made.actor
        both = [torch_layers(*(getattr(critic, f"l{i}") for i in group)) for group in ((1, 2, 3), (4, 5, 6))]
        return layers("critic", *both) | layers("actor", torch_layers(actor.l1, actor.l2, actor.l3))

    return step, params


def _dw_td3bc(batches: Mapping[str, np.ndarray]) -> tuple[Step, Callable[[], Params]]:
    import torch
    from d3rlpy import dataset, torch_utility  # pyright: ignore
    from d3rlpy.preprocessing import MinMaxRewardScaler  # pyright: ignore
    from d3rlpy_algos.algos.dw_td3bc import DWTD3PlusBC  # pyright: ignore[reportMissingImports]

    torch_utility._convert_to_torch = lambda array, device: torch.tensor(array, dtype=torch.float64)  # pyright: ignore
    transition: Any = dataset.Transition
    mini_batch: Any = dataset.TransitionMiniBatch  # pyright: ignore
    low, high = batches["reward_range"]
    made = DWTD3PlusBC(
        scaler=None,
        discriminator_reward_scaler=MinMaxRewardScaler(minimum=low, maximum=high),
        discriminator_kl_penalty_coef=0.2,
        discriminator_clip_ratio=0.2,
        discriminator_lr=1e-4,
        discriminator_flow_coef=0.1,
    )
    sizes = (batches["obs"].shape[-1],), batches["action"].shape[-1]
    made.create_impl(*sizes)
    impl: Any = made.impl
    for name in ("_q_func", "_policy", "_targ_q_func", "_targ_policy", "_discriminator"):
        getattr(impl, name).double()
    for build in (impl._build_critic_optim, impl._build_actor_optim, impl._build_discriminator_optim):
        build()

    def step(number: int) -> dict[str, float]:
        names = ("obs_standard", "action", "reward", "next_obs_standard", "terminal")
        rows = zip(*(batches[name][number].astype(np.float32) for name in names), strict=True)
        batch = [transition(*sizes, o, a, float(r), n, float(t)) for o, a, r, n, t in rows]
        info = made.update(mini_batch(batch))
        out = {"loss/critic": info["critic_loss"], "weighter/loss": info["discriminator_loss"]}
        return {name: float(value) for name, value in out.items()}

    def encoded(network: Any, last: Any) -> list[Any]:
        return torch_layers(*network._fcs, last)

    def params() -> Params:
        critics = [encoded(q._encoder, q._fc) for q in impl._q_func._q_funcs]
        ratio = impl._discriminator
        out = layers("critic", *critics) | layers("actor", encoded(impl._policy._encoder, impl._policy._fc))
        out |= layers("psi", encoded(ratio._state_action_encoder, ratio._state_action_fc))
        return out | layers("phi", encoded(ratio._state_encoder, ratio._state_fc))

    return step, params


PEERS: dict[str, tuple[Callable[..., Any], str]] = {
    "iql": (iql, "IQL"),
    "cql": (cql, "CQL"),
    "td3bc": (td3bc, ""),
    "rebrac": (rebrac, ""),
    "fql": (fql, ""),
}


def paths(name: str, code: Path) -> Iterator[Path]:
    """The folders that an implementation is imported from."""
    family = name.removeprefix("dw-")
    if name == "dw-td3bc":
        yield from (code / "TD3BC", code / "TD3BC" / "d3rlpy")
    else:
        yield code / PEERS[family][1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[prefix + name for name in PEERS for prefix in ("", "dw-")])
    parser.add_argument("--code", type=Path, required=True, help="the folder of the authors' repository")
    parser.add_argument("--batches", type=Path, required=True, help="what `exact.py batches` wrote")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    sys.path[:0] = [str(path) for path in paths(args.name, args.code)]
    with np.load(args.batches) as file:
        batches = dict(file)
    make = PEERS[args.name.removeprefix("dw-")][0]
    step, params = make(batches, args.name.startswith("dw-"))
    arrays: dict[str, Any] = {f"0/{name}": value for name, value in params().items()}
    losses: dict[str, list[float]] = {}
    for number in range(max(LOOKS)):
        for name, value in step(number).items():
            losses.setdefault(name, []).append(value)
        if number + 1 in LOOKS:
            arrays |= {f"{number + 1}/{name}": value for name, value in params().items()}
    np.savez(
        args.out, allow_pickle=False, **arrays, **{f"losses/{name}": np.array(each) for name, each in losses.items()}
    )
    print(args.name, "done:", args.out)


if __name__ == "__main__":
    main()
