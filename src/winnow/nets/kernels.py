"""GPU kernels for small perceptrons whose hidden layers never leave the chip.

A layer of 256 units for 256 rows is a small product, but its activations, written and read again by each kernel in the
forward and the backward pass, are most of what a packed update moves through memory. Here, one kernel computes both
hidden layers for a block of rows, and one kernel the gradients of a block of units. Only the second layer's
activations are stored in between, in 16 bits; for a long batch with one output, only a mask of the active units.

Precision: operands of products have 16 bits, sums 32. Half floats have the same 10 bits of mantissa as TF32, in which
a GPU multiplies float32 matrices by default. Their smaller range is handled by saturating forward values and by scaling
gradients to at most 1. Weights are stored in float32, with copies in half floats that the products read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from winnow.nets import kernels_backward, tiles
from winnow.nets.tiles import dot, half, kernel_call, power_of_two, read, write
from winnow.types import Array

Layers = Sequence[Mapping[str, Any]]

MAX_INPUTS = 127
MAX_OUTPUTS = 64
"""Larger networks would need more of the chip's shared memory, and were not tried."""


def available() -> bool:
    """Whether the kernels run here. They need an NVIDIA GPU of compute capability 9, for its shared memory."""
    if tiles.BLOCKS.interpret:
        return True
    device = jax.devices()[0]
    return device.platform == "gpu" and float(getattr(device, "compute_capability", 0)) >= 9


def batches(outputs: int) -> tuple[int, ...]:
    """Batch sizes for the self-test: one for each set of kernels that a network with this many outputs may use."""
    return (256, tiles.BLOCKS.long_batch) if outputs == 1 else (256,)


def fits(layers: Layers) -> bool:
    """Whether the kernels can take this network: two hidden layers of one width, few inputs and outputs."""
    if len(layers) != 3:
        return False
    inputs, first = layers[0]["w"].shape[-2:]
    second, outputs = layers[2]["w"].shape[-2:]
    return first == second and first in (128, 256) and inputs <= MAX_INPUTS and outputs <= MAX_OUTPUTS


def copies(layers: Layers) -> tuple[Array, Array]:
    """The weights of the hidden layers as the kernels read them; layers may have any leading axes. The first layer has
    its bias as the weight of an input that is always 1, and is padded with zeros to a power of two."""
    w1 = layers[0]["w"]
    b1 = layers[0]["b"]
    first = jnp.concatenate([w1, b1[..., None, :]], axis=-2)
    padding = [(0, 0)] * (first.ndim - 2) + [(0, power_of_two(first.shape[-2]) - first.shape[-2]), (0, 0)]
    return half(jnp.pad(first, padding)), half(layers[1]["w"])


def mlp(layers: Layers, copied: tuple[Array, Array], x: Array) -> Array:
    """ReLU, ReLU, linear: [..., I] -> [..., O]."""
    flat = x.reshape(-1, x.shape[-1])
    missing = -flat.shape[0] % tiles.BLOCKS.rows
    if missing:
        flat = jnp.pad(flat, ((0, missing), (0, 0)))
    out = _net(flat, *(layer[name] for layer in layers for name in ("w", "b")), *copied)
    return out[: out.shape[0] - missing].reshape(*x.shape[:-1], out.shape[-1])


@jax.custom_vjp
def _net(
    x: Array, w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array, first: Array, second: Array
) -> Array:
    return _forward(_with_ones_column(x, first), first, second, b2, w3, b3, keep=False)[0]


def _net_forward(*primals: Any) -> tuple[Array, Any]:
    x, _, _, _, b2, w3, b3, first, second = (primal.value for primal in primals)
    padded = _with_ones_column(x, first)
    out, hidden = _forward(padded, first, second, b2, w3, b3, keep=True)
    wanted = _Wanted(x.shape[1], primals[0].perturbed, any(primal.perturbed for primal in primals[1:7]))
    return out, (padded, hidden, first, second, b2, w3, wanted)


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Wanted:
    """Which gradients are asked for."""

    columns: int
    """Number of inputs before padding."""
    inputs: bool
    weights: bool


def _net_backward(kept: Any, dy: Any) -> tuple[Array | None, ...]:
    x, hidden, first, second, b2, w3, wanted = kept
    saved = x, hidden, first, second, w3
    dx = None
    grads = (None,) * 6
    if not isinstance(dy, jax.custom_derivatives.SymbolicZero):
        if wanted.inputs:
            dx = kernels_backward.backward_inputs(*saved, dy)[:, : wanted.columns]
        if wanted.weights:
            dw1, db1, dw2, db2, dw3 = kernels_backward.backward(*saved, b2, dy, wanted.columns)
            grads = (dw1, db1, dw2.astype(jnp.float32), db2, dw3, jnp.sum(dy, axis=0))
    return dx, *grads, None, None


_net.defvjp(_net_forward, _net_backward, symbolic_zeros=True)


def _with_ones_column(x: Array, first: Array) -> Array:
    """The inputs, a column of ones, and zeros up to the height of the first layer's copy."""
    rows, columns = x.shape
    ones = jnp.ones((rows, 1), x.dtype)
    return half(jnp.concatenate([x, ones, jnp.zeros((rows, first.shape[0] - columns - 1), x.dtype)], axis=1))


# ----------------------------------------------------------------------------------------------- forward


def _forward(x: Array, first: Array, second: Array, b2: Array, w3: Array, b3: Array, keep: bool) -> tuple[Array, ...]:
    shapes = [jax.ShapeDtypeStruct((x.shape[0], w3.shape[1]), jnp.float32)]
    if keep:
        shapes.append(jax.ShapeDtypeStruct((x.shape[0], w3.shape[0]), tiles.BLOCKS.operand))
    rows, warps, stages = _forward_block(x, w3)
    call = kernel_call(_forward_kernel, x.shape[0] // rows, shapes, warps, stages)
    return call(x, first, second, b2, w3, b3[None])


def _forward_block(x: Any, w3: Any) -> tuple[int, int, int]:
    """Rows of a program, its warps and its stages."""
    blocks = tiles.BLOCKS
    return blocks.long_forward if tiles.keeps_mask_only(x, w3) else (blocks.rows, blocks.warps, blocks.stages)


def _forward_kernel(
    x_ref: Any, first_ref: Any, second_ref: Any, b2_ref: Any, w3_ref: Any, b3_ref: Any, y_ref: Any, *kept: Any
) -> None:
    """A block of rows: its output, and the second layer's activations or their mask for the backward pass."""
    rows = _forward_block(x_ref, w3_ref)[0]
    begin = pl.program_id(0) * rows
    here = pl.ds(begin, rows)
    x = x_ref[here, :]
    b2 = b2_ref[...][None]
    w3 = half(read(w3_ref, 0, w3_ref.shape[0]))  # loaded early, so that nothing waits for it at the end
    b3 = read(b3_ref, 0, 1)

    def add(i: Array, total: Array) -> Array:
        units = pl.ds(i * tiles.BLOCKS.depth, tiles.BLOCKS.depth)
        return total + dot(half(jax.nn.relu(dot(x, first_ref[:, units]))), second_ref[units, :])

    total = jnp.zeros((rows, second_ref.shape[1]), jnp.float32)
    total = jax.lax.fori_loop(0, second_ref.shape[0] // tiles.BLOCKS.depth, add, total)
    total += b2
    hidden = half(jax.nn.relu(total))
    if kept:
        kept[0][here, :] = (total > 0).astype(tiles.BLOCKS.operand) if tiles.keeps_mask_only(x_ref, w3_ref) else hidden
    write(y_ref, begin, dot(hidden, w3) + b3)
