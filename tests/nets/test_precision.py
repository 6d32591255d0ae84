"""The fused kernels, interpreted on a CPU, against plain float32 networks."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import assert_same, quick_compiles, toy_dataset

from winnow.algorithms import ALGORITHMS
from winnow.errors import BadInput
from winnow.nets import (
    COPIES,
    adam_init,
    adam_step,
    kernels,
    kernels_backward,
    mlp,
    mlp_init,
    selftest,
    tiles,
    track,
    twins,
    twins_init,
    with_copies,
    without_copies,
)
from winnow.packs.pack import Pack
from winnow.packs.precision import best_precision, side_by_side
from winnow.packs.run import Run
from winnow.samplers import Uniform
from winnow.weighters import Density, NoWeights

WIDTH, ROWS = 128, 96  # no whole block of rows: the rest is filled up

sizes = pytest.mark.parametrize(
    ("inputs", "outputs", "long"),
    [(11, 1, 1024), (12, 1, 64), (14, 3, 64), (16, 18, 1024), (69, 48, 1024), (119, 1, 1024), (120, 1, 64)],
)
"""With rows from which on a batch is taken for a long one."""


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with quick_compiles():
        yield


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Interpret the kernels, with operands of this type and their usual blocks but for fewer rows.

    Compiled programs don't know by what they were cut: no two tests may run one of the same shapes with two types.
    """

    def use(operand: Any, long: int = 1024) -> None:
        gradient = jnp.float32 if operand == jnp.float32 else jnp.bfloat16
        cut = {"rows": 64, "long_batch": long, "operand": operand, "gradient": gradient, "interpret": True}
        cut = dataclasses.replace(tiles.Blocks(), **cut)
        monkeypatch.setattr(tiles, "BLOCKS", cut)

    return use


def problem(inputs: int, outputs: int, last_scale: float = 1.0, size: float = 1.0) -> tuple[Any, Any, Any]:
    """A network with biases, inputs of about this size, and the cotangent of its output."""
    rng = np.random.default_rng(inputs + outputs)
    widths = (inputs, WIDTH, WIDTH, outputs)
    scales = [(2 / inputs) ** 0.5, (2 / WIDTH) ** 0.5, last_scale / WIDTH**0.5]
    layers = [
        {"w": (scale * rng.normal(size=(i, o))).astype(np.float32), "b": (0.1 * rng.normal(size=o)).astype(np.float32)}
        for scale, i, o in zip(scales, widths, widths[1:], strict=False)
    ]
    x, dy = size * rng.normal(size=(ROWS, inputs)), rng.normal(size=(ROWS, outputs))
    return layers, x.astype(np.float32), dy.astype(np.float32)


def value_and_grads(layers: Any, x: Any, dy: Any, copied: bool = False) -> Any:
    def all_of(layers: Any, x: Any, dy: Any) -> Any:
        out, back = jax.vjp(mlp, with_copies(layers) if copied else layers, x)
        d_layers, dx = back(dy)
        return {"out": out, "x": dx, "layers": without_copies(d_layers)}

    return jax.jit(all_of)(layers, x, dy)


def distances(one: Any, other: Any) -> list[float]:
    norm = np.linalg.norm
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return [float(norm(np.asarray(a) - np.asarray(b)) / norm(np.asarray(b))) for a, b in pairs]


# ------------------------------------------------------------------------------------------------- kernels


@sizes
def test_the_kernels_compute_the_plain_network_and_its_gradients(
    inputs: int, outputs: int, long: int, interpreted: Callable[..., None]
) -> None:
    """In float32, to float32's last digits: out, every weight, every bias and the inputs."""
    interpreted(jnp.float32, long)
    layers, x, dy = problem(inputs, outputs)
    found = distances(value_and_grads(layers, x, dy, copied=True), value_and_grads(layers, x, dy))
    assert len(found) == 8
    assert max(found) < 2e-6


@sizes
def test_half_floats_come_as_close_as_their_rounding_lets_them(
    inputs: int, outputs: int, long: int, interpreted: Callable[..., None]
) -> None:
    """The output to 1e-3. A gradient changes more: a unit near 0 that is rounded to the other side joins or leaves."""
    interpreted(jnp.float16, long)
    layers, x, dy = problem(inputs, outputs)
    got, exact = value_and_grads(layers, x, dy, copied=True), value_and_grads(layers, x, dy)
    assert 0 < distances(got["out"], exact["out"])[0] < 1e-3
    assert max(distances(got, exact)) < 0.08


