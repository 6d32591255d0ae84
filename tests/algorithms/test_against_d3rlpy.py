"""BC, TD3+BC, IQL and CQL beside d3rlpy 2.8.0, which was written by others: the same rows, the same parameters to begin
with, the same random numbers, 64 bits. In each of 100 updates losses and gradients agree to 1e-5, and after each of
them parameters and targets do.

BC and TD3+BC run as d3rlpy runs them. Elsewhere it does otherwise than the authors, whom winnow follows, and the test
goes between them:

- BC: d3rlpy's policy has no density. Its squared error is the Gaussian's log-likelihood where log-std stays put, but
  for a factor and an offset. The Gaussian itself is compared with d3rlpy's of IQL, with β = 0.
- IQL: d3rlpy moves Q and V together, from the old V. Its losses are taken here in the authors' order: V, then Q and π
  from the new V. Its log-std is −5 + 7 sigmoid(x), and a parameter kept in [−5, 2] here: x is set before each update,
  and the gradient divided by d log-std / dx.
- CQL: d3rlpy moves temperature, critic and policy one after another. Here all are taken at the same parameters. It
  backs up the mean action; its backup of the best of several drawn actions, with one of them, is the authors'. It
  learns the temperature by its value and not by its logarithm: its gradient is α times ours. It has no line that its
  log-std goes through: the line is multiplied into the last layer. It can learn the penalty's factor: not here. It
  clips no actions: none is beyond ±0.999 here. Both keep log-std in [−20, 2].

PyTorch's Adam moves d3rlpy's side where the test goes between.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import perturbed, quick_compiles

from winnow.algorithms import BC, CQL, IQL, TD3BC
from winnow.nets import Adam
from winnow.types import Batch, Spec, Weights

torch: Any = pytest.importorskip("torch")
d3rlpy: Any = pytest.importorskip("d3rlpy")
structlog: Any = pytest.importorskip("structlog")

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
KEY = jax.random.key(11)
UPDATES, ROWS, OBS, ACTION = 100, 64, 5, 3
HIDDEN = (32, 32)
RATE = 3e-4
NEAR, TINY = 1e-6, 1e-12
BEYOND = 3.0
"""A log-std that counts as 2 and therefore stays."""


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with quick_compiles():
        yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


class Update(NamedTuple):
    """What an update reports, by winnow's names and in winnow's layout of parameters."""

    losses: dict[str, Any]
    gradients: dict[str, Any]


# ---------------------------------------------------------------------------------------------------- rows


@cache
def columns() -> dict[str, np.ndarray]:
    """Rows of all updates. A tenth are terminals."""
    rng = np.random.default_rng(0)
    return {
        "obs": rng.normal(0, 3, (UPDATES, ROWS, OBS)),
        "action": rng.uniform(-0.99, 0.99, (UPDATES, ROWS, ACTION)),
        "reward": rng.normal(size=(UPDATES, ROWS)),
        "next_obs": rng.normal(0, 3, (UPDATES, ROWS, OBS)),
        "terminal": (rng.random((UPDATES, ROWS)) < 0.1).astype(np.float64),
    }


def winnow_rows(number: int) -> Batch:
    rows = {name: jnp.asarray(column[number]) for name, column in columns().items()}
    return Batch(
        **rows,
        unit_reward=jnp.zeros(ROWS),
        start_obs=jnp.zeros((ROWS, OBS)),
        row=jnp.zeros(ROWS, int),
        step=jnp.asarray(number),
        progress=jnp.asarray(number / UPDATES),
    )


def d3rlpy_rows(number: int) -> Any:
    rows = {name: torch.tensor(column[number]) for name, column in columns().items()}
    zeros = torch.zeros(ROWS, 1, dtype=torch.float64)
    return d3rlpy.torch_utility.TorchMiniBatch(
        observations=rows["obs"],
        actions=rows["action"],
        rewards=rows["reward"][:, None],
        next_observations=rows["next_obs"],
        next_actions=torch.zeros_like(rows["action"]),
        returns_to_go=zeros,
        terminals=rows["terminal"][:, None],
        intervals=zeros + 1,
        device="cpu:0",
    )


# ---------------------------------------------------------------------------------------------------- winnow


@jax.jit
def begin(algorithm: Any) -> Any:
    """A state in which no bias is 0 and no target equals what it follows."""
    state = algorithm.init(KEY, Spec(OBS, ACTION, 1_000))
    names = {"params", "target", "target_critic"} & set(state._fields)
    return state._replace(**{name: perturbed(getattr(state, name), seed) for seed, name in enumerate(sorted(names))})


@jax.jit
def advance(algorithm: Any, state: Any, batch: Batch, key: Any) -> tuple[Any, Update]:
    weights = Weights(*(jnp.full(ROWS, 1 / ROWS),) * 2)
    after, metrics = algorithm.update(state, batch, weights, key)
    # An update moves Adam's mean of gradients a tenth of the way to the gradient.
    slopes = jax.tree.map(lambda old, new: (new - 0.9 * old) / 0.1, moments(state), moments(after))
    return after, Update(metrics, slopes)


def moments(state: Any) -> dict[str, Any]:
    """Adam's means of the gradients of all parameters."""
    parts: Any = [state.optimiser] if isinstance(state.optimiser, Adam) else state.optimiser.values()
    return {name: group for part in parts for name, group in part.moments.mu.items()}


