"""Three small measurements on a GPU. Their printed numbers were copied to results/speed/seen.json.

python experiments/speed/trials.py packs [--toy]   small and large packs; XLA_FLAGS sets XLA's switches
python experiments/speed/trials.py larger [--toy]  large networks, with and without half floats
python experiments/speed/trials.py blocks [--toy]  kernels with other block sizes (`tiles.Blocks`)

--toy is tiny and works on a CPU, to see whether the script runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from accelerator import measure, ready  # pyright: ignore
from shapes import BATCH, pack, walk  # pyright: ignore

from winnow.errors import run_script
from winnow.methods import make_algorithm, method, resized
from winnow.nets import kernels, kernels_backward, tiles
from winnow.packs.pack import Pack
from winnow.packs.run import Run

SHORT = {"long_batch": 1_000_000}  # no batch is that long, so all take the path of short ones
CUTS: dict[str, list[dict[str, Any]]] = {
    "forward": [{}, SHORT, {"depth": 64}, *({"long_forward": cut} for cut in ((64, 4, 4), (128, 8, 4), (128, 8, 3)))],
    "backward": [{}, SHORT, SHORT | {"row_block_one_output": 32}]
    + [
        {"long_backward": cut, "long_backward_wide": cut}
        for cut in ((128, 64, 8, 2), (128, 32, 8, 3), (64, 64, 4, 2), (64, 32, 4, 3), (64, 32, 4, 4), (64, 16, 4, 3))
    ],
}


def measure_and_print(what: str, made: Any, turn: int) -> None:
    packed, _ = ready(made, turn)
    rate = measure(packed, turn, 1.2)["run-steps/s"]
    print(f"{what} x {len(packed.runs)}, {packed.precision}: {rate:,.0f} run-steps/s", flush=True)


def packs(toy: bool) -> None:
    rows, width = (2_000, 16) if toy else (200_000, 256)
    for algorithm, runs, obs, actions in (
        ("iql", 16, 11, 3),
        ("cql", 16, 45, 24),
        ("iql", 1, 11, 3),
        ("iql", 512, 11, 3),
    ):
        data = [walk(rows, obs, actions)]
        count = min(runs, 2) if toy else runs
        make = lambda data=data, name=algorithm, count=count: pack(data, name, "dw-aw", count, width=width)  # noqa: E731
        measure_and_print(f"{algorithm} dw-aw, {obs} observations", make, 2 if toy else 100)


def larger(toy: bool) -> None:
    rows = 2_000 if toy else 200_000
    precisions: tuple[Any, ...] = ("default",) if toy else ("half", "default")
    data = walk(rows, 60, 9)
    hopper = walk(rows)
    learner: Any = make_algorithm("cql", "kitchen")
    learner = resized(learner, (16,) * 3) if toy else learner
    for name, runs in (("dw-aw", 18), ("uniform", 27)):
        sampler, weighter = method(name, "cql")
        runs_of_pack = [Run(data, learner, sampler, weighter, seed, f"run{seed}") for seed in range(2 if toy else runs)]
        for precision in precisions:
            make = lambda runs=runs_of_pack, how=precision: Pack(runs, 1_000_000, BATCH, precision=how)  # noqa: E731
            measure_and_print(f"Kitchen's cql {name}", make, 2 if toy else 20)
    for width in (16,) if toy else (512, 1024):
        for precision in precisions:
            how = {"width": width, "precision": precision}
            make = lambda how=how: pack([hopper], "iql", "dw-aw", 2 if toy else 32, **how)  # noqa: E731
            measure_and_print(f"iql dw-aw, 2 x {width}", make, 2 if toy else 50)


def blocks(toy: bool) -> None:
    """Networks of 15, 63 and 127 inputs with CQL's long batches, against numpy."""
    width, nets, rows = (128, 2, 1_024) if toy else (256, 128, 7_936)
    rng = np.random.default_rng(0)

    def half(*shape: int, scale: float = 1.0) -> Any:
        return jnp.asarray((scale * rng.normal(size=(nets, *shape))).astype(np.float16))

    def back(x: Any, *given: Any) -> Any:
        return kernels_backward.backward(x, *given, inputs=x.shape[1] - 1)

    for inputs in (16, 64, 128):
        x = half(rows, inputs).at[..., -1].set(1)
        first = half(inputs, width, scale=(2 / inputs) ** 0.5)
        second = half(width, width, scale=0.09)
        w3 = half(width, 1, scale=0.06).astype(jnp.float32)
        b2 = half(width, scale=0.1).astype(jnp.float32)
        b3 = jnp.zeros((nets, 1))
        dy = half(rows, 1).astype(jnp.float32)
        for way, cuts in CUTS.items():
            for cut in cuts[:2] if toy else cuts:
                tiles.BLOCKS = dataclasses.replace(tiles.Blocks(), interpret=toy, **cut)
                jax.clear_caches()  # the cache of traced kernels ignores the block sizes
                try:
                    forward, given = compiled(
                        lambda *given: kernels._forward(*given, keep=True), x, first, second, b2, w3, b3
                    )
                    kept = forward(*given)[1]
                    off = ""
                    run = forward
                    if way == "backward":
                        run, given = compiled(back, x, kept, first, second, w3, b2, dy)
                        off = f", {distance(run(*given), given):.4f} from numpy's"
                except jax.errors.JaxRuntimeError as error:
                    print(f"{inputs - 1} inputs, {way} {cut}: {str(error)[:90]}", flush=True)
                    continue
                spent = min(seconds(run, given) for _ in range(3))
                print(f"{inputs - 1} inputs, {way} {cut}: {1e3 * spent:.3f} ms{off}", flush=True)


def compiled(kernel: Any, *given: Any) -> tuple[Any, Any]:
    return jax.jit(jax.vmap(kernel)).lower(*given).compile(), given


def seconds(run: Any, given: Any, times: int = 10) -> float:
    jax.block_until_ready(run(*given))
    began = time.perf_counter()
    jax.block_until_ready([run(*given) for _ in range(times)][-1])
    return (time.perf_counter() - began) / times


def distance(gradients: Any, given: Any) -> float:
    """The largest relative error of any gradient, for the first network."""
    x, kept, first, second, w3, b2, dy = (np.asarray(each[0], np.float32) for each in given)
    hidden = np.maximum(x @ first, 0)
    path = (kept > 0) * (dy @ w3.T)
    d1 = x.T @ ((path @ second.T) * (hidden > 0))
    dw3 = np.maximum(hidden @ second + b2, 0).T @ dy
    exact = d1[:-1], d1[-1], hidden.T @ path, path.sum(axis=0), dw3
    pairs = ((np.asarray(got[0], np.float32), right) for got, right in zip(gradients, exact, strict=True))
    return float(max(np.linalg.norm(got - right) / np.linalg.norm(right) for got, right in pairs))


def main() -> None:
    trials = {"packs": packs, "larger": larger, "blocks": blocks}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trial", choices=trials)
    parser.add_argument("--toy", action="store_true")
    args = parser.parse_args()
    trials[args.trial](args.toy)


if __name__ == "__main__":
    run_script(main)
