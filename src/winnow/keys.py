"""Random keys for compiled loops: JAX's Threefry, the same bits, written without inner loops.

On the CPU JAX compiles every draw to a small loop of its own, and a training step of small networks then spends more
time on its dozen of loops than on what it draws. Written out, a draw is one fused kernel on every backend.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winnow.types import Array

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


def _threefry(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """Threefry-2x32 with 20 rounds (Salmon et al., 2011) of the counter (high, low) under a key [2]."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ PARITY)
    x, y = high + schedule[0], low + schedule[1]
    for block in range(5):
        for turn in ROTATIONS[block % 2]:
            x = x + y
            y = (y << np.uint32(turn)) | (y >> np.uint32(32 - turn))
            y = x ^ y
        x = x + schedule[(block + 1) % 3]
        y = y + schedule[(block + 2) % 3] + np.uint32(block + 1)
    return x, y


def _counters(shape: tuple[int, ...]) -> tuple[Array, Array]:
    size = int(np.prod(shape, dtype=np.int64))
    if size >= 2**32:
        raise ValueError("more than 2³² draws in one call")
    low = jax.lax.iota(jnp.uint32, size).reshape(shape)
    return jnp.zeros_like(low), low


def _seed(seed: Array) -> Array:
    low = seed.astype(jnp.uint32)
    high = jax.lax.shift_right_logical(seed, 32).astype(jnp.uint32) if seed.dtype.itemsize == 8 else jnp.zeros_like(low)
    return jnp.stack([high, low])


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return jnp.stack(_threefry(key, *_counters(shape)), axis=-1)


def _random_bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    x, y = _threefry(key, *_counters(shape))
    if width == 64:
        return (x.astype(jnp.uint64) << np.uint64(32)) | y.astype(jnp.uint64)
    return (x ^ y).astype({8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}[width])


def _fold_in(key: Array, data: Any) -> Array:
    high, low = _seed(jnp.asarray(data, jnp.uint32))
    return jnp.stack(_threefry(key, high, low))


@cache
def _implementation() -> Any:
    import jax.extend.random

    return jax.extend.random.define_prng_impl(
        key_shape=(2,), seed=_seed, split=_split, random_bits=_random_bits, fold_in=_fold_in, name="winnow", tag="wnw"
    )


def key(seed: int) -> Array:
    """A key that every `jax.random` function takes, with the draws that `jax.random.key(seed)` gives."""
    return jax.random.key(seed, impl=_implementation())


def wrap(data: Array) -> Array:
    """Keys from their raw words."""
    return jax.random.wrap_key_data(data, impl=_implementation())