def targets(state: Any) -> dict[str, Any]:
    return {"critic": state.target_critic} if hasattr(state, "target_critic") else getattr(state, "target", {})


# ---------------------------------------------------------------------------------------- d3rlpy's parameters


def value(parameter: Any) -> np.ndarray:
    return parameter.detach().numpy().copy()


def slope(parameter: Any) -> np.ndarray:
    return parameter.grad.numpy().copy()


Read = Callable[[Any], np.ndarray]


def linears(network: Any, head: str) -> list[Any]:
    return [*(part for part in network._encoder.modules() if isinstance(part, torch.nn.Linear)), getattr(network, head)]


def read_layers(network: Any, read: Read, head: str = "_fc") -> list[dict[str, np.ndarray]]:
    return [{"w": read(linear.weight).T, "b": read(linear.bias)} for linear in linears(network, head)]


def put_layers(network: Any, layers: Any, head: str = "_fc") -> None:
    for linear, layer in zip(linears(network, head), layers, strict=True):
        linear.weight.data.copy_(layer["w"].T)
        linear.bias.data.copy_(layer["b"])


def read_twins(networks: Any, read: Read) -> Any:
    return jax.tree.map(lambda *pair: np.stack(pair), *(read_layers(network, read) for network in networks))


def put_twins(networks: Any, params: Any) -> None:
    for number, network in enumerate(networks):
        put_layers(network, jax.tree.map(lambda pair, number=number: pair[number], params))


def implementation(kind: str, **settings: Any) -> Any:
    """d3rlpy's implementation of an algorithm, with small networks in 64 bits. What isn't said is as d3rlpy has it."""
    config = getattr(d3rlpy.algos, f"{kind}Config")
    known = [field.name for field in dataclasses.fields(config) if field.name.endswith("encoder_factory")]
    encoder = d3rlpy.models.VectorEncoderFactory([*HIDDEN])
    learner = config(**dict.fromkeys(known, encoder), **settings).create(device=False)
    learner.create_impl((OBS,), ACTION)
    for module in learner.impl.modules.get_torch_modules().values():
        module.double()
    return learner.impl