ways = pytest.mark.parametrize(("inputs", "long"), [(14, 1024), (12, 64)])


@ways
@pytest.mark.parametrize(("last_scale", "size", "dy_size"), [(1e-3, 1.0, 1e-9), (1.0, 1e3, 1e6), (30.0, 1e-3, 1.0)])
def test_numbers_beyond_the_range_of_half_floats_on_the_way_back(
    last_scale: float, size: float, dy_size: float, inputs: int, long: int, interpreted: Callable[..., None]
) -> None:
    interpreted(jnp.float16, long)
    layers, x, dy = problem(inputs, 1, last_scale, size)
    got, exact = (value_and_grads(layers, x, np.float32(dy_size) * dy, copied) for copied in (True, False))
    assert max(distances(got, exact)) < 0.08


@ways
def test_activations_beyond_the_range_of_half_floats_saturate(
    inputs: int, long: int, interpreted: Callable[..., None]
) -> None:
    interpreted(jnp.float16, long)
    layers, x, dy = problem(inputs, 1, size=1e6)
    got = value_and_grads(layers, x, dy, copied=True)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(got))


@ways
def test_a_cotangent_that_is_not_finite_is_not_hidden(inputs: int, long: int, interpreted: Callable[..., None]) -> None:
    interpreted(jnp.float16, long)
    layers, x, dy = problem(inputs, 1)
    got = value_and_grads(layers, x, np.where(np.arange(ROWS)[:, None] == 3, np.float32(np.inf), dy), copied=True)
    assert not np.isfinite(got["layers"][1]["w"]).all()


def test_twins_in_lanes_through_the_kernels(interpreted: Callable[..., None]) -> None:
    """Networks under two vmaps, with inputs that only one of them maps."""
    interpreted(jnp.float32)
    critics = jax.vmap(lambda key: twins_init(key, (5, WIDTH, WIDTH, 1)))(jax.random.split(jax.random.key(0), 3))
    obs, action = jnp.ones((3, 64, 3)), jax.random.normal(jax.random.key(1), (3, 64, 2))

    def grads(nets: Any) -> Any:
        loss = lambda net, o, a: jnp.sum(jnp.sin(twins(net, o, a)))  # noqa: E731
        return without_copies(jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 2))))(nets, obs, action))

    assert max(distances(grads(jax.jit(with_copies)(critics)), grads(critics))) < 5e-6


# ------------------------------------------------------------------------- products, where no kernel fits

LARGE = [(14, 256, 256, 256, 1), (11, 256, 512, 18), (130, 256, 256, 3), (60, 256, 1)]


@pytest.mark.parametrize("shape", LARGE)
def test_larger_networks_multiply_half_floats(shape: tuple[int, ...]) -> None:
    """As close to float32 as their rounding lets them, in lanes of twins, whatever the size of what comes back."""
    assert not kernels.fits(mlp_init(jax.random.key(0), shape))
    nets = jax.vmap(lambda key: twins_init(key, shape))(jax.random.split(jax.random.key(1), 2))
    rng = np.random.default_rng(0)
    x, dy = rng.normal(size=(2, 5, 16, shape[0])), rng.normal(size=(2, 2, 5, 16, shape[-1]))

    def all_of(nets: Any, x: Any, dy: Any) -> Any:
        out, back = jax.vjp(lambda nets, x: jax.vmap(lambda net: mlp(net, x))(nets), nets, x)
        return {"out": out, "back": back(dy)}

    def both(scale: float) -> list[Any]:
        given = x.astype(np.float32), (scale * dy).astype(np.float32)
        ways = (jax.jit(with_copies)(nets), nets)
        return [without_copies(jax.jit(jax.vmap(all_of))(way, *given)) for way in ways]

    for scale in (1.0, 1e-9, 1e6):
        half, exact = both(scale)
        assert 0 < distances(half["out"], exact["out"])[0] < 2e-3
        assert max(distances(half["back"], exact["back"])) < 0.05


def test_larger_networks_saturate_and_hide_nothing() -> None:
    layers = mlp_init(jax.random.key(0), LARGE[0])
    x, dy = np.full((4, 14), 1e7, np.float32), np.ones((4, 1), np.float32)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(value_and_grads(layers, x, dy, copied=True)))
    dy[2] = np.inf
    assert not np.isfinite(value_and_grads(layers, x, dy, copied=True)["layers"][1]["w"]).all()


