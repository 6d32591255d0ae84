"""Keys without inner loops give the draws that JAX's own keys give."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from winnow import keys

DRAWS = {
    "uniform": lambda key: jax.random.uniform(key, (5, 3)),
    "normal after fold_in": lambda key: jax.random.normal(jax.random.fold_in(key, 77), (100,)),
    "randint after split": lambda key: jax.random.randint(jax.random.split(key, 3)[2], (50,), 0, 1_000_003),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.3, (20,)),
    "bytes": lambda key: jax.random.bits(key, (7,), "uint8"),
    "a grid of keys": lambda key: jax.random.uniform(jax.random.split(key, (2, 2))[1, 0]),
    "under vmap": lambda key: jax.vmap(lambda k: jax.random.normal(k, (4,)))(jax.random.split(key, 3)),
}


@pytest.mark.parametrize("seed", [0, 12345, 2**31 - 1])
@pytest.mark.parametrize("draw", DRAWS)
def test_draws_equal_those_of_jax(seed, draw):
    np.testing.assert_array_equal(DRAWS[draw](keys.key(seed)), DRAWS[draw](jax.random.key(seed)))