@contextmanager
def drawn(*normal: np.ndarray, uniform: np.ndarray | None = None) -> Iterator[None]:
    """PyTorch draws these numbers and no others, in this order."""
    left = list(normal)

    def next_normal(shape: Any, **_: Any) -> Any:
        numbers = left.pop(0)
        assert tuple(shape) == numbers.shape
        return torch.tensor(numbers)

    def next_uniform(like: Any, low: float, high: float) -> Any:
        assert uniform is not None
        assert (low, high, like.shape) == (-1, 1, uniform.shape)
        return torch.tensor(uniform)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn", next_normal)
        patch.setattr(torch.distributions.normal, "_standard_normal", lambda shape, dtype, device: next_normal(shape))
        patch.setattr(torch.Tensor, "uniform_", next_uniform)
        yield
    assert not left


# ------------------------------------------------------------------------------- d3rlpy as d3rlpy runs it


class MeanBC:
    """The log-likelihood of a Gaussian whose log-std stays 2, from d3rlpy's squared error."""

    factor = ACTION / 2 * np.exp(-4)
    offset = ACTION * (2 + np.log(2 * np.pi) / 2)

    def __init__(self, params: Any, target: Any) -> None:
        adam = d3rlpy.optimizers.AdamFactory(eps=1e-8 / self.factor)  # added to gradients that lack the factor
        self.impl = implementation("BC", learning_rate=RATE, optim_factory=adam)
        self.policy = self.impl.modules.imitator
        put_layers(self.policy, params["actor"]["mean"])

    def update(self, number: int, key: Any) -> Update:
        metrics = self.impl.inner_update(d3rlpy_rows(number), number)
        mean = jax.tree.map(lambda each: self.factor * each, read_layers(self.policy, slope))
        losses = {"loss/actor": self.factor * metrics["loss"] + self.offset}
        return Update(losses, {"actor": {"mean": mean, "log_std": np.zeros(ACTION)}})

    def state(self) -> Any:
        actor = {"mean": read_layers(self.policy, value), "log_std": np.full(ACTION, BEYOND)}
        return {"actor": actor}, {}


class WholeTD3BC:
    def __init__(self, params: Any, target: Any) -> None:
        self.impl = implementation("TD3PlusBC")
        self.modules = self.impl.modules
        put_twins(self.modules.q_funcs, params["critic"])
        put_twins(self.modules.targ_q_funcs, target["critic"])
        put_layers(self.modules.policy, params["actor"])
        put_layers(self.modules.targ_policy, target["actor"])
        self.slopes: dict[str, Any] = {}
        self.modules.critic_optim.optim.register_step_pre_hook(self._note_critic)
        self.modules.actor_optim.optim.register_step_pre_hook(self._note_actor)

    def _note_critic(self, *_: Any) -> None:
        self.slopes["critic"] = read_twins(self.modules.q_funcs, slope)

    def _note_actor(self, *_: Any) -> None:
        self.slopes["actor"] = read_layers(self.modules.policy, slope)

    def update(self, number: int, key: Any) -> Update:
        """Without the actor in an update that leaves it alone."""
        self.slopes = {}
        with drawn(np.asarray(jax.random.normal(key, (ROWS, ACTION)))):
            metrics = self.impl.inner_update(d3rlpy_rows(number), number)
        losses = {f"loss/{name}": metrics[f"{name}_loss"] for name in self.slopes}
        return Update(losses, self.slopes)

    def state(self) -> Any:
        modules = self.modules
        params = {"critic": read_twins(modules.q_funcs, value), "actor": read_layers(modules.policy, value)}
        target = {"critic": read_twins(modules.targ_q_funcs, value), "actor": read_layers(modules.targ_policy, value)}
        return params, target


# ----------------------------------------------------------------------------- d3rlpy's losses, in our order


