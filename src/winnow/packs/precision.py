"""The precision of matrix products on this device, and options for its compiler."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp

from winnow.data.folder import home
from winnow.errors import BadInput, out_of_memory
from winnow.nets import sizes_with_copies
from winnow.nets.selftest import kernels_agree
from winnow.system.progress import say

Precision = Literal["float32", "default", "half"]
"""The precision of matrix products. float32: float32 throughout, the reference. default: what the device does with
float32 by default: TF32 on NVIDIA GPUs, float32 on a CPU. half: the kernels of `winnow.nets.kernels`, the
products of `winnow.nets.half` for larger networks, default for smaller ones. Parameters, Adam and sums are float32 in
all."""

MIN_LANES = 8
"""The fused kernels are not chosen for fewer lanes, which would not fill a GPU."""


def best_precision(lanes: int) -> Precision:
    """$WINNOW_PRECISION, or the fastest here whose results match the reference."""
    given: Any = os.environ.get("WINNOW_PRECISION") or None
    if given not in (None, *get_args(Precision)):
        raise BadInput(f"WINNOW_PRECISION is {given!r}; choose one of {', '.join(get_args(Precision))}")
    if given == "half" or (given is None and lanes >= MIN_LANES and jax.default_backend() == "gpu"):
        from winnow.nets import kernels  # Pallas takes a second to import

        if kernels.available():
            return "half"
        if given:
            raise BadInput("WINNOW_PRECISION is half, which needs an NVIDIA GPU of compute capability 9; leave it out")
    return given or "default"


def verified_precision(precision: Precision, learners: Any) -> Precision:
    """The given precision; `default` in place of `half` if the fused kernels fail their self-test on this device for
    any network of these learners."""
    if precision != "half":
        return precision
    sizes = sorted(sizes_with_copies(learners))
    with ThreadPoolExecutor(max(1, len(sizes))) as pool:  # each size is compiled
        right = list(pool.map(lambda size: kernels_agree(*size), sizes))
    for (inputs, width, outputs), good in zip(sizes, right, strict=True):
        if not good:
            which = f"a network of {inputs} inputs, 2 × {width} units and {outputs} outputs"
            ask = "Please report this, with the GPU's name and the version of jax"
            say(f"the fast kernels fail their self-test here for {which}; using slower ones. {ask}")
            return "default"
    return precision


@cache
def side_by_side() -> dict[str, Any]:
    """Compiler options that let independent kernels of one update run at the same time on a GPU, so that the small
    kernels of a small pack fill it. Empty if XLA_FLAGS already sets how such graphs are scheduled."""
    if jax.default_backend() != "gpu" or "command_buffer" in os.environ.get("XLA_FLAGS", ""):
        return {}
    return if_known({"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"})


def if_known(options: dict[str, Any]) -> dict[str, Any]:
    """The given compiler options; none if this version of the compiler does not know them."""
    try:
        jax.jit(jnp.negative, compiler_options=options)(0.0)
    except jax.errors.JaxRuntimeError as error:
        if out_of_memory(error):
            raise
        return {}
    return options


def keep_programs() -> None:
    """Cache compiled programs for accelerators on disk, in the data folder. JAX's own setting of that folder wins;
    WINNOW_KEEP_PROGRAMS=0 turns the cache off."""
    if jax.default_backend() == "cpu" or os.environ.get("WINNOW_KEEP_PROGRAMS") == "0":
        return
    if not jax.config.values.get("jax_compilation_cache_dir"):
        jax.config.update("jax_compilation_cache_dir", str(home() / "programs"))
