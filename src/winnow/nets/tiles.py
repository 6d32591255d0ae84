"""What the kernels of `winnow.nets.kernels` are made of: how their work is cut up, and pieces of matrices in them."""

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
    """How the work is cut up, as it was fastest on an H200, and the types of numbers."""

    rows: int = 128  # of a batch, for one program on the way forth
    depth: int = 32  # units of the first layer at a time there
    warps: int = 8
    stages: int = 4
    units: int = 128  # of the first layer, for one program on the way back
    some: int = 32  # rows at a time there
    more: int = 64  # the same for networks with one output and at most 63 inputs: there is room for so many
    wide: int = 256  # units of the second layer at a time there
    back_warps: int = 8
    back_stages: int = 3
    columns: int = 64  # units of the second layer, for one program that makes the gradients of their biases
    long: int = 1024  # rows of a batch that goes back through `_back_long` if the network has one output: for these
    long_forth: tuple[int, int, int] = (64, 4, 3)  # rows, warps and stages on the way forth
    long_back: tuple[int, int, int, int] = (128, 64, 8, 3)  # units, rows at a time, warps and stages on the way back
    long_wide: tuple[int, int, int, int] = (64, 32, 4, 3)  # the same for more than 63 inputs
    long_columns: int = 128  # units of the second layer, for one program that adds up where they are active
    operand: Any = jnp.float16
    gradient: Any = jnp.bfloat16  # of w2, between its kernel and Adam
    interpret: bool = False  # on a CPU, for tests


BLOCKS = Blocks()


def kernel_call(kernel: Any, programs: int, shapes: list[Any], warps: int, stages: int) -> Any:
    params = gpu.CompilerParams(num_warps=warps, num_stages=stages)
    return pl.pallas_call(
        kernel, grid=(programs,), out_shape=shapes, compiler_params=params, interpret=BLOCKS.interpret
    )


def dot(a: Array, b: Array, over: tuple[int, int] = (1, 0)) -> Array:
    return jax.lax.dot_general(a, b, (((over[0],), (over[1],)), ((), ())), preferred_element_type=jnp.float32)


def half(value: Array) -> Array:
    return half_floats.half(value) if BLOCKS.operand == jnp.float16 else value.astype(BLOCKS.operand)


def power(size: int) -> int:
    """The next power of two, and at least what a product needs."""
    return max(16, 1 << (size - 1).bit_length())


def _place(ref: Any, begin: Any, rows: int) -> tuple[Any, Array]:
    """Some rows of a matrix with its columns filled up to a power of two: where they are, and which are real."""
    row, column = begin + jnp.arange(rows)[:, None], jnp.arange(power(ref.shape[1]))[None]
    real = (row < ref.shape[0]) & (column < ref.shape[1])
    return ref.at[row, column], real


def read(ref: Any, begin: Any, rows: int) -> Array:
    where, real = _place(ref, begin, rows)
    return gpu.load(where, mask=real, other=0.0)


def write(ref: Any, begin: Any, value: Array) -> None:
    where, real = _place(ref, begin, value.shape[0])
    gpu.store(where, value, mask=real)


def top(ref: Any) -> Array:
    """The largest size of an element of a matrix whose rows are a multiple of 64; never 0."""
    block = next(size for size in (1024, 512, 256, 128, 64) if ref.shape[0] % size == 0)

    def larger(i: Array, top: Array) -> Array:
        some = ref[pl.ds(i * block, block), 0] if ref.shape[1] == 1 else read(ref, i * block, block)
        return jnp.maximum(top, jnp.max(jnp.abs(some)))

    return jax.lax.fori_loop(0, ref.shape[0] // block, larger, jnp.float32(1e-30))