class Driven:
    """Parameters in winnow's layout. They are written into d3rlpy's networks, where d3rlpy's losses have gradients, and
    PyTorch's Adam moves them along these."""

    def __init__(self, impl: Any, params: Any, target: Any) -> None:
        self.impl, self.modules, self.params = impl, impl.modules, params
        self.adam = {name: torch.optim.Adam(jax.tree.leaves(group), RATE) for name, group in params.items()}
        self.has_target = bool(target)
        if target:
            put_twins(self.modules.targ_q_funcs, target["critic"])
        self.write()

    def write(self) -> None:
        raise NotImplementedError

    def step(self, slopes: dict[str, Any], cosine: float = 1.0) -> None:
        """Moves the groups of parameters whose gradients are given."""
        for name, group in slopes.items():
            for leaf, grad in zip(jax.tree.leaves(self.params[name]), jax.tree.leaves(group), strict=True):
                leaf.grad = torch.tensor(grad)
            self.adam[name].param_groups[0]["lr"] = RATE * (cosine if name == "actor" else 1.0)
            self.adam[name].step()
        self.write()

    def state(self) -> Any:
        target = {"critic": read_twins(self.modules.targ_q_funcs, value)} if self.has_target else {}
        return jax.tree.map(value, self.params), target


class Gaussian(Driven):
    """With the policy of d3rlpy's IQL."""

    def write(self) -> None:
        policy, actor = self.modules.policy, self.params["actor"]
        put_layers(policy, actor["mean"], "_mu")
        policy._logstd.data[0] = torch.logit((actor["log_std"] + 5) / 7)

    def policy_update(self, rows: Any) -> Update:
        policy = self.modules.policy
        policy.zero_grad()
        loss = self.impl.compute_actor_loss(rows, policy(rows.observations)).actor_loss
        loss.backward()
        share = (value(self.params["actor"]["log_std"]) + 5) / 7
        log_std = slope(policy._logstd)[0] / (7 * share * (1 - share))
        slopes = {"mean": read_layers(policy, slope, "_mu"), "log_std": log_std}
        return Update({"loss/actor": loss.item()}, {"actor": slopes})


class GaussianBC(Gaussian):
    def __init__(self, params: Any, target: Any) -> None:
        super().__init__(implementation("IQL", weight_temp=0.0), params, target)  # β: all rows count alike

    def update(self, number: int, key: Any) -> Update:
        update = self.policy_update(d3rlpy_rows(number))
        self.step(update.gradients)
        return update


class OrderedIQL(Gaussian):
    def __init__(self, params: Any, target: Any, **settings: Any) -> None:
        super().__init__(implementation("IQL", **settings), params, target)

    def write(self) -> None:
        super().write()
        put_layers(self.modules.value_func, self.params["value"])
        put_twins(self.modules.q_funcs, self.params["critic"])

    def update(self, number: int, key: Any) -> Update:
        rows, impl, modules = d3rlpy_rows(number), self.impl, self.modules
        modules.value_func.zero_grad()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "float", torch.Tensor.double)  # τ would have 32 bits
            first = impl.compute_value_loss(rows)
        first.backward()
        slopes = {"value": read_layers(modules.value_func, slope)}
        self.step(slopes)

        modules.q_funcs.zero_grad()
        second = impl.compute_critic_loss(rows, impl.compute_target(rows)).q_loss
        second.backward()
        policy = self.policy_update(rows)
        others = {"critic": read_twins(modules.q_funcs, slope)} | policy.gradients
        self.step(others, 0.5 * (1 + np.cos(np.pi * number / UPDATES)))
        impl.update_critic_target()
        losses = {"loss/value": first.item(), "loss/critic": second.item()} | policy.losses
        return Update(losses, slopes | others)


@partial(jax.jit, static_argnames=("samples", "backups"))
def cql_draws(key: Any, samples: int, backups: int) -> list[Any]:
    """Normal numbers of π(s), of a' (one or several), of the penalty's π(s) and π(s'), and its uniform actions."""
    k_policy, k_next, k_uniform, k_here, k_there = jax.random.split(key, 5)
    shape = (ROWS, ACTION)
    return [
        jax.random.normal(k_policy, shape),
        jax.random.normal(k_next, (backups, *shape) if backups else shape).reshape(-1, *shape),
        jax.random.normal(k_here, (samples, *shape)),
        jax.random.normal(k_there, (samples, *shape)),
        jax.random.uniform(k_uniform, (samples, *shape), minval=-1.0, maxval=1.0),
    ]


