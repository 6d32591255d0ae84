"""Self-test of the kernels on this device: each network size is compared with NumPy once."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from winnow.errors import out_of_memory
from winnow.nets import mlp, with_copies, without_copies

_LOCK = threading.Lock()
_RESULTS: dict[tuple[int, int, int], Future[bool]] = {}
"""Results of the self-test for each network size: inputs, width, outputs."""
TOLERANCE = 0.1
"""Largest relative distance from NumPy's result. Half floats stay far below it, and a wrong kernel far above."""


def kernels_agree(inputs: int, width: int, outputs: int) -> bool:
    """Whether the kernels compute a network of this size as NumPy does, forward and backward, on random numbers. A
    compiler may reject a kernel, or compile it wrongly, which would go unnoticed otherwise. Each size is tested once
    in a process, by one thread."""
    size = inputs, width, outputs
    with _LOCK:
        first = size not in _RESULTS
        result = _RESULTS.setdefault(size, Future())
    if first:
        try:
            result.set_result(_kernel_selftest(*size))
        except BaseException as error:
            with _LOCK:
                del _RESULTS[size]  # the kernels are not to blame: the next call tests again
            result.set_exception(error)
            raise
    return result.result()


def _kernel_selftest(inputs: int, width: int, outputs: int) -> bool:
    from winnow.nets import kernels

    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=(2, *shape)).astype(np.float32)  # two networks: in a pack the kernels run under vmap

    shapes = itertools.pairwise((inputs, width, width, outputs))
    layers = [{"w": normal(i, o) * np.float32((2 / i) ** 0.5), "b": 0.1 * normal(o)} for i, o in shapes]
    batches = [(normal(rows, inputs), normal(rows, outputs)) for rows in kernels.batches(outputs)]

    def both_passes(layers: Any, x: Any, dy: Any) -> Any:
        out, backward = jax.vjp(mlp, with_copies(layers), x)
        d_layers, dx = backward(dy)
        return out, dx, without_copies(d_layers)

    def all_batches(layers: Any, batches: Any) -> Any:
        return [both_passes(layers, x, dy) for x, dy in batches]

    try:
        computed = jax.jit(jax.vmap(all_batches))(layers, batches)
    except jax.errors.JaxRuntimeError as error:
        if out_of_memory(error):
            raise
        return False
    expected = [_by_numpy(layers, x, dy) for x, dy in batches]
    pairs = zip(jax.tree.leaves(computed), jax.tree.leaves(expected), strict=True)
    return all(np.linalg.norm(np.asarray(got) - exact) <= TOLERANCE * np.linalg.norm(exact) for got, exact in pairs)


def _by_numpy(layers: Any, x: np.ndarray, dy: np.ndarray) -> Any:
    """Output of a network, and the gradients of its inputs and weights for a cotangent of the output."""
    activations = [x]
    for depth, layer in enumerate(layers):
        x = x @ layer["w"] + layer["b"][..., None, :]
        activations.append(np.maximum(x, 0) if depth < len(layers) - 1 else x)
        x = activations[-1]
    grads = []
    for layer, below in zip(reversed(layers), reversed(activations[:-1]), strict=True):
        grads.append({"w": below.swapaxes(-1, -2) @ dy, "b": dy.sum(axis=-2)})
        dy = dy @ layer["w"].swapaxes(-1, -2)
        dy = dy * (below > 0) if below is not activations[0] else dy
    return x, dy, grads[::-1]
