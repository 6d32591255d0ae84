"""Building blocks of the kernels in `winnow.nets.kernels`: block sizes, and loads, stores and products of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from winnow.nets import half as half_floats
from winnow.types import Array


@dataclass(frozen=True)
class Blocks:
    """Block sizes, warps, stages and number types: the fastest found on an H200.

    Forward, a program computes a block of rows; backward, a block of the first layer's units.
    """

    rows: int = 128  # forward: rows in a program
    depth: int = 32  # forward: units of the first layer in a step of its loop
    warps: int = 8
    stages: int = 4
    units: int = 128  # backward: units of the first layer in a program
    row_block: int = 32  # backward: rows in a step of its loop
    row_block_one_output: int = 64  # the same for networks with one output and at most 63 inputs, for which more fit
    unit_block: int = 256  # backward: units of the second layer in a product
    backward_warps: int = 8
    backward_stages: int = 3
    columns: int = 64  # units of the second layer in a program for the gradients of their biases
    long_batch: int = (
        1024  # networks with one output take `kernels_backward._backward_long` for batches of at least this many rows
    )
    long_forward: tuple[int, int, int] = (64, 4, 3)  # for these batches, forward: rows, warps, stages
    long_backward: tuple[int, int, int, int] = (128, 64, 8, 3)  # backward: units, rows in a step, warps, stages
    long_backward_wide: tuple[int, int, int, int] = (64, 32, 4, 3)  # the same for more than 63 inputs
    long_columns: int = 128  # units of the second layer in a program that sums over the rows where they are active
    operand: Any = jnp.float16
    gradient: Any = jnp.bfloat16  # of the second layer's weights, between its kernel and Adam
    interpret: bool = False  # run on a CPU, for tests


BLOCKS = Blocks()


def keeps_mask_only(x: Any, w3: Any) -> bool:
    """Whether the forward pass stores only a mask of the second layer's active units. That is enough for one output,
    see `kernels_backward._backward_long`, and faster for a long batch."""
    return w3.shape[1] == 1 and x.shape[0] >= BLOCKS.long_batch


def kernel_call(kernel: Any, programs: int, shapes: list[Any], warps: int, stages: int) -> Any:
    """A function that runs a kernel in a number of programs and returns arrays of these shapes."""
    params = gpu.CompilerParams(num_warps=warps, num_stages=stages)
    return pl.pallas_call(
        kernel, grid=(programs,), out_shape=shapes, compiler_params=params, interpret=BLOCKS.interpret
    )


def dot(a: Array, b: Array, over: tuple[int, int] = (1, 0)) -> Array:
    """A product summed in float32, over these axes of a and b."""
    return jax.lax.dot_general(a, b, (((over[0],), (over[1],)), ((), ())), preferred_element_type=jnp.float32)


def half(value: Array) -> Array:
    """As the operand of a product: saturating half floats, or plain numbers of another type in tests."""
    return half_floats.half(value) if BLOCKS.operand == jnp.float16 else value.astype(BLOCKS.operand)


def power_of_two(size: int) -> int:
    """The next power of two; at least 16, which a product needs."""
    return max(16, 1 << (size - 1).bit_length())


def _locate(ref: Any, begin: Any, rows: int) -> tuple[Any, Array]:
    """References to a block of rows, with columns padded to a power of two, and a mask of the elements that exist."""
    row = begin + jnp.arange(rows)[:, None]
    column = jnp.arange(power_of_two(ref.shape[1]))[None]
    real = (row < ref.shape[0]) & (column < ref.shape[1])
    return ref.at[row, column], real


def read(ref: Any, begin: Any, rows: int) -> Array:
    """A block of rows, with columns padded with zeros to a power of two."""
    block, real = _locate(ref, begin, rows)
    return gpu.load(block, mask=real, other=0.0)


def write(ref: Any, begin: Any, value: Array) -> None:
    """Store a block of rows whose columns are padded."""
    block, real = _locate(ref, begin, value.shape[0])
    gpu.store(block, value, mask=real)


def max_abs(ref: Any) -> Array:
    """The largest absolute value in a matrix with a multiple of 64 rows; never 0."""
    block = next(size for size in (1024, 512, 256, 128, 64) if ref.shape[0] % size == 0)

    def larger(i: Array, largest: Array) -> Array:
        values = ref[pl.ds(i * block, block), 0] if ref.shape[1] == 1 else read(ref, i * block, block)
        return jnp.maximum(largest, jnp.max(jnp.abs(values)))

    return jax.lax.fori_loop(0, ref.shape[0] // block, larger, jnp.float32(1e-30))