class SimultaneousCQL(Driven):
    def __init__(self, params: Any, target: Any, max_backup: int = 0) -> None:
        settings = {"conservative_weight": 10.0, "alpha_threshold": 0.0, "alpha_learning_rate": 0.0}
        impl = implementation("CQL", max_q_backup=True, **settings)
        impl.modules.temp_optim.step = self._note_temperature
        self.samples, self.max_backup = impl._n_action_samples, max_backup
        super().__init__(impl, params, target)

    def _note_temperature(self) -> None:
        """Instead of a step: the policy's loss is to read the temperature as it was, and adds to the gradient."""
        self.log_alpha_slope = slope(self.modules.log_temp._parameter)[0, 0]

    def write(self) -> None:
        *hidden, last = self.params["actor"]
        factor, offset = self.params["log_std_line"]
        put_layers(self.modules.policy, [*hidden, {name: each[..., :ACTION] for name, each in last.items()}], "_mu")
        w, b = (factor * last[name][..., ACTION:] for name in ("w", "b"))
        put_layers(self.modules.policy, [*hidden, {"w": w, "b": b + offset}], "_logstd")
        self.modules.log_temp._parameter.data[0, 0] = self.params["log_alpha"]
        put_twins(self.modules.q_funcs, self.params["critic"])

    def update(self, number: int, key: Any) -> Update:
        rows, impl, modules = d3rlpy_rows(number), self.impl, self.modules
        noise, noise_next, here, there, flat = map(np.asarray, cql_draws(key, self.samples, self.max_backup))
        with drawn(noise_next):
            impl._n_action_samples = len(noise_next)
            target = impl.compute_target(rows)
            impl._n_action_samples = self.samples
        modules.q_funcs.zero_grad()
        with drawn(here, there, uniform=flat.transpose(1, 0, 2).reshape(-1, ACTION)):
            critic = impl.compute_critic_loss(rows, target)
        critic.critic_loss.backward()
        slopes = {"critic": read_twins(modules.q_funcs, slope)}
        with drawn(noise):
            actor = impl.compute_actor_grad(rows)
        alpha = actor.temp.item()
        slopes |= self._policy_slopes() | {"log_alpha": self.log_alpha_slope / alpha}
        losses = {
            "loss/td": (critic.critic_loss - critic.conservative_loss).item(),
            "loss/penalty": critic.conservative_loss.item() / 10,
            "loss/actor": actor.actor_loss.item(),
            "alpha": alpha,
            "entropy": actor.temp_loss.item() / alpha - ACTION,  # the temperature's loss is α (entropy + |A|)
        }
        self.step(slopes)
        impl.update_critic_target()
        return Update(losses, slopes)

    def _policy_slopes(self) -> dict[str, Any]:
        """d3rlpy's last layer of log-std is factor · ours + offset."""
        factor = self.params["log_std_line"][0].item()
        (*hidden, mean), log_std = (read_layers(self.modules.policy, slope, head) for head in ("_mu", "_logstd"))
        ours = {name: value(each)[..., ACTION:] for name, each in self.params["actor"][-1].items()}
        theirs = log_std[-1]
        last = {name: np.concatenate([mean[name], factor * theirs[name]], axis=-1) for name in ("w", "b")}
        line = np.array([sum((theirs[name] * ours[name]).sum() for name in ("w", "b")), theirs["b"].sum()])
        return {"actor": [*hidden, last], "log_std_line": line}


# ------------------------------------------------------------------------------------------------ comparing


class Case(NamedTuple):
    algorithm: Any
    peer: Callable[[Any, Any], Any]
    log_std: float | None = None