def test_a_pack_of_larger_networks_learns_in_half_floats() -> None:
    runs = [
        dataclasses.replace(run, algorithm=ALGORITHMS["td3bc"](hidden=(256, 256, 256)))
        for run in runs_of("td3bc", NoWeights())
    ]
    half, exact = (trained(runs, how, 5) for how in ("half", "default"))
    assert jax.tree.structure(half.learners) == jax.tree.structure(exact.learners)
    means = exact.end_chunk()
    for name, value in half.end_chunk().items():
        np.testing.assert_allclose(value, means[name], rtol=0.02, atol=2e-3)


@pytest.mark.parametrize(
    "shape", [(11, 128, 1), (11, 64, 64, 1), (11, 128, 256, 1), (128, 128, 128, 1), (11, 128, 128, 65), (3, 8, 8, 8, 1)]
)
def test_networks_of_other_shapes_stay_plain(shape: tuple[int, ...]) -> None:
    layers = mlp_init(jax.random.key(0), shape)
    assert jax.tree.structure(with_copies(layers)) == jax.tree.structure(layers)


def test_the_kernels_are_lowered_for_a_gpu() -> None:
    """Down to Triton's language, which refuses what it can't do. It takes no GPU."""
    layers, x, dy = problem(14, 3)

    def all_of(layers: Any, x: Any, dy: Any) -> Any:
        return jax.vjp(mlp, with_copies(layers), x)[1](dy)

    text = jax.jit(all_of).trace(layers, x, dy).lower(lowering_platforms=("cuda",)).as_text()
    for kernel in ("_forward_kernel", "_backward_weights_kernel", "_backward_last_kernel", "_backward_inputs_kernel"):
        assert kernel in text


# ---------------------------------------------------------------------------------------------- in a pack


def test_copies_follow_the_weights() -> None:
    """After Adam and after a target moved; moments have none."""
    params: Any = with_copies(
        {"critic": twins_init(jax.random.key(0), (5, WIDTH, WIDTH, 1)), "log_alpha": jnp.zeros(())}
    )
    grads = jax.tree.map(jnp.ones_like, params)
    moved, adam = adam_step(params, grads, adam_init(without_copies(params)), 0.1)
    target = track(params["critic"], moved["critic"], 0.5)
    for net in (moved["critic"], target):
        first, second = net[0][COPIES]
        np.testing.assert_array_equal(second, net[1]["w"].astype(jnp.float16))
        np.testing.assert_array_equal(first[:, :5], net[0]["w"].astype(jnp.float16))
        np.testing.assert_array_equal(first[:, 5], net[0]["b"].astype(jnp.float16))
        assert not np.asarray(first[:, 6:]).any()
    halfway = 0.5 * (params["critic"][1]["w"] + moved["critic"][1]["w"])
    np.testing.assert_allclose(target[1]["w"], halfway, rtol=1e-5, atol=1e-6)
    assert jax.tree.structure(adam.moments[1]) == jax.tree.structure(without_copies(params))  # pyright: ignore


def runs_of(algorithm: str, weighter: Any) -> list[Run]:
    options = {"samples": 2} if algorithm == "cql" else {}
    learner = ALGORITHMS[algorithm](hidden=(WIDTH, WIDTH), **options)
    return [Run(toy_dataset(200, seed=seed), learner, Uniform(), weighter, seed) for seed in range(2)]


def trained(runs: list[Run], precision: Any, *counts: int) -> Pack:
    pack = Pack(runs, 8, 64, block=len(runs), precision=precision)
    for count in counts:
        pack.advance(count)
    return pack


@pytest.mark.parametrize(
    ("algorithm", "weighter"), [("iql", Density(hidden=(WIDTH, WIDTH))), ("cql", NoWeights())], ids=["iql", "cql"]
)
def test_a_pack_learns_the_same_through_the_kernels(
    algorithm: str, weighter: Any, interpreted: Callable[..., None]
) -> None:
    """In float32 the whole update agrees, and what is kept looks the same as without them."""
    interpreted(jnp.float32)
    runs = runs_of(algorithm, weighter)
    assert_same(trained(runs, "half", 4).learners, trained(runs, "float32", 4).learners, rtol=5e-3, atol=2e-5)


