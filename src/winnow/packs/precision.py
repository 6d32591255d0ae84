"""What networks multiply in on this device, and what its compiler is told."""

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
"""What networks multiply in. float32: float32 throughout, the reference. default: as the device multiplies float32
unless it is told otherwise: TF32 on NVIDIA GPUs, float32 on a CPU. half: the kernels of `winnow.nets.kernels`, the
products of `winnow.nets.half` for larger networks, default for smaller ones. Parameters, Adam and sums are float32 in
all."""


FEWEST_LANES = 8
"""With fewer lanes the fused kernels have too little work to fill a GPU, and are not chosen."""


def best_precision(lanes: int) -> Precision:
    """$WINNOW_PRECISION, or the fastest here whose results match the reference."""
    given: Any = os.environ.get("WINNOW_PRECISION") or None
    if given not in (None, *get_args(Precision)):
        raise BadInput(f"WINNOW_PRECISION is {given!r}; choose one of {', '.join(get_args(Precision))}")
    if given == "half" or (given is None and lanes >= FEWEST_LANES and jax.default_backend() == "gpu"):
        from winnow.nets import kernels  # Pallas takes a second to import

        if kernels.available():
            return "half"
        if given:
            raise BadInput("WINNOW_PRECISION is half, which needs an NVIDIA GPU of compute capability 9; leave it out")
    return given or "default"


def where_right(precision: Precision, learners: Any) -> Precision:
    """The same, but not half where the fused kernels are wrong on this device for a network of these learners."""
    if precision != "half":
        return precision
    sizes = sorted(sizes_with_copies(learners))
    with ThreadPoolExecutor(max(1, len(sizes))) as pool:  # each is compiled first
        right = list(pool.map(lambda size: kernels_agree(*size), sizes))
    for (inputs, width, outputs), good in zip(sizes, right, strict=True):
        if not good:
            which = f"a network of {inputs} inputs, 2 × {width} units and {outputs} outputs"
            ask = "Please report it, with the GPU and the version of jax"
            say(f"the fast kernels fail or are wrong here for {which}: slower ones are used. {ask}")
            return "default"
    return precision


@cache
def side_by_side() -> dict[str, Any]:
    """Options for a GPU's compiler with which kernels of one update that don't need each other run at the same time:
    the small ones of a small pack then fill the chip. Left alone where XLA_FLAGS has a word about such graphs."""
    if jax.default_backend() != "gpu" or "command_buffer" in os.environ.get("XLA_FLAGS", ""):
        return {}
    return if_known({"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"})


def if_known(options: dict[str, Any]) -> dict[str, Any]:
    """Options for the compiler; none where its version does not know them."""
    try:
        jax.jit(jnp.negative, compiler_options=options)(0.0)
    except jax.errors.JaxRuntimeError as error:
        if out_of_memory(error):
            raise
        return {}
    return options


def keep_programs() -> None:
    """Let JAX keep compiled programs for accelerators on disk, in the data folder, so that the next call need not
    compile them again. Left alone where JAX's own setting says where, and with WINNOW_KEEP_PROGRAMS=0."""
    if jax.default_backend() == "cpu" or os.environ.get("WINNOW_KEEP_PROGRAMS") == "0":
        return
    if not jax.config.values.get("jax_compilation_cache_dir"):
        jax.config.update("jax_compilation_cache_dir", str(home() / "programs"))
