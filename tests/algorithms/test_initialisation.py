"""Networks begin as published: the standard deviation of every layer, against the sizes in the authors' code."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from winnow.methods import make_algorithm, make_weighter
from winnow.nets import orthogonal
from winnow.types import Spec

OBS, ACTION, WIDTH = 17, 6, 256
SEEDS = 40


def orthogonal_sizes(inputs: int, outputs: int) -> tuple[float, ...]:
    """The published IQL: flax's orthogonal initialiser with a gain of √2 in every layer; biases 0."""
    shapes = ((inputs, WIDTH), (WIDTH, WIDTH), (WIDTH, outputs))
    return tuple(size for shape in shapes for size in (2**0.5 / max(shape) ** 0.5, 0.0))


def lecun_sizes(inputs: int, outputs: int) -> tuple[float, ...]:
    """The published CQL: flax's default (LeCun normal); the last layer uniform with a variance of 0.01 / inputs."""
    return (inputs**-0.5, 0.0, WIDTH**-0.5, 0.0, 0.1 * WIDTH**-0.5, 0.0)


def torch_sizes(inputs: int, outputs: int) -> tuple[float, ...]:
    """The published TD3+BC: PyTorch's default, uniform in ±1/√inputs, biases too."""
    return tuple(size for n in (inputs, WIDTH, WIDTH) for size in ((3 * n) ** -0.5,) * 2)


def he_sizes(inputs: int, outputs: int, last: float) -> tuple[float, ...]:
    return ((2 / inputs) ** 0.5, 0.0, (2 / WIDTH) ** 0.5, 0.0, last * WIDTH**-0.5, 0.0)


CRITIC, VALUE = (OBS + ACTION, 1), (OBS, 1)
CASES: dict[str, dict[str, Any]] = {
    "iql": {
        "critic": orthogonal_sizes(*CRITIC),
        "value": orthogonal_sizes(*VALUE),
        "mean": orthogonal_sizes(OBS, ACTION),
    },
    "cql": {"critic": lecun_sizes(*CRITIC), "actor": lecun_sizes(OBS, 2 * ACTION)},
    "td3bc": {"critic": torch_sizes(*CRITIC), "actor": torch_sizes(OBS, ACTION)},
    "bc": {"mean": orthogonal_sizes(OBS, ACTION)},
    "dw-aw with iql": {"phi": orthogonal_sizes(*VALUE), "psi": orthogonal_sizes(*CRITIC)},
    "dw-aw with cql": {"phi": lecun_sizes(*VALUE), "psi": lecun_sizes(*CRITIC)},
    "dw-aw with td3bc": {"phi": torch_sizes(*VALUE), "psi": torch_sizes(*CRITIC)},
    "dual": {"nu": he_sizes(*VALUE, last=1e-3)},
    "optidice": {"nu": he_sizes(*VALUE, last=1e-3)},
}


def made(case: str) -> Any:
    if case.startswith("dw-aw"):
        return make_weighter("density", case.rpartition(" ")[2])
    return make_weighter(case) if case in ("dual", "optidice") else make_algorithm(case, "halfcheetah")


@pytest.mark.parametrize("case", CASES)
def test_every_layer_begins_with_the_published_deviation(case: str) -> None:
    """Within 5 %, over many seeds: a layer of one output has few weights."""
    start = jax.jit(jax.vmap(lambda key: made(case).init(key, Spec(OBS, ACTION, 100)).params))
    params = start(jax.random.split(jax.random.key(0), SEEDS))
    params |= params.pop("actor", {}) if case in ("iql", "bc") else {}
    for name, sizes in CASES[case].items():
        deviations = [float(np.std(layer[kind])) for layer in params[name] for kind in ("w", "b")]
        assert deviations == pytest.approx(sizes, rel=0.05), name


def test_the_rest_begins_as_published() -> None:
    """Log-std is 0 with IQL and 1 · output − 1 with CQL, the entropy temperature 1; targets equal what they follow."""
    spec, key = Spec(OBS, ACTION, 100), jax.random.key(1)
    iql, cql, td3bc = (make_algorithm(name, "halfcheetah").init(key, spec) for name in ("iql", "cql", "td3bc"))
    np.testing.assert_array_equal(iql.params["actor"]["log_std"], np.zeros(ACTION))
    np.testing.assert_array_equal(cql.params["log_std_line"], [1.0, -1.0])
    assert cql.params["log_alpha"] == 0
    for state, target, online in ((iql, "target_critic", "critic"), (cql, "target_critic", "critic")):
        jax.tree.map(np.testing.assert_array_equal, getattr(state, target), state.params[online])
    jax.tree.map(np.testing.assert_array_equal, td3bc.target, td3bc.params)


@pytest.mark.parametrize("shape", [(256, 256), (17, 256), (256, 6), (256, 1), (1, 5), (4, 4)])
def test_orthogonal_matrices_are_orthogonal(shape: tuple[int, int]) -> None:
    matrix = np.asarray(orthogonal(jax.random.normal(jax.random.key(2), shape)), np.float64)
    short = matrix if shape[0] <= shape[1] else matrix.T
    np.testing.assert_allclose(short @ short.T, np.eye(min(shape)), atol=5e-6)


def test_orthogonal_matrices_favour_no_direction() -> None:
    """Over all rotations the trace has mean 0, square 1 and fourth power 3 (of at least 4 × 4 numbers)."""
    many = jax.vmap(orthogonal)(jax.random.normal(jax.random.key(3), (40_000, 4, 4)))
    trace = np.trace(np.asarray(many, np.float64), axis1=1, axis2=2)
    assert [np.mean(trace**power) for power in (1, 2, 4)] == pytest.approx([0, 1, 3], abs=0.1)
    np.testing.assert_allclose(np.mean(np.asarray(many) ** 2, axis=0), np.full((4, 4), 0.25), atol=0.01)