CASES: dict[str, Case] = {
    "bc-mean": Case(BC(hidden=HIDDEN), MeanBC, BEYOND),
    "bc": Case(BC(hidden=HIDDEN), GaussianBC),
    "td3bc": Case(TD3BC(hidden=HIDDEN), WholeTD3BC),
    "iql": Case(IQL(hidden=HIDDEN), OrderedIQL),
    "iql-clipped": Case(
        IQL(hidden=HIDDEN, expectile=0.9, beta=10.0), partial(OrderedIQL, expectile=0.9, weight_temp=10.0)
    ),
    "cql": Case(CQL(hidden=HIDDEN), SimultaneousCQL),
    "cql-max-backup": Case(CQL(hidden=HIDDEN, max_backup=4), partial(SimultaneousCQL, max_backup=4)),
}


def assert_near(mine: Any, theirs: Any, what: str) -> None:
    """Every array of two trees differs by no more than a small part of its size."""
    assert jax.tree.structure(mine) == jax.tree.structure(theirs), what
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(mine), jax.tree.leaves(theirs), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape
        assert a.dtype == b.dtype == np.float64
        apart, size = np.linalg.norm(a - b), np.linalg.norm(b)
        assert apart <= NEAR * size + TINY, f"{what}{jax.tree_util.keystr(path)}: {apart:.2e} of {size:.2e}"


def compare(case: Case, algorithm: Any, updates: int) -> None:
    """This algorithm beside a peer that begins with its parameters: what both report and become in so many updates."""
    state = begin(algorithm)
    if case.log_std is not None:
        state.params["actor"]["log_std"] = jnp.full(ACTION, case.log_std)
    params, target = jax.tree.map(lambda leaf: torch.tensor(np.asarray(leaf)), (state.params, targets(state)))
    peer = case.peer(params, target)
    seen, due = set(), set(state.params)
    for number in range(updates):
        key = jax.random.fold_in(KEY, number)
        state, ours = advance(algorithm, state, winnow_rows(number), key)
        theirs = peer.update(number, key)
        for kind, mine, its in zip(Update._fields, ours, theirs, strict=True):
            assert_near({name: mine[name] for name in its}, its, f"{kind} of update {number + 1}")
        params, target = peer.state()
        assert_near(state.params, params, f"parameters after update {number + 1}")
        assert_near(targets(state), target, f"targets after update {number + 1}")
        seen |= {*theirs.losses, *theirs.gradients}
        due |= {name for name in ours.losses if name.startswith("loss/")}
    assert seen >= due


@pytest.mark.parametrize("name", CASES)
def test_losses_gradients_and_parameters_are_d3rlpys(name: str) -> None:
    compare(CASES[name], CASES[name].algorithm, UPDATES)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("bc-mean", {"learning_rate": 3.01e-4}),
        ("bc", {"learning_rate": 3.01e-4}),
        ("td3bc", {"alpha": 2.4}),
        ("td3bc", {"discount": 0.98}),
        ("td3bc", {"target_noise": 0.19}),
        ("td3bc", {"noise_clip": 0.4}),
        ("td3bc", {"target_rate": 0.006}),
        ("td3bc", {"learning_rate": 3.01e-4}),
        ("iql", {"expectile": 0.71}),
        ("iql", {"beta": 3.1}),
        ("iql", {"discount": 0.98}),
        ("iql", {"target_rate": 0.006}),
        ("iql", {"learning_rate": 3.01e-4}),
        ("cql", {"penalty": 9.9}),
        ("cql", {"discount": 0.98}),
        ("cql", {"target_rate": 0.006}),
        ("cql", {"learning_rate": 3.01e-4}),
        ("cql", {"action_limit": 0.9}),
    ],
)
def test_a_wrong_setting_is_noticed(name: str, wrong: dict[str, float]) -> None:
    algorithm = dataclasses.replace(CASES[name].algorithm, **wrong)
    with pytest.raises(AssertionError, match=r"(losses|gradients|parameters|targets) (of|after) update \d"):
        compare(CASES[name], algorithm, 3)