def test_half_floats_in_parts_equal_half_floats_at_once_bit_for_bit(interpreted: Callable[..., None]) -> None:
    interpreted(jnp.float16)
    runs = runs_of("td3bc", NoWeights())
    at_once = trained(runs, "half", 5)
    assert_same(trained(runs, "half", 2, 3).learners, at_once.learners)
    means, exact = at_once.end_chunk(), trained(runs, "default", 5).end_chunk()
    for name, value in exact.items():
        np.testing.assert_allclose(means[name], value, rtol=0.01, atol=1e-3)


@pytest.mark.parametrize("way", ["_backward_weights", "_backward_long"])
def test_kernels_that_are_wrong_on_a_device_are_not_used(
    way: str, interpreted: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One whose gradients are those of half of the rows, say."""
    interpreted(jnp.float16)
    monkeypatch.setenv("WINNOW_PRECISION", "half")
    runs = runs_of("iql", NoWeights())
    selftest._RESULTS.clear()
    assert Pack(runs, 8, 64, block=2).precision == "half"
    right = getattr(kernels_backward, way)
    monkeypatch.setattr(kernels_backward, way, lambda *given: jax.tree.map(lambda grad: grad / 2, right(*given)))
    selftest._RESULTS.clear()
    assert Pack(runs, 8, 64, block=2).precision == "default"
    assert re.search(
        r"fail their self-test here for a network of \d+ inputs, 2 × 128 units and \d outputs", capsys.readouterr().err
    )

    def refused(*_: Any) -> Any:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: shared memory")

    monkeypatch.setattr(kernels_backward, way, refused)
    selftest._RESULTS.clear()
    assert Pack(runs, 8, 64, block=2).precision == "default"
    selftest._RESULTS.clear()


def test_without_memory_kernels_are_not_blamed(
    interpreted: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said, and who asks again tries them again."""
    interpreted(jnp.float16)
    monkeypatch.setattr(selftest, "_RESULTS", {})

    def refused(*_: Any, **__: Any) -> Any:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")

    with monkeypatch.context() as while_full:
        while_full.setattr(kernels, "_forward", refused)
        with pytest.raises(jax.errors.JaxRuntimeError, match="Out of memory"):
            selftest.kernels_agree(13, 128, 1)
    assert selftest.kernels_agree(13, 128, 1)
    assert not capsys.readouterr().err


def test_a_size_is_tried_once_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []

    def tried(*size: int) -> bool:
        asked.append(size)
        time.sleep(0.05)
        return size[0] < 9

    monkeypatch.setattr(selftest, "_kernel_selftest", tried)
    monkeypatch.setattr(selftest, "_RESULTS", {})
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda number: selftest.kernels_agree(8 + number % 2, 128, 1), range(16)))
    assert said == [True, False] * 8
    assert sorted(asked) == [(8, 128, 1), (9, 128, 1)]


def test_dropout_goes_the_plain_way() -> None:
    layers, x, _ = problem(11, 1)
    assert COPIES in with_copies(layers)[0]
    key = jax.random.key(3)
    assert_same(mlp(with_copies(layers), x, 0.5, key), mlp(layers, x, 0.5, key))


def test_a_cpu_keeps_to_float32_and_the_environment_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WINNOW_PRECISION", raising=False)
    assert best_precision(512) == "default"
    monkeypatch.setenv("WINNOW_PRECISION", "float32")
    assert best_precision(512) == "float32"
    monkeypatch.setenv("WINNOW_PRECISION", "bfloat16")
    with pytest.raises(BadInput, match=r"bfloat16.*float32, default, half"):
        best_precision(512)
    monkeypatch.setenv("WINNOW_PRECISION", "half")
    with pytest.raises(BadInput, match="compute capability 9"):
        best_precision(512)


def test_a_gpus_kernels_run_side_by_side_unless_the_environment_or_the_compiler_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    asked = side_by_side.__wrapped__
    assert asked() == {}  # a CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    option = "xla_gpu_command_buffer_scheduling_mode"
    assert asked() == {option: "CONCURRENT"}
    monkeypatch.setenv("XLA_FLAGS", f"--{option}=SERIALIZE")
    assert asked() == {}
    monkeypatch.delenv("XLA_FLAGS")

    def refuses(*_: Any, **__: Any) -> Any:
        raise jax.errors.JaxRuntimeError(f"INVALID_ARGUMENT: No such compile option: '{option}'")

    monkeypatch.setattr(jax, "jit", lambda *_, **__: refuses)
    assert asked() == {}
