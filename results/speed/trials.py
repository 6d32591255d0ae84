"""Three trials on a GPU whose numbers are in results/speed/seen.json. Each prints what it measures.

python results/speed/trials.py packs [--toy]     small and large packs; under XLA_FLAGS, what XLA's switches bring
python results/speed/trials.py larger [--toy]    networks that no kernel of `winnow.fused` takes, in half floats and not
python results/speed/trials.py blocks [--toy]    the way forth and back with the work cut up otherwise (`fused.Blocks`)

--toy is tiny, and works on a CPU: whether the script does.
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

from winnow import fused
from winnow.methods import make_algorithm, method, resized
from winnow.pack import Pack
from winnow.runs import Run

CUTS: dict[str, list[dict[str, int]]] = {
    "forth": [{}, {"depth": 64}, {"depth": 16}, {"rows": 64}, {"rows": 64, "warps": 4}, {"stages": 2}],
    "back": [{}, {"more": 32}, {"more": 64, "wide": 128}, {"back_stages": 2}, {"units": 64}],
}


def told(what: str, made: Any, turn: int) -> None:
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
        data, count = [walk(rows, obs, actions)], min(runs, 2) if toy else runs
        make = lambda data=data, name=algorithm, count=count: pack(data, name, "dw-aw", count, width=width)  # noqa: E731
        told(f"{algorithm} dw-aw, {obs} observations", make, 2 if toy else 100)


def larger(toy: bool) -> None:
    rows = 2_000 if toy else 200_000
    precisions: tuple[Any, ...] = ("default",) if toy else ("half", "default")
    data, hopper = walk(rows, 60, 9), walk(rows)
    learner: Any = make_algorithm("cql", "kitchen")
    learner = resized(learner, (16,) * 3) if toy else learner
    for name, runs in (("dw-aw", 18), ("uniform", 27)):
        sampler, weighter = method(name, "cql")
        some = [Run(data, learner, sampler, weighter, seed, f"run{seed}") for seed in range(2 if toy else runs)]
        for precision in precisions:
            make = lambda some=some, how=precision: Pack(some, 1_000_000, BATCH, precision=how)  # noqa: E731
            told(f"Kitchen's cql {name}", make, 2 if toy else 20)
    for width in (16,) if toy else (512, 1024):
        for precision in precisions:
            how = {"width": width, "precision": precision}
            make = lambda how=how: pack([hopper], "iql", "dw-aw", 2 if toy else 32, **how)  # noqa: E731
            told(f"iql dw-aw, 2 x {width}", make, 2 if toy else 50)


def blocks(toy: bool) -> None:
    """Networks of 15 inputs with CQL's long batches, and of 127 inputs, against numpy."""
    width, nets, rows = (128, 2, 128) if toy else (256, 128, 7_680)
    rng = np.random.default_rng(0)

    def half(*shape: int, scale: float = 1.0) -> Any:
        return jnp.asarray((scale * rng.normal(size=(nets, *shape))).astype(np.float16))

    for inputs in (16, 128):
        x, first, second = (
            half(rows, inputs),
            half(inputs, width, scale=(2 / inputs) ** 0.5),
            half(width, width, scale=0.09),
        )
        hidden, w3 = jnp.maximum(half(rows, width), 0), half(width, 1, scale=0.06).astype(jnp.float32)
        b2, b3, dy = jnp.zeros((nets, width)), jnp.zeros((nets, 1)), half(rows, 1).astype(jnp.float32)
        forth: Any = lambda *given: fused._forth(*given, keep=True)  # noqa: E731
        weights: Any = fused._back_weights
        back: Any = lambda *given, made=weights, count=inputs - 2: made(*given, count)  # noqa: E731
        ways = {"forth": (forth, (x, first, second, b2, w3, b3)), "back": (back, (x, hidden, first, second, w3, dy))}
        for name, (kernel, given) in ways.items():
            for cut in CUTS[name][:1] if toy else CUTS[name]:
                fused.BLOCKS = dataclasses.replace(fused.Blocks(), interpret=toy, **cut)
                jax.clear_caches()  # a traced kernel does not know by what it was cut
                try:
                    run = jax.jit(jax.vmap(kernel)).lower(*given).compile()
                    out = jax.block_until_ready(run(*given))
                except jax.errors.JaxRuntimeError as error:
                    print(f"{inputs - 1} inputs, {name} {cut}: {str(error)[:90]}", flush=True)
                    continue
                began = time.perf_counter()
                jax.block_until_ready([run(*given) for _ in range(20)][-1])
                off = f", {distance(out[2][0], given):.4f} from numpy's" if name == "back" else ""
                spent = (time.perf_counter() - began) / 20
                print(f"{inputs - 1} inputs, {name} {cut}: {1e3 * spent:.3f} ms{off}", flush=True)


def distance(gradient: Any, given: Any) -> float:
    """Of the second layer's weights, for the first network."""
    x, hidden, first, _, w3, dy = (np.asarray(each[0], np.float32) for each in given)
    exact = np.maximum(x @ first, 0).T @ ((hidden > 0) * (dy @ w3.T))
    return float(np.linalg.norm(np.asarray(gradient, np.float32) - exact) / np.linalg.norm(exact))


def main() -> None:
    trials = {"packs": packs, "larger": larger, "blocks": blocks}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trial", choices=trials)
    parser.add_argument("--toy", action="store_true")
    words = parser.parse_args()
    trials[words.trial](words.toy)


if __name__ == "__main__":
    main()
