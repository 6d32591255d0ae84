"""Small perceptrons on a GPU whose hidden layers never leave the chip.

A layer of 256 units for 256 rows is a small product, but its activations, written and read again by each kernel on the
way forth and back, are most of what a packed update moves through memory. Here one kernel takes a block of rows
through both hidden layers, and one kernel a block of units back through them; only the second layer's activations are
kept in between, in 16 bits, and of a long batch into one output only where they are not 0.

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

from winnow.nets import tiles
from winnow.nets.half import largest
from winnow.nets.tiles import dot, half, kernel_call, power, read, top, write
from winnow.types import Array

Layers = Sequence[Mapping[str, Any]]

MOST_INPUTS, MOST_OUTPUTS = 127, 64
"""More would need more of the chip's shared memory than was tried."""


def available() -> bool:
    """Whether the kernels run here: they are for NVIDIA GPUs with the shared memory of compute capability 9."""
    if tiles.BLOCKS.interpret:
        return True
    device = jax.devices()[0]
    return device.platform == "gpu" and float(getattr(device, "compute_capability", 0)) >= 9


def batches(outputs: int) -> tuple[int, ...]:
    """Rows of batches that go different ways through the kernels, for a network with so many outputs."""
    return (256, tiles.BLOCKS.long) if outputs == 1 else (256,)


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
    more = [(0, 0)] * (first.ndim - 2) + [(0, power(first.shape[-2]) - first.shape[-2]), (0, 0)]
    return half(jnp.pad(first, more)), half(w2)


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
    return _forth(_with_one(x, first), first, second, b2, w3, b3, keep=False)[0]


def _net_forth(*primals: Any) -> tuple[Array, Any]:
    x, _, _, _, b2, w3, b3, first, second = (primal.value for primal in primals)
    wide = _with_one(x, first)
    out, hidden = _forth(wide, first, second, b2, w3, b3, keep=True)
    wanted = _Wanted(x.shape[1], primals[0].perturbed, any(primal.perturbed for primal in primals[1:7]))
    return out, (wide, hidden, first, second, b2, w3, wanted)


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Wanted:
    columns: int
    inputs: bool
    weights: bool


def _net_back(kept: Any, dy: Any) -> tuple[Array | None, ...]:
    x, hidden, first, second, b2, w3, wanted = kept
    saved = x, hidden, first, second, w3
    dx, grads = None, (None,) * 6
    if not isinstance(dy, jax.custom_derivatives.SymbolicZero):
        if wanted.inputs:
            dx = _back_inputs(*saved, dy)[:, : wanted.columns]
        if wanted.weights:
            dw1, db1, dw2, db2, dw3 = _back(*saved, b2, dy, wanted.columns)
            grads = (dw1, db1, dw2.astype(jnp.float32), db2, dw3, jnp.sum(dy, axis=0))
    return dx, *grads, None, None


_net.defvjp(_net_forth, _net_back, symbolic_zeros=True)


def _with_one(x: Array, first: Array) -> Array:
    """The inputs, a 1, and zeros up to the height of the copied first layer."""
    rows, columns = x.shape
    one = jnp.ones((rows, 1), x.dtype)
    return half(jnp.concatenate([x, one, jnp.zeros((rows, first.shape[0] - columns - 1), x.dtype)], axis=1))


def _only_active(x: Any, w3: Any) -> bool:
    """Whether of the second layer only 1 or 0 is kept, where it is active or not: enough for one output, see
    `_back_long`, and faster for a long batch."""
    return w3.shape[1] == 1 and x.shape[0] >= tiles.BLOCKS.long


# ------------------------------------------------------------------------------------------------- forth


