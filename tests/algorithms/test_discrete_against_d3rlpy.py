"""Discrete BC and CQL beside d3rlpy's, which were written by others: the same rows, the same parameters to begin with,
64 bits. Losses agree in each of 100 updates, and parameters after 1, 10 and 100, to 1e-6 of their size.

d3rlpy's `DiscreteBC` adds the mean square of its logits to the loss (`beta`): not here. Its `DiscreteCQL` copies the
target critic every few thousand updates, and here it follows by a small step in each: the test moves d3rlpy's so. What
is left is the same: double Q-learning, the Huber loss, the penalty, and Adam.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import perturbed, quick_compiles

from winnow.algorithms import DiscreteBC, DiscreteCQL
from winnow.types import Batch, Spec, Weights

torch: Any = pytest.importorskip("torch")
d3rlpy: Any = pytest.importorskip("d3rlpy")
structlog: Any = pytest.importorskip("structlog")

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
UPDATES, ROWS, OBS, CHOICES = 100, 64, 5, 4
HIDDEN = (32, 32)
RATE, TARGET_RATE = 3e-4, 0.005
NEAR = 1e-6


@pytest.fixture(scope="module", autouse=True)
def _double() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with quick_compiles(), jax.enable_x64(True):
        yield
    torch.set_num_threads(threads)


def columns(number: int) -> dict[str, np.ndarray]:
    """The rows of an update. A tenth are terminals."""
    rng = np.random.default_rng([7, number])
    return {
        "obs": rng.normal(0, 3, (ROWS, OBS)),
        "action": rng.integers(CHOICES, size=ROWS),
        "reward": 3 * rng.normal(size=ROWS),
        "next_obs": rng.normal(0, 3, (ROWS, OBS)),
        "terminal": (rng.random(ROWS) < 0.1).astype(np.float64),
    }


def winnow_rows(number: int) -> Batch:
    rows = columns(number)
    rows["action"] = np.eye(CHOICES)[rows["action"]]
    return Batch(
        **{name: jnp.asarray(column) for name, column in rows.items()},
        unit_reward=jnp.zeros(ROWS),
        start_obs=jnp.zeros((ROWS, OBS)),
        row=jnp.zeros(ROWS, int),
        step=jnp.asarray(number),
        progress=jnp.asarray(number / UPDATES),
    )


def d3rlpy_rows(number: int) -> Any:
    rows = {name: torch.tensor(column) for name, column in columns(number).items()}
    zeros = torch.zeros(ROWS, 1, dtype=torch.float64)
    return d3rlpy.torch_utility.TorchMiniBatch(
        observations=rows["obs"],
        actions=rows["action"][:, None],
        rewards=rows["reward"][:, None],
        next_observations=rows["next_obs"],
        next_actions=torch.zeros(ROWS, 1, dtype=torch.int64),
        returns_to_go=zeros,
        terminals=rows["terminal"][:, None],
        intervals=zeros + 1,
        device="cpu:0",
    )


def implementation(kind: str, **settings: Any) -> Any:
    """d3rlpy's implementation of an algorithm, with small networks in 64 bits."""
    config = getattr(d3rlpy.algos, f"{kind}Config")
    encoder = d3rlpy.models.VectorEncoderFactory([*HIDDEN])
    learner = config(encoder_factory=encoder, learning_rate=RATE, **settings).create(device=False)
    learner.create_impl((OBS,), CHOICES)
    for module in learner.impl.modules.get_torch_modules().values():
        module.double()
    return learner.impl


def linears(network: Any) -> list[Any]:
    return [*(part for part in network._encoder.modules() if isinstance(part, torch.nn.Linear)), network._fc]


def put(network: Any, layers: Any) -> None:
    for linear, layer in zip(linears(network), layers, strict=True):
        linear.weight.data.copy_(torch.tensor(np.asarray(layer["w"]).T))
        linear.bias.data.copy_(torch.tensor(np.asarray(layer["b"])))


