"""Small perceptrons on a GPU whose hidden layers never leave the chip.

A layer of 256 units for 256 rows is a small product, but its activations, written and read again by each kernel on the
way forth and back, are most of what a packed update moves through memory. Here one kernel takes a block of rows
through both hidden layers, and one kernel a block of units back through them; only the second layer's activations are
kept in between, in 16 bits.

Precision: operands of products have 16 bits, sums 32. Half floats have the same 10 bits of mantissa as TF32, in which
a GPU multiplies float32 matrices by default; their narrower range is met by saturating what goes forth and by scaling
what comes back to at most 1. Weights are kept in float32, and beside them the copies that the products read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from winnow.halves import half
from winnow.types import Array

Layers = Sequence[Mapping[str, Any]]

MOST_INPUTS, MOST_OUTPUTS = 127, 64
"""More would need more of the chip's shared memory than was tried."""


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
    operand: Any = jnp.float16
    gradient: Any = jnp.bfloat16  # of w2, between its kernel and Adam
    interpret: bool = False  # on a CPU, for tests


BLOCKS = Blocks()


def available() -> bool:
    """Whether the kernels run here: they are for NVIDIA GPUs with the shared memory of compute capability 9."""
    if BLOCKS.interpret:
        return True
    device = jax.devices()[0]
    return device.platform == "gpu" and float(getattr(device, "compute_capability", 0)) >= 9


def fits(layers: Layers) -> bool:
    """Whether the kernels can take this network: two hidden layers of one width, few inputs and outputs."""
    if len(layers) != 3:
        return False
    (inputs, first), (second, outputs) = layers[0]["w"].shape[-2:], layers[2]["w"].shape[-2:]
    return first == second and first in (128, 256) and inputs <= MOST_INPUTS and outputs <= MOST_OUTPUTS


def copies(layers: Layers) -> tuple[Array, Array]:
    """The weights of the hidden layers as the kernels read them, from layers whose leading axes may be any: the first
    with its bias as the weight of an input that is always 1, filled up with zeros to a power of two."""
    w1, b1, w2 = layers[0]["w"], layers[0]["b"], layers[1]["w"]
    first = jnp.concatenate([w1, b1[..., None, :]], axis=-2)
    more = [(0, 0)] * (first.ndim - 2) + [(0, _power(first.shape[-2]) - first.shape[-2]), (0, 0)]
    return _half(jnp.pad(first, more)), _half(w2)


def mlp(layers: Layers, copied: tuple[Array, Array], x: Array) -> Array:
    """ReLU, ReLU, linear: [..., I] -> [..., O]."""
    flat = x.reshape(-1, x.shape[-1])
    missing = -flat.shape[0] % BLOCKS.rows
    if missing:
        flat = jnp.pad(flat, ((0, missing), (0, 0)))
    out = _net(flat, *(layer[name] for layer in layers for name in ("w", "b")), *copied)
    return out[: out.shape[0] - missing].reshape(*x.shape[:-1], out.shape[-1])


@jax.custom_vjp
def _net(
    x: Array, w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array, first: Array, second: Array
) -> Array:
    return _forth(_with_one(x, first), first, second, b2, w3, b3, keep=False)[0]


def _net_forth(*primals: Any) -> tuple[Array, Any]:
    x, _, _, _, b2, w3, b3, first, second = (primal.value for primal in primals)
    wide = _with_one(x, first)
    out, hidden = _forth(wide, first, second, b2, w3, b3, keep=True)
    wanted = _Wanted(x.shape[1], primals[0].perturbed, any(primal.perturbed for primal in primals[1:7]))
    return out, (wide, hidden, first, second, w3, wanted)


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Wanted:
    columns: int
    inputs: bool
    weights: bool


def _net_back(kept: Any, dy: Any) -> tuple[Array | None, ...]:
    x, hidden, first, second, w3, wanted = kept
    saved = x, hidden, first, second, w3
    dx, grads = None, (None,) * 6
    if not isinstance(dy, jax.custom_derivatives.SymbolicZero):
        if wanted.inputs:
            dx = _back_inputs(*saved, dy)[:, : wanted.columns]
        if wanted.weights:
            dw1, db1, dw2 = _back_weights(*saved, dy, wanted.columns)
            db2, dw3 = _back_last(hidden, w3, dy)
            grads = (dw1, db1, dw2.astype(jnp.float32), db2, dw3, jnp.sum(dy, axis=0))
    return dx, *grads, None, None