def _forth(x: Array, first: Array, second: Array, b2: Array, w3: Array, b3: Array, keep: bool) -> tuple[Array, ...]:
    shapes = [jax.ShapeDtypeStruct((x.shape[0], w3.shape[1]), jnp.float32)]
    if keep:
        shapes.append(jax.ShapeDtypeStruct((x.shape[0], w3.shape[0]), tiles.BLOCKS.operand))
    rows, warps, stages = _forth_cut(x, w3)
    call = kernel_call(_forth_kernel, x.shape[0] // rows, shapes, warps, stages)
    return call(x, first, second, b2, w3, b3[None])


def _forth_cut(x: Any, w3: Any) -> tuple[int, int, int]:
    """Rows for one program, its warps and its stages."""
    blocks = tiles.BLOCKS
    return blocks.long_forth if _only_active(x, w3) else (blocks.rows, blocks.warps, blocks.stages)


def _forth_kernel(
    x_ref: Any, first_ref: Any, second_ref: Any, b2_ref: Any, w3_ref: Any, b3_ref: Any, y_ref: Any, *kept: Any
) -> None:
    """A block of rows: its output, and what is to be kept of the second layer."""
    rows = _forth_cut(x_ref, w3_ref)[0]
    begin = pl.program_id(0) * rows
    here = pl.ds(begin, rows)
    x, b2 = x_ref[here, :], b2_ref[...][None]
    w3, b3 = half(read(w3_ref, 0, w3_ref.shape[0])), read(b3_ref, 0, 1)  # asked for before they are needed

    def add(i: Array, total: Array) -> Array:
        units = pl.ds(i * tiles.BLOCKS.depth, tiles.BLOCKS.depth)
        return total + dot(half(jax.nn.relu(dot(x, first_ref[:, units]))), second_ref[units, :])

    total = jnp.zeros((rows, second_ref.shape[1]), jnp.float32)
    total = jax.lax.fori_loop(0, second_ref.shape[0] // tiles.BLOCKS.depth, add, total)
    total += b2
    hidden = half(jax.nn.relu(total))
    if kept:
        kept[0][here, :] = (total > 0).astype(tiles.BLOCKS.operand) if _only_active(x_ref, w3_ref) else hidden
    write(y_ref, begin, dot(hidden, w3) + b3)


# -------------------------------------------------------------------------------------------------- back


def _back(
    x: Array, kept: Array, first: Array, second: Array, w3: Array, b2: Array, dy: Array, inputs: int
) -> tuple[Array, ...]:
    """Gradients of w1, b1, w2, b2 and w3."""
    if _only_active(x, w3):
        return _back_long(x, kept, first, second, w3, b2, dy, inputs)
    return *_back_weights(x, kept, first, second, w3, dy, inputs), *_back_last(kept, w3, dy)


def _back_weights(x: Array, hidden: Array, first: Array, second: Array, w3: Array, dy: Array, inputs: int) -> Any:
    """Gradients of w1, b1 and w2."""
    width = second.shape[1]
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((inputs, width), (width,))]
    shapes.append(jax.ShapeDtypeStruct(second.shape, tiles.BLOCKS.gradient))
    programs = second.shape[0] // tiles.BLOCKS.units
    call = kernel_call(_back_weights_kernel, programs, shapes, tiles.BLOCKS.back_warps, tiles.BLOCKS.back_stages)
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
    size, width, outputs = tiles.BLOCKS.units, second_ref.shape[1], dy_ref.shape[1]
    some = tiles.BLOCKS.more if outputs == 1 and x_ref.shape[1] <= 64 else tiles.BLOCKS.some
    begin = pl.program_id(0) * size
    units = pl.ds(begin, size)
    wide = min(tiles.BLOCKS.wide, width)
    parts = [pl.ds(low, wide) for low in range(0, width, wide)]
    w1, w2 = first_ref[:, units], [second_ref[units, part] for part in parts]
    top_dy, top_w3 = top(dy_ref), top(w3_ref)  # after the loads above, which take longer
    if outputs == 1:  # dy then goes where it costs least: to the rows of this layer, not to those of the next
        w3 = [half(w3_ref[part, 0] / top_w3)[None] for part in parts]
    else:
        w3 = [half(read(w3_ref, part.start, wide) / top_w3) for part in parts]

    def add(i: Array, sums: Any) -> Any:
        d1, dw2 = sums
        rows = pl.ds(i * some, some)
        x = x_ref[rows, :]
        active = jax.nn.relu(dot(w1, x, (0, 1)))  # [units, rows]
        dy = (dy_ref[rows, 0] if outputs == 1 else read(dy_ref, i * some, some)) / top_dy
        share: Any = dy[None] if outputs == 1 else 1.0
        shared = half(active * share)
        back, grown = jnp.zeros(active.shape, jnp.float32), []
        for part, w2_part, w3_part, total in zip(parts, w2, w3, dw2, strict=True):
            through = w3_part if outputs == 1 else half(dot(half(dy), w3_part, (1, 1)))
            path = jnp.where(hidden_ref[rows, part] > 0, through, jnp.zeros((), tiles.BLOCKS.operand))
            grown.append(total + dot(shared, path))
            back += dot(w2_part, path, (1, 1))
        return d1 + dot(half(jnp.where(active > 0, back * share, 0.0)), x), tuple(grown)

    zeros = jnp.zeros((size, x_ref.shape[1]), jnp.float32), (jnp.zeros((size, wide), jnp.float32),) * len(parts)
    d1, dw2 = jax.lax.fori_loop(0, x_ref.shape[0] // some, add, zeros)
    _write_first(dw1_ref, db1_ref, begin, d1 * (top_dy * top_w3))
    for part, total in zip(parts, dw2, strict=True):
        dw2_ref[units, part] = (total * (top_dy * top_w3)).astype(dw2_ref.dtype)


def _write_first(dw1_ref: Any, db1_ref: Any, begin: Any, d1: Array) -> None:
    """Gradients of the first layer, [units, inputs and 1]: its weights, and its bias as the weight of the 1."""
    unit, column, ones = begin + jnp.arange(d1.shape[0])[:, None], jnp.arange(d1.shape[1])[None], dw1_ref.shape[0]
    gpu.store(dw1_ref.at[column, unit], d1, mask=jnp.broadcast_to(column < ones, d1.shape))
    db1_ref[pl.ds(begin, d1.shape[0])] = jnp.sum(jnp.where(column == ones, d1, 0.0), axis=1)


def _back_last(hidden: Array, w3: Array, dy: Array) -> Any:
    """Gradients of b2 and w3."""
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (w3.shape[:1], w3.shape)]
    kernel = _back_last_kernel if dy.shape[1] > 1 else _back_one_kernel
    return kernel_call(kernel, w3.shape[0] // tiles.BLOCKS.columns, shapes, 4, 3)(hidden, w3, dy)


def _back_one_kernel(hidden_ref: Any, w3_ref: Any, dy_ref: Any, db2_ref: Any, dw3_ref: Any) -> None:
    """A block of the second layer's units, with their biases and the weights from them to a single output."""
    units = pl.ds(pl.program_id(0) * tiles.BLOCKS.columns, tiles.BLOCKS.columns)
    w3 = w3_ref[units, 0]

    def add(i: Array, sums: Any) -> Any:
        rows = pl.ds(i * tiles.BLOCKS.columns, tiles.BLOCKS.columns)
        hidden, dy = hidden_ref[rows, units].astype(jnp.float32), dy_ref[rows, 0][:, None]
        return sums[0] + jnp.where(hidden > 0, dy, 0.0), sums[1] + hidden * dy

    zeros = (jnp.zeros((tiles.BLOCKS.columns, tiles.BLOCKS.columns), jnp.float32),) * 2
    active, weighted = jax.lax.fori_loop(0, hidden_ref.shape[0] // tiles.BLOCKS.columns, add, zeros)
    db2_ref[units] = jnp.sum(active, axis=0) * w3
    dw3_ref[units, 0] = jnp.sum(weighted, axis=0)


def _back_last_kernel(hidden_ref: Any, w3_ref: Any, dy_ref: Any, db2_ref: Any, dw3_ref: Any) -> None:
    """The same for several outputs."""
    begin = pl.program_id(0) * tiles.BLOCKS.columns
    units = pl.ds(begin, tiles.BLOCKS.columns)
    top_dy, top_w3 = top(dy_ref), top(w3_ref)
    w3 = half(read(w3_ref, begin, tiles.BLOCKS.columns) / top_w3)

    def add(i: Array, sums: Any) -> Any:
        hidden = hidden_ref[pl.ds(i * tiles.BLOCKS.rows, tiles.BLOCKS.rows), units]
        dy = half(read(dy_ref, i * tiles.BLOCKS.rows, tiles.BLOCKS.rows) / top_dy)
        return sums[0] + jnp.where(hidden > 0, dot(dy, w3, (1, 1)), 0.0), sums[1] + dot(hidden, dy, (0, 0))

    zeros = jnp.zeros((tiles.BLOCKS.rows, tiles.BLOCKS.columns), jnp.float32), jnp.zeros(w3.shape, jnp.float32)
    db2, dw3 = jax.lax.fori_loop(0, hidden_ref.shape[0] // tiles.BLOCKS.rows, add, zeros)
    db2_ref[units] = jnp.sum(db2, axis=0) * (top_dy * top_w3)
    write(dw3_ref, begin, dw3 * top_dy)


def _back_long(
    x: Array, active: Array, first: Array, second: Array, w3: Array, b2: Array, dy: Array, inputs: int
) -> Any:
    """Gradients of w1, b1, w2, b2 and w3 for one output. With h the first layer, a what was kept of the second one and
    sums over the rows, M = Σ dy h a and m = Σ dy a, these are M w3 for w2, m w3 for b2 and Σ w2 M + b2 m for w3: a
    program reads a, which is fed to its products as it is, and w3 need not be in its loop."""
    units, _, warps, stages = _long_cut(x)
    width, programs = second.shape[1], second.shape[0] // units
    tops = [largest(dy), largest(w3)]
    # Made out here: read by the kernel it goes to the products through shared memory, made in it through registers,
    # of which it would fill a quarter. For the same reason w2 is read where it is needed, at the end.
    through = half(second.astype(jnp.float32) * (w3[:, 0] / tops[1]))
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((inputs, width), (width,), (programs, width))]
    shapes.append(jax.ShapeDtypeStruct(second.shape, tiles.BLOCKS.gradient))
    call = kernel_call(_back_long_kernel, programs, shapes, warps, stages)
    dw1, db1, dw3, dw2 = call(x, active, first, second, through, w3, dy, jnp.stack(tops))
    columns = min(tiles.BLOCKS.long_columns, width)
    call = kernel_call(_sum_kernel, width // columns, [jax.ShapeDtypeStruct((width,), jnp.float32)], 4, 3)
    (m,) = call(active, dy)
    return dw1, db1, dw2, m * w3[:, 0], (jnp.sum(dw3, axis=0) + b2 * m)[:, None]


def _long_cut(x: Any) -> tuple[int, int, int, int]:
    return tiles.BLOCKS.long_back if x.shape[1] <= 64 else tiles.BLOCKS.long_wide


def _back_long_kernel(
    x_ref: Any,
    active_ref: Any,
    first_ref: Any,
    second_ref: Any,
    through_ref: Any,
    w3_ref: Any,
    dy_ref: Any,
    tops_ref: Any,
    dw1_ref: Any,
    db1_ref: Any,
    dw3_ref: Any,
    dw2_ref: Any,
) -> None:
    """A block of the first layer's units; of w3's gradient its part."""
    size, some, _, _ = _long_cut(x_ref)
    begin = pl.program_id(0) * size
    units = pl.ds(begin, size)
    w1, through = first_ref[:, units], through_ref[units, :]
    top_dy, top_w3 = tops_ref[0], tops_ref[1]

    def add(i: Array, sums: Any) -> Any:
        d1, grown = sums
        rows = pl.ds(i * some, some)
        x, active, dy = x_ref[rows, :], active_ref[rows, :], (dy_ref[rows, 0] / top_dy)[None]
        hidden = jax.nn.relu(dot(w1, x, (0, 1)))  # [units, rows]
        grown += dot(half(hidden * dy), active)
        back = jnp.where(hidden > 0, dot(through, active, (1, 1)) * dy, 0.0)
        return d1 + dot(half(back), x), grown

    zeros = jnp.zeros((size, x_ref.shape[1]), jnp.float32), jnp.zeros((size, second_ref.shape[1]), jnp.float32)
    d1, grown = jax.lax.fori_loop(0, x_ref.shape[0] // some, add, zeros)
    _write_first(dw1_ref, db1_ref, begin, d1 * (top_dy * top_w3))
    grown *= top_dy
    dw2_ref[units, :] = (grown * w3_ref[:, 0][None]).astype(dw2_ref.dtype)
    dw3_ref[pl.program_id(0), :] = jnp.sum(grown * second_ref[units, :].astype(jnp.float32), axis=0)


def _sum_kernel(active_ref: Any, dy_ref: Any, m_ref: Any) -> None:
    """A block of the second layer's units: dy of the rows in which they are active."""
    columns = min(tiles.BLOCKS.long_columns, m_ref.shape[0])
    units = pl.ds(pl.program_id(0) * columns, columns)

    def add(i: Array, total: Array) -> Array:
        rows = pl.ds(i * tiles.BLOCKS.rows, tiles.BLOCKS.rows)
        return total + active_ref[rows, units].astype(jnp.float32) * dy_ref[rows, 0][:, None]

    zeros = jnp.zeros((tiles.BLOCKS.rows, columns), jnp.float32)
    m_ref[units] = jnp.sum(jax.lax.fori_loop(0, active_ref.shape[0] // tiles.BLOCKS.rows, add, zeros), axis=0)


def _back_inputs(x: Array, hidden: Array, first: Array, second: Array, w3: Array, dy: Array) -> Array:
    """The gradient of the inputs."""
    shapes = [jax.ShapeDtypeStruct(x.shape, jnp.float32)]
    call = kernel_call(_back_inputs_kernel, x.shape[0] // tiles.BLOCKS.rows, shapes, tiles.BLOCKS.warps, 2)
    return call(x, hidden, first, second, w3, dy)[0]


def _back_inputs_kernel(
    x_ref: Any, hidden_ref: Any, first_ref: Any, second_ref: Any, w3_ref: Any, dy_ref: Any, dx_ref: Any
) -> None:
    """A block of rows."""
    begin = pl.program_id(0) * tiles.BLOCKS.rows
    here = pl.ds(begin, tiles.BLOCKS.rows)
    x, top_dy, top_w3 = x_ref[here, :], top(dy_ref), top(w3_ref)
    dy, w3 = half(read(dy_ref, begin, tiles.BLOCKS.rows) / top_dy), half(read(w3_ref, 0, w3_ref.shape[0]) / top_w3)
    path = half(jnp.where(hidden_ref[here, :] > 0, dot(dy, w3, (1, 1)), 0.0))

    def add(i: Array, dx: Array) -> Array:
        units = pl.ds(i * tiles.BLOCKS.depth, tiles.BLOCKS.depth)
        w1 = first_ref[:, units]
        back = jnp.where(dot(x, w1) > 0, dot(path, second_ref[units, :], (1, 1)), 0.0)
        return dx + dot(half(back), w1, (1, 1))

    dx = jax.lax.fori_loop(0, second_ref.shape[0] // tiles.BLOCKS.depth, add, jnp.zeros(x.shape, jnp.float32))
    dx_ref[here, :] = dx * (top_dy * top_w3)