def layers_of(network: Any) -> list[dict[str, np.ndarray]]:
    return [{"w": each.weight.detach().numpy().T, "b": each.bias.detach().numpy()} for each in linears(network)]


class BCPeer:
    def __init__(self, params: Any, target: Any) -> None:
        self.impl = implementation("DiscreteBC", beta=0.0)
        put(self.impl.modules.imitator, params["actor"])

    def update(self, number: int) -> dict[str, float]:
        return {"loss/actor": self.impl.inner_update(d3rlpy_rows(number), number)["loss"]}

    def state(self) -> dict[str, Any]:
        return {"actor": layers_of(self.impl.modules.imitator)}


class CQLPeer:
    def __init__(self, params: Any, target: Any) -> None:
        self.impl = implementation("DiscreteCQL", target_update_interval=10**9)
        self.network = self.impl.modules.q_funcs[0]
        self.target = self.impl.modules.targ_q_funcs[0]
        put(self.network, params["critic"])
        put(self.target, target)

    def update(self, number: int) -> dict[str, float]:
        losses = self.impl.inner_update(d3rlpy_rows(number), number + 1)
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.network.parameters(), strict=True):
                slow += TARGET_RATE * (fast - slow)
        return {"loss/td": losses["td_loss"], "loss/penalty": losses["conservative_loss"]}

    def state(self) -> dict[str, Any]:
        return {"critic": layers_of(self.network), "target": layers_of(self.target)}


CASES: dict[str, tuple[Any, Any]] = {
    "bc": (DiscreteBC(hidden=HIDDEN), BCPeer),
    "cql": (DiscreteCQL(hidden=HIDDEN), CQLPeer),
}
UPDATE = jax.jit(lambda algorithm, state, batch, weights, key: algorithm.update(state, batch, weights, key))


def assert_near(mine: Any, theirs: Any, what: str) -> None:
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        apart, size = np.linalg.norm(np.asarray(a) - np.asarray(b)), np.linalg.norm(np.asarray(b))
        assert apart <= NEAR * size + 1e-12, f"{what}: {apart:.2e} of {size:.2e}"


def compare(algorithm: Any, peer_of: Any, updates: int = UPDATES) -> None:
    state = algorithm.init(jax.random.key(11), Spec(OBS, CHOICES, 1_000, "discrete"))
    names = {"params", "target_critic"} & set(state._fields)
    state = state._replace(**{name: perturbed(getattr(state, name), seed) for seed, name in enumerate(sorted(names))})
    peer = peer_of(state.params, getattr(state, "target_critic", None))
    weights = Weights(*(jnp.full(ROWS, 1 / ROWS),) * 2)
    for number in range(updates):
        state, metrics = UPDATE(algorithm, state, winnow_rows(number), weights, jax.random.key(number))
        for name, loss in peer.update(number).items():
            assert_near(metrics[name], loss, f"{name} of update {number + 1}")
        if number + 1 in (1, 10, 100):
            mine = state.params | ({"target": state.target_critic} if hasattr(state, "target_critic") else {})
            theirs = peer.state()
            assert mine.keys() == theirs.keys()
            for name, expected in theirs.items():
                assert_near(mine[name], expected, f"{name} after update {number + 1}")


@pytest.mark.parametrize("name", CASES)
def test_losses_and_parameters_are_d3rlpys(name: str) -> None:
    compare(*CASES[name])


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("bc", {"learning_rate": 3.01e-4}),
        ("cql", {"penalty": 1.01}),
        ("cql", {"discount": 0.98}),
        ("cql", {"target_rate": 0.006}),
        ("cql", {"learning_rate": 3.01e-4}),
    ],
)
def test_a_wrong_setting_is_noticed(name: str, wrong: dict[str, float]) -> None:
    algorithm, peer_of = CASES[name]
    with pytest.raises(AssertionError, match=r"(of|after) update"):
        compare(dataclasses.replace(algorithm, **wrong), peer_of, 10)
