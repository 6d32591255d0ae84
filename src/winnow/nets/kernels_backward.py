"""The backward pass of the kernels in `winnow.nets.kernels`: gradients of weights, biases and inputs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from winnow.nets import tiles
from winnow.nets.half import largest
from winnow.nets.tiles import dot, half, kernel_call, max_abs, read, write
from winnow.types import Array


def backward(
    x: Array, kept: Array, first: Array, second: Array, w3: Array, b2: Array, dy: Array, inputs: int
) -> tuple[Array, ...]:
    """Gradients of w1, b1, w2, b2 and w3. `kept`: what the forward pass stored of the second layer."""
    if tiles.keeps_mask_only(x, w3):
        return _backward_long(x, kept, first, second, w3, b2, dy, inputs)
    return *_backward_weights(x, kept, first, second, w3, dy, inputs), *_backward_last(kept, w3, dy)


def _backward_weights(x: Array, hidden: Array, first: Array, second: Array, w3: Array, dy: Array, inputs: int) -> Any:
    """Gradients of w1, b1 and w2."""
    width = second.shape[1]
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((inputs, width), (width,))]
    shapes.append(jax.ShapeDtypeStruct(second.shape, tiles.BLOCKS.gradient))
    programs = second.shape[0] // tiles.BLOCKS.units
    call = kernel_call(
        _backward_weights_kernel, programs, shapes, tiles.BLOCKS.backward_warps, tiles.BLOCKS.backward_stages
    )
    return call(x, hidden, first, second, w3, dy)


def _backward_weights_kernel(
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
    """A block of the first layer's units: gradients of the weights into them and out of them. Matrices are [units,
    rows], so that the result of each product is the operand of the next one without a transpose."""
    unit_count = tiles.BLOCKS.units
    width = second_ref.shape[1]
    outputs = dy_ref.shape[1]
    few_columns = outputs == 1 and x_ref.shape[1] <= 64
    row_block = tiles.BLOCKS.row_block_one_output if few_columns else tiles.BLOCKS.row_block
    begin = pl.program_id(0) * unit_count
    units = pl.ds(begin, unit_count)
    unit_block = min(tiles.BLOCKS.unit_block, width)
    parts = [pl.ds(low, unit_block) for low in range(0, width, unit_block)]
    w1 = first_ref[:, units]
    w2 = [second_ref[units, part] for part in parts]
    dy_scale = max_abs(dy_ref)  # after the loads above, which take longer
    w3_scale = max_abs(w3_ref)
    if outputs == 1:  # multiply by dy where it costs least: the first layer's activations, not the second layer's
        w3 = [half(w3_ref[part, 0] / w3_scale)[None] for part in parts]
    else:
        w3 = [half(read(w3_ref, part.start, unit_block) / w3_scale) for part in parts]

    def add(i: Array, sums: Any) -> Any:
        d1, dw2 = sums
        rows = pl.ds(i * row_block, row_block)
        x = x_ref[rows, :]
        active = jax.nn.relu(dot(w1, x, (0, 1)))  # [units, rows]
        dy = (dy_ref[rows, 0] if outputs == 1 else read(dy_ref, i * row_block, row_block)) / dy_scale
        factor: Any = dy[None] if outputs == 1 else 1.0
        scaled_active = half(active * factor)
        d_active = jnp.zeros(active.shape, jnp.float32)
        new_dw2 = []
        for part, w2_part, w3_part, dw2_part in zip(parts, w2, w3, dw2, strict=True):
            gradient = w3_part if outputs == 1 else half(dot(half(dy), w3_part, (1, 1)))
            d_hidden = jnp.where(hidden_ref[rows, part] > 0, gradient, jnp.zeros((), tiles.BLOCKS.operand))
            new_dw2.append(dw2_part + dot(scaled_active, d_hidden))
            d_active += dot(w2_part, d_hidden, (1, 1))
        return d1 + dot(half(jnp.where(active > 0, d_active * factor, 0.0)), x), tuple(new_dw2)

    zero_d1 = jnp.zeros((unit_count, x_ref.shape[1]), jnp.float32)
    zero_dw2 = (jnp.zeros((unit_count, unit_block), jnp.float32),) * len(parts)
    d1, dw2 = jax.lax.fori_loop(0, x_ref.shape[0] // row_block, add, (zero_d1, zero_dw2))
    _write_first(dw1_ref, db1_ref, begin, d1 * (dy_scale * w3_scale))
    for part, dw2_part in zip(parts, dw2, strict=True):
        dw2_ref[units, part] = (dw2_part * (dy_scale * w3_scale)).astype(dw2_ref.dtype)


def _write_first(dw1_ref: Any, db1_ref: Any, begin: Any, d1: Array) -> None:
    """Store the first layer's gradients from d1 [units, inputs and ones column]: the ones column is the bias's."""
    unit = begin + jnp.arange(d1.shape[0])[:, None]
    column = jnp.arange(d1.shape[1])[None]
    inputs = dw1_ref.shape[0]
    gpu.store(dw1_ref.at[column, unit], d1, mask=jnp.broadcast_to(column < inputs, d1.shape))
    db1_ref[pl.ds(begin, d1.shape[0])] = jnp.sum(jnp.where(column == inputs, d1, 0.0), axis=1)


def _backward_last(hidden: Array, w3: Array, dy: Array) -> Any:
    """Gradients of b2 and w3."""
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (w3.shape[:1], w3.shape)]
    kernel = _backward_last_kernel if dy.shape[1] > 1 else _backward_last_one_output_kernel
    return kernel_call(kernel, w3.shape[0] // tiles.BLOCKS.columns, shapes, 4, 3)(hidden, w3, dy)


def _backward_last_one_output_kernel(hidden_ref: Any, w3_ref: Any, dy_ref: Any, db2_ref: Any, dw3_ref: Any) -> None:
    """A block of the second layer's units: gradients of their biases and of their weights to a single output."""
    units = pl.ds(pl.program_id(0) * tiles.BLOCKS.columns, tiles.BLOCKS.columns)
    w3 = w3_ref[units, 0]

    def add(i: Array, sums: Any) -> Any:
        rows = pl.ds(i * tiles.BLOCKS.columns, tiles.BLOCKS.columns)
        hidden = hidden_ref[rows, units].astype(jnp.float32)
        dy = dy_ref[rows, 0][:, None]
        return sums[0] + jnp.where(hidden > 0, dy, 0.0), sums[1] + hidden * dy

    zeros = (jnp.zeros((tiles.BLOCKS.columns, tiles.BLOCKS.columns), jnp.float32),) * 2
    active, weighted = jax.lax.fori_loop(0, hidden_ref.shape[0] // tiles.BLOCKS.columns, add, zeros)
    db2_ref[units] = jnp.sum(active, axis=0) * w3
    dw3_ref[units, 0] = jnp.sum(weighted, axis=0)


def _backward_last_kernel(hidden_ref: Any, w3_ref: Any, dy_ref: Any, db2_ref: Any, dw3_ref: Any) -> None:
    """The same for several outputs."""
    begin = pl.program_id(0) * tiles.BLOCKS.columns
    units = pl.ds(begin, tiles.BLOCKS.columns)
    dy_scale = max_abs(dy_ref)
    w3_scale = max_abs(w3_ref)
    w3 = half(read(w3_ref, begin, tiles.BLOCKS.columns) / w3_scale)

    def add(i: Array, sums: Any) -> Any:
        hidden = hidden_ref[pl.ds(i * tiles.BLOCKS.rows, tiles.BLOCKS.rows), units]
        dy = half(read(dy_ref, i * tiles.BLOCKS.rows, tiles.BLOCKS.rows) / dy_scale)
        return sums[0] + jnp.where(hidden > 0, dot(dy, w3, (1, 1)), 0.0), sums[1] + dot(hidden, dy, (0, 0))

    zeros = jnp.zeros((tiles.BLOCKS.rows, tiles.BLOCKS.columns), jnp.float32), jnp.zeros(w3.shape, jnp.float32)
    db2, dw3 = jax.lax.fori_loop(0, hidden_ref.shape[0] // tiles.BLOCKS.rows, add, zeros)
    db2_ref[units] = jnp.sum(db2, axis=0) * (dy_scale * w3_scale)
    write(dw3_ref, begin, dw3 * dy_scale)


def _backward_long(
    x: Array, active: Array, first: Array, second: Array, w3: Array, b2: Array, dy: Array, inputs: int
) -> Any:
    """Gradients of w1, b1, w2, b2 and w3 for one output. Let h be the first layer's activations, a the mask of the
    second layer's active units, and M = Σ dy h a and m = Σ dy a sums over the rows. Then the gradients are M w3 for w2,
    m w3 for b2, and Σ w2 M + b2 m for w3. So the mask is an operand of the products as it is, and the loop does not
    need w3."""
    units, _, warps, stages = _long_block(x)
    width = second.shape[1]
    programs = second.shape[0] // units
    scales = [largest(dy), largest(w3)]
    # w2 · w3 is computed out here. As an input of the kernel it reaches the products through shared memory; computed
    # inside, it would fill a quarter of the registers. For the same reason the kernel loads w2 only at its end.
    w2w3 = half(second.astype(jnp.float32) * (w3[:, 0] / scales[1]))
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((inputs, width), (width,), (programs, width))]
    shapes.append(jax.ShapeDtypeStruct(second.shape, tiles.BLOCKS.gradient))
    call = kernel_call(_backward_long_kernel, programs, shapes, warps, stages)
    dw1, db1, dw3, dw2 = call(x, active, first, second, w2w3, w3, dy, jnp.stack(scales))
    columns = min(tiles.BLOCKS.long_columns, width)
    call = kernel_call(_sum_kernel, width // columns, [jax.ShapeDtypeStruct((width,), jnp.float32)], 4, 3)
    (m,) = call(active, dy)
    return dw1, db1, dw2, m * w3[:, 0], (jnp.sum(dw3, axis=0) + b2 * m)[:, None]


def _long_block(x: Any) -> tuple[int, int, int, int]:
    """Units of a program, rows in a step of its loop, its warps and its stages."""
    return tiles.BLOCKS.long_backward if x.shape[1] <= 64 else tiles.BLOCKS.long_backward_wide


def _backward_long_kernel(
    x_ref: Any,
    active_ref: Any,
    first_ref: Any,
    second_ref: Any,
    w2w3_ref: Any,
    w3_ref: Any,
    dy_ref: Any,
    scales_ref: Any,
    dw1_ref: Any,
    db1_ref: Any,
    dw3_ref: Any,
    dw2_ref: Any,
) -> None:
    """A block of the first layer's units: the gradients of their weights, and their part of w3's gradient."""
    unit_count, row_block, _, _ = _long_block(x_ref)
    begin = pl.program_id(0) * unit_count
    units = pl.ds(begin, unit_count)
    w1 = first_ref[:, units]
    w2w3 = w2w3_ref[units, :]
    dy_scale = scales_ref[0]
    w3_scale = scales_ref[1]

    def add(i: Array, sums: Any) -> Any:
        d1, m = sums  # m: the matrix M of `_backward_long`
        rows = pl.ds(i * row_block, row_block)
        x = x_ref[rows, :]
        active = active_ref[rows, :]
        dy = (dy_ref[rows, 0] / dy_scale)[None]
        hidden = jax.nn.relu(dot(w1, x, (0, 1)))  # [units, rows]
        m += dot(half(hidden * dy), active)
        d_hidden = jnp.where(hidden > 0, dot(w2w3, active, (1, 1)) * dy, 0.0)
        return d1 + dot(half(d_hidden), x), m

    zero_d1 = jnp.zeros((unit_count, x_ref.shape[1]), jnp.float32)
    zero_m = jnp.zeros((unit_count, second_ref.shape[1]), jnp.float32)
    d1, m = jax.lax.fori_loop(0, x_ref.shape[0] // row_block, add, (zero_d1, zero_m))
    _write_first(dw1_ref, db1_ref, begin, d1 * (dy_scale * w3_scale))
    m *= dy_scale
    dw2_ref[units, :] = (m * w3_ref[:, 0][None]).astype(dw2_ref.dtype)
    dw3_ref[pl.program_id(0), :] = jnp.sum(m * second_ref[units, :].astype(jnp.float32), axis=0)


def _sum_kernel(active_ref: Any, dy_ref: Any, m_ref: Any) -> None:
    """A block of the second layer's units: the sum of dy over the rows in which they are active."""
    columns = min(tiles.BLOCKS.long_columns, m_ref.shape[0])
    units = pl.ds(pl.program_id(0) * columns, columns)

    def add(i: Array, total: Array) -> Array:
        rows = pl.ds(i * tiles.BLOCKS.rows, tiles.BLOCKS.rows)
        return total + active_ref[rows, units].astype(jnp.float32) * dy_ref[rows, 0][:, None]

    zeros = jnp.zeros((tiles.BLOCKS.rows, columns), jnp.float32)
    m_ref[units] = jnp.sum(jax.lax.fori_loop(0, active_ref.shape[0] // tiles.BLOCKS.rows, add, zeros), axis=0)


def backward_inputs(x: Array, hidden: Array, first: Array, second: Array, w3: Array, dy: Array) -> Array:
    """The gradient of the inputs."""
    shapes = [jax.ShapeDtypeStruct(x.shape, jnp.float32)]
    call = kernel_call(_backward_inputs_kernel, x.shape[0] // tiles.BLOCKS.rows, shapes, tiles.BLOCKS.warps, 2)
    return call(x, hidden, first, second, w3, dy)[0]


def _backward_inputs_kernel(
    x_ref: Any, hidden_ref: Any, first_ref: Any, second_ref: Any, w3_ref: Any, dy_ref: Any, dx_ref: Any
) -> None:
    """A block of rows."""
    begin = pl.program_id(0) * tiles.BLOCKS.rows
    here = pl.ds(begin, tiles.BLOCKS.rows)
    x = x_ref[here, :]
    dy_scale = max_abs(dy_ref)
    w3_scale = max_abs(w3_ref)
    dy = half(read(dy_ref, begin, tiles.BLOCKS.rows) / dy_scale)
    w3 = half(read(w3_ref, 0, w3_ref.shape[0]) / w3_scale)
    d_hidden = half(jnp.where(hidden_ref[here, :] > 0, dot(dy, w3, (1, 1)), 0.0))

    def add(i: Array, dx: Array) -> Array:
        units = pl.ds(i * tiles.BLOCKS.depth, tiles.BLOCKS.depth)
        w1 = first_ref[:, units]
        d_active = jnp.where(dot(x, w1) > 0, dot(d_hidden, second_ref[units, :], (1, 1)), 0.0)
        return dx + dot(half(d_active), w1, (1, 1))

    dx = jax.lax.fori_loop(0, second_ref.shape[0] // tiles.BLOCKS.depth, add, jnp.zeros(x.shape, jnp.float32))
    dx_ref[here, :] = dx * (dy_scale * w3_scale)
