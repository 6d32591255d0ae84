"""winnow on the CPU: what packing, weights and many rows cost, and d3rlpy beside it. All as ratios from one run.

python benchmarks/cpu.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from shapes import ACTION, BATCH, OBS, arrays, hopper_like, pack, rates, stepper, table

MEMORY = """
import sys
sys.path.insert(0, {folder!r})
from shapes import hopper_like, pack, stepper
packed = pack(hopper_like(1_000_000, mixtures=8), "iql", "dw-aw", 8, width=64)
stepper(packed)(50)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) / 2**20)
"""


def plain_loop() -> Callable[[int], None]:
    """IQL in the plainest JAX: one scan, uniform draws from four arrays, no packs, no tables, no weights."""
    from functools import partial

    import jax
    import jax.numpy as jnp

    from winnow.algorithms import IQL
    from winnow.types import Batch, Spec, Weights

    data = {name: jnp.asarray(column, jnp.float32) for name, column in arrays(100_000, 500, 0).items()}
    algorithm, key = IQL(), jax.random.key(0)
    state = jax.jit(lambda key: algorithm.init(key, Spec(OBS, ACTION, 100_000)))(key)
    uniform = jnp.full(BATCH, 1 / BATCH)

    @partial(jax.jit, static_argnames="count", donate_argnames="state")
    def steps(state: Any, key: Any, data: dict[str, Any], count: int) -> Any:
        def step(carry: Any, i: Any) -> tuple[Any, None]:
            state, key = carry
            key, k_draw, k_learn = jax.random.split(key, 3)
            row = jax.random.randint(k_draw, (BATCH,), 0, len(data["rewards"]))
            names = ("observations", "actions", "rewards", "next_observations", "terminals")
            obs, action, reward, following, terminal = (data[name][row] for name in names)
            batch = Batch(obs, action, reward, following, terminal, reward, obs, row, i, i / 1e6)
            return (algorithm.update(state, batch, Weights(uniform, uniform), k_learn)[0], key), None

        return jax.lax.scan(step, (state, key), jnp.arange(count))[0]

    carried = [state, key]

    def go(count: int) -> None:
        carried[:] = jax.block_until_ready(steps(carried[0], carried[1], data, count))

    return go


def d3rlpy_loops(names: tuple[str, ...]) -> dict[str, Callable[[int], None]]:
    """d3rlpy's own training loop on the same data, batch and sizes (its defaults: 2×256, batch 256)."""
    import warnings

    warnings.filterwarnings("ignore")
    import logging

    import structlog  # pyright: ignore[reportMissingImports]

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    import d3rlpy  # pyright: ignore[reportMissingImports]  # there only for benchmarks: see the Makefile

    columns = arrays(100_000, 500, 0)
    data = d3rlpy.dataset.MDPDataset(**{n: columns[n] for n in ("observations", "actions", "rewards", "terminals")})
    made = {
        "iql": d3rlpy.algos.IQLConfig(batch_size=BATCH),
        "td3bc": d3rlpy.algos.TD3PlusBCConfig(batch_size=BATCH),
        "cql": d3rlpy.algos.CQLConfig(batch_size=BATCH),
    }

    def loop(config: Any) -> Callable[[int], None]:
        algorithm = config.create(device="cpu")
        algorithm.build_with_dataset(data)

        def go(count: int) -> None:
            algorithm.fit(
                data,
                n_steps=count,
                n_steps_per_epoch=count,
                show_progress=False,
                save_interval=10**9,
                logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
            )

        return go

    return {name: loop(made[name]) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter turns: rougher numbers in a third of the time")
    parser.add_argument("--json", help="also write every number to this file")
    words = parser.parse_args()
    scale = 1 if words.quick else 3
    found: dict[str, Any] = {}

    data = hopper_like(100_000)
    speed = rates(
        {
            "plain scan, IQL": (plain_loop(), 60 * scale),
            "pack of one, IQL": (stepper(pack(data, "iql", "uniform", 1)), 60 * scale),
            "pack of one, IQL + DW": (stepper(pack(data, "iql", "dw-aw", 1)), 60 * scale),
            "pack of one, IQL + dual": (stepper(pack(data, "iql", "dual-aw", 1)), 60 * scale),
        },
        rounds=15,
    )
    base = speed["plain scan, IQL"]
    lines = [
        (name, f"{rate:.0f} steps/s", f"{base / rate:.2f} × the time of the plain scan") for name, rate in speed.items()
    ]
    table("one run, 2×256, batch 256", lines)
    weighted = speed["pack of one, IQL"] / speed["pack of one, IQL + DW"]
    print(f"  adding DW costs {weighted:.2f} × (goal: at most 1.6)")
    found["one run"] = speed | {"cost of DW": weighted}

    small = {
        f"{n} runs": (stepper(pack(data, "iql", "uniform", n, width=64)), 300 * scale // n) for n in (1, 2, 4, 8, 16)
    }
    speed = rates(small)
    lines = [
        (name, f"{int(name.split()[0]) * rate:.0f} run-steps/s", f"{speed['1 runs'] / rate:.1f} × the time of one")
        for name, rate in speed.items()
    ]  # fmt: skip
    table("packing small runs, IQL 2×64", lines)
    found["packing"] = speed

    names = ("iql", "td3bc", "cql")
    turns = {"iql": 60 * scale, "td3bc": 60 * scale, "cql": 8 * scale}
    peers = d3rlpy_loops(names)
    lines = []
    for name in names:
        pair = {"winnow": (stepper(pack(data, name, "uniform", 1)), turns[name]), "d3rlpy": (peers[name], turns[name])}
        speed = rates(pair, rounds=3)
        ratio = speed["winnow"] / speed["d3rlpy"]
        goal = 1.2 if name == "cql" else 2.5
        lines.append(
            (name, f"winnow {speed['winnow']:.0f}", f"d3rlpy {speed['d3rlpy']:.0f}", f"{ratio:.1f} × (goal: {goal})")
        )
        found[f"against d3rlpy, {name}"] = speed | {"ratio": ratio}
    table("against d3rlpy, steps/s", lines)

    from pathlib import Path

    script = MEMORY.format(folder=str(Path(__file__).parent))
    peak = float(subprocess.check_output([sys.executable, "-c", script], text=True))
    table("memory, 1M rows with 8 mixtures of them in one pack", [("peak", f"{peak:.2f} GB", "goal: under 1.5")])
    found["memory"] = {"peak, GB": peak}

    start = {}
    for name, code in (
        ("import winnow", "import winnow"),
        ("winnow --help", "from winnow.cli import main; main(['--help'])"),
    ):
        took = []
        for _ in range(5):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
            took.append(time.perf_counter() - began)
        start[name] = sorted(took)[2]
    table("starting", [(name, f"{seconds:.2f} s", "goal: under 0.5") for name, seconds in start.items()])
    found["starting"] = start

    if words.json:
        Path(words.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
