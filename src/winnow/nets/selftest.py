"""Whether the kernels compute a network rightly on this device: tried once for each size, against numpy."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from winnow.errors import out_of_memory
from winnow.nets import mlp, with_copies, without_copies


def kernels_agree(inputs: int, width: int, outputs: int) -> bool:
    """Whether the kernels get a network of these sizes right on this device, forth and back, by numpy's word on random
    numbers. A compiler may refuse a kernel, or accept it and get it wrong, which nothing else would show. Each size is
    tried once in a process, and by one thread."""
    size = inputs, width, outputs
    with _TRYING:
        mine = size not in _TRIED
        trial = _TRIED.setdefault(size, Future())
    if mine:
        try:
            trial.set_result(_tried(*size))
        except BaseException as error:
            with _TRYING:
                del _TRIED[size]  # it was not the kernels' fault: who asks again tries again
            trial.set_exception(error)
            raise
    return trial.result()


_TRYING = threading.Lock()


_TRIED: dict[tuple[int, int, int], Future[bool]] = {}


def _tried(inputs: int, width: int, outputs: int, near: float = 0.1) -> bool:
    from winnow.nets import kernels

    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=(2, *shape)).astype(np.float32)  # two lanes: in a pack all are mapped

    shapes = itertools.pairwise((inputs, width, width, outputs))
    layers = [{"w": normal(i, o) * np.float32((2 / i) ** 0.5), "b": 0.1 * normal(o)} for i, o in shapes]
    given = [(normal(rows, inputs), normal(rows, outputs)) for rows in kernels.batches(outputs)]

    def both_ways(layers: Any, x: Any, dy: Any) -> Any:
        out, back = jax.vjp(mlp, with_copies(layers), x)
        d_layers, dx = back(dy)
        return out, dx, without_copies(d_layers)

    try:
        got = jax.jit(jax.vmap(lambda layers, given: [both_ways(layers, *one) for one in given]))(layers, given)
    except jax.errors.JaxRuntimeError as error:
        if out_of_memory(error):
            raise
        return False
    exact = [_by_numpy(layers, *one) for one in given]
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(exact), strict=True)
    return all(np.linalg.norm(np.asarray(one) - right) <= near * np.linalg.norm(right) for one, right in pairs)


def _by_numpy(layers: Any, x: np.ndarray, dy: np.ndarray) -> Any:
    """Output of a network, and the gradients of its inputs and weights for a cotangent of the output."""
    kept, grads = [x], []
    for depth, layer in enumerate(layers):
        x = x @ layer["w"] + layer["b"][..., None, :]
        kept.append(np.maximum(x, 0) if depth < len(layers) - 1 else x)
        x = kept[-1]
    for layer, below in zip(reversed(layers), reversed(kept[:-1]), strict=True):
        grads.append({"w": below.swapaxes(-1, -2) @ dy, "b": dy.sum(axis=-2)})
        dy = dy @ layer["w"].swapaxes(-1, -2)
        dy = dy * (below > 0) if below is not kept[0] else dy
    return x, dy, grads[::-1]