_net.defvjp(_net_forth, _net_back, symbolic_zeros=True)


def _with_one(x: Array, first: Array) -> Array:
    """The inputs, a 1, and zeros up to the height of the copied first layer."""
    rows, columns = x.shape
    one = jnp.ones((rows, 1), x.dtype)
    return _half(jnp.concatenate([x, one, jnp.zeros((rows, first.shape[0] - columns - 1), x.dtype)], axis=1))


# ------------------------------------------------------------------------------------------------- forth


def _forth(x: Array, first: Array, second: Array, b2: Array, w3: Array, b3: Array, keep: bool) -> tuple[Array, ...]:
    shapes = [jax.ShapeDtypeStruct((x.shape[0], w3.shape[1]), jnp.float32)]
    if keep:
        shapes.append(jax.ShapeDtypeStruct((x.shape[0], w3.shape[0]), BLOCKS.operand))
    call = _call(_forth_kernel, x.shape[0] // BLOCKS.rows, shapes, BLOCKS.warps, BLOCKS.stages)
    return call(x, first, second, b2, w3, b3[None])


def _forth_kernel(
    x_ref: Any, first_ref: Any, second_ref: Any, b2_ref: Any, w3_ref: Any, b3_ref: Any, y_ref: Any, *kept: Any
) -> None:
    """A block of rows: its output, and the second layer's activations if they are to be kept."""
    begin = pl.program_id(0) * BLOCKS.rows
    here = pl.ds(begin, BLOCKS.rows)
    x, b2 = x_ref[here, :], b2_ref[...][None]
    w3, b3 = _half(_read(w3_ref, 0, w3_ref.shape[0])), _read(b3_ref, 0, 1)  # asked for before they are needed

    def add(i: Array, total: Array) -> Array:
        units = pl.ds(i * BLOCKS.depth, BLOCKS.depth)
        return total + _dot(_half(jax.nn.relu(_dot(x, first_ref[:, units]))), second_ref[units, :])

    total = jnp.zeros((BLOCKS.rows, second_ref.shape[1]), jnp.float32)
    total = jax.lax.fori_loop(0, second_ref.shape[0] // BLOCKS.depth, add, total)
    hidden = _half(jax.nn.relu(total + b2))
    if kept:
        kept[0][here, :] = hidden
    _write(y_ref, begin, _dot(hidden, w3) + b3)


# -------------------------------------------------------------------------------------------------- back


def _back_weights(x: Array, hidden: Array, first: Array, second: Array, w3: Array, dy: Array, inputs: int) -> Any:
    """Gradients of w1, b1 and w2."""
    width = second.shape[1]
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((inputs, width), (width,))]
    shapes.append(jax.ShapeDtypeStruct(second.shape, BLOCKS.gradient))
    programs = second.shape[0] // BLOCKS.units
    call = _call(_back_weights_kernel, programs, shapes, BLOCKS.back_warps, BLOCKS.back_stages)
    return call(x, hidden, first, second, w3, dy)


def _back_weights_kernel(
    x_ref: Any,
    hidden_ref: Any,
    first_ref: Any,
    second_ref: Any,
    w3_ref: Any,
    dy_ref: Any,
    dw1_ref: Any,
    db1_ref: Any,
    dw2_ref: Any,
) -> None:
    """A block of the first layer's units, with the weights to them and from them. Units go down and rows across, so
    that each product feeds the next one."""
    size, width, outputs = BLOCKS.units, second_ref.shape[1], dy_ref.shape[1]
    some = BLOCKS.more if outputs == 1 and x_ref.shape[1] <= 64 else BLOCKS.some
    begin = pl.program_id(0) * size
    units = pl.ds(begin, size)
    wide = min(BLOCKS.wide, width)
    parts = [pl.ds(low, wide) for low in range(0, width, wide)]
    w1, w2 = first_ref[:, units], [second_ref[units, part] for part in parts]
    top_dy, top_w3 = _top(dy_ref), _top(w3_ref)  # after the loads above, which take longer
    if outputs == 1:  # dy then goes where it costs least: to the rows of this layer, not to those of the next
        w3 = [_half(w3_ref[part, 0] / top_w3)[None] for part in parts]
    else:
        w3 = [_half(_read(w3_ref, part.start, wide) / top_w3) for part in parts]

    def add(i: Array, sums: Any) -> Any:
        d1, dw2 = sums
        rows = pl.ds(i * some, some)
        x = x_ref[rows, :]
        active = jax.nn.relu(_dot(w1, x, (0, 1)))  # [units, rows]
        dy = (dy_ref[rows, 0] if outputs == 1 else _read(dy_ref, i * some, some)) / top_dy
        share: Any = dy[None] if outputs == 1 else 1.0
        shared = _half(active * share)
        back, grown = jnp.zeros(active.shape, jnp.float32), []
        for part, w2_part, w3_part, total in zip(parts, w2, w3, dw2, strict=True):
            through = w3_part if outputs == 1 else _half(_dot(_half(dy), w3_part, (1, 1)))
            path = jnp.where(hidden_ref[rows, part] > 0, through, jnp.zeros((), BLOCKS.operand))
            grown.append(total + _dot(shared, path))
            back += _dot(w2_part, path, (1, 1))
        return d1 + _dot(_half(jnp.where(active > 0, back * share, 0.0)), x), tuple(grown)

    zeros = jnp.zeros((size, x_ref.shape[1]), jnp.float32), (jnp.zeros((size, wide), jnp.float32),) * len(parts)
    d1, dw2 = jax.lax.fori_loop(0, x_ref.shape[0] // some, add, zeros)
    d1 *= top_dy * top_w3
    unit, column, ones = begin + jnp.arange(size)[:, None], jnp.arange(d1.shape[1])[None], dw1_ref.shape[0]
    gpu.store(dw1_ref.at[column, unit], d1, mask=jnp.broadcast_to(column < ones, d1.shape))
    db1_ref[units] = jnp.sum(jnp.where(column == ones, d1, 0.0), axis=1)
    for part, total in zip(parts, dw2, strict=True):
        dw2_ref[units, part] = (total * (top_dy * top_w3)).astype(dw2_ref.dtype)


def _back_last(hidden: Array, w3: Array, dy: Array) -> Any:
    """Gradients of b2 and w3."""
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (w3.shape[:1], w3.shape)]
    kernel = _back_last_kernel if dy.shape[1] > 1 else _back_one_kernel
    return _call(kernel, w3.shape[0] // BLOCKS.columns, shapes, 4, 3)(hidden, w3, dy)


def _back_one_kernel(hidden_ref: Any, w3_ref: Any, dy_ref: Any, db2_ref: Any, dw3_ref: Any) -> None:
    """A block of the second layer's units, with their biases and the weights from them to a single output."""
    units = pl.ds(pl.program_id(0) * BLOCKS.columns, BLOCKS.columns)
    w3 = w3_ref[units, 0]

    def add(i: Array, sums: Any) -> Any:
        rows = pl.ds(i * BLOCKS.columns, BLOCKS.columns)
        hidden, dy = hidden_ref[rows, units].astype(jnp.float32), dy_ref[rows, 0][:, None]
        return sums[0] + jnp.where(hidden > 0, dy, 0.0), sums[1] + hidden * dy

    zeros = (jnp.zeros((BLOCKS.columns, BLOCKS.columns), jnp.float32),) * 2
    active, weighted = jax.lax.fori_loop(0, hidden_ref.shape[0] // BLOCKS.columns, add, zeros)
    db2_ref[units] = jnp.sum(active, axis=0) * w3
    dw3_ref[units, 0] = jnp.sum(weighted, axis=0)


def _back_last_kernel(hidden_ref: Any, w3_ref: Any, dy_ref: Any, db2_ref: Any, dw3_ref: Any) -> None:
    """The same for several outputs."""
    begin = pl.program_id(0) * BLOCKS.columns
    units = pl.ds(begin, BLOCKS.columns)
    top_dy, top_w3 = _top(dy_ref), _top(w3_ref)
    w3 = _half(_read(w3_ref, begin, BLOCKS.columns) / top_w3)

    def add(i: Array, sums: Any) -> Any:
        hidden = hidden_ref[pl.ds(i * BLOCKS.rows, BLOCKS.rows), units]
        dy = _half(_read(dy_ref, i * BLOCKS.rows, BLOCKS.rows) / top_dy)
        return sums[0] + jnp.where(hidden > 0, _dot(dy, w3, (1, 1)), 0.0), sums[1] + _dot(hidden, dy, (0, 0))

    zeros = jnp.zeros((BLOCKS.rows, BLOCKS.columns), jnp.float32), jnp.zeros(w3.shape, jnp.float32)
    db2, dw3 = jax.lax.fori_loop(0, hidden_ref.shape[0] // BLOCKS.rows, add, zeros)
    db2_ref[units] = jnp.sum(db2, axis=0) * (top_dy * top_w3)
    _write(dw3_ref, begin, dw3 * top_dy)


def _back_inputs(x: Array, hidden: Array, first: Array, second: Array, w3: Array, dy: Array) -> Array:
    """The gradient of the inputs."""
    shapes = [jax.ShapeDtypeStruct(x.shape, jnp.float32)]
    call = _call(_back_inputs_kernel, x.shape[0] // BLOCKS.rows, shapes, BLOCKS.warps, 2)
    return call(x, hidden, first, second, w3, dy)[0]


def _back_inputs_kernel(
    x_ref: Any, hidden_ref: Any, first_ref: Any, second_ref: Any, w3_ref: Any, dy_ref: Any, dx_ref: Any
) -> None:
    """A block of rows."""
    begin = pl.program_id(0) * BLOCKS.rows
    here = pl.ds(begin, BLOCKS.rows)
    x, top_dy, top_w3 = x_ref[here, :], _top(dy_ref), _top(w3_ref)
    dy, w3 = _half(_read(dy_ref, begin, BLOCKS.rows) / top_dy), _half(_read(w3_ref, 0, w3_ref.shape[0]) / top_w3)
    path = _half(jnp.where(hidden_ref[here, :] > 0, _dot(dy, w3, (1, 1)), 0.0))

    def add(i: Array, dx: Array) -> Array:
        units = pl.ds(i * BLOCKS.depth, BLOCKS.depth)
        w1 = first_ref[:, units]
        back = jnp.where(_dot(x, w1) > 0, _dot(path, second_ref[units, :], (1, 1)), 0.0)
        return dx + _dot(_half(back), w1, (1, 1))

    dx = jax.lax.fori_loop(0, second_ref.shape[0] // BLOCKS.depth, add, jnp.zeros(x.shape, jnp.float32))
    dx_ref[here, :] = dx * (top_dy * top_w3)


# --------------------------------------------------------------------------------------------- in kernels


def _call(kernel: Any, programs: int, shapes: list[Any], warps: int, stages: int) -> Any:
    params = gpu.CompilerParams(num_warps=warps, num_stages=stages)
    return pl.pallas_call(
        kernel, grid=(programs,), out_shape=shapes, compiler_params=params, interpret=BLOCKS.interpret
    )


def _dot(a: Array, b: Array, over: tuple[int, int] = (1, 0)) -> Array:
    return jax.lax.dot_general(a, b, (((over[0],), (over[1],)), ((), ())), preferred_element_type=jnp.float32)


def _half(value: Array) -> Array:
    return half(value) if BLOCKS.operand == jnp.float16 else value.astype(BLOCKS.operand)


def _power(size: int) -> int:
    """The next power of two, and at least what a product needs."""
    return max(16, 1 << (size - 1).bit_length())


def _place(ref: Any, begin: Any, rows: int) -> tuple[Any, Array]:
    """Some rows of a matrix with its columns filled up to a power of two: where they are, and which are real."""
    row, column = begin + jnp.arange(rows)[:, None], jnp.arange(_power(ref.shape[1]))[None]
    real = (row < ref.shape[0]) & (column < ref.shape[1])
    return ref.at[row, column], real


def _read(ref: Any, begin: Any, rows: int) -> Array:
    where, real = _place(ref, begin, rows)
    return gpu.load(where, mask=real, other=0.0)


def _write(ref: Any, begin: Any, value: Array) -> None:
    where, real = _place(ref, begin, value.shape[0])
    gpu.store(where, value, mask=real)


def _top(ref: Any) -> Array:
    """The largest size of an element of a matrix whose rows are a multiple of 64; never 0."""
    block = next(size for size in (1024, 512, 256, 128, 64) if ref.shape[0] % size == 0)

    def larger(i: Array, top: Array) -> Array:
        some = ref[pl.ds(i * block, block), 0] if ref.shape[1] == 1 else _read(ref, i * block, block)
        return jnp.maximum(top, jnp.max(jnp.abs(some)))

    return jax.lax.fori_loop(0, ref.shape[0] // block, larger, jnp.float32(1e-30))
