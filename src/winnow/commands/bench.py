"""`winnow bench run`: a grid of datasets, algorithms, methods and seeds, trained in packs and played."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from winnow.errors import BadInput
from winnow.evaluation import Evaluation

if TYPE_CHECKING:
    from winnow.bench.results import Result
    from winnow.bench.todo import Todo


def run(
    suite: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SUITE")],
    /,
    *,
    out: Path,
    algorithms: str = "iql,cql,td3bc",
    methods: str = "uniform,aw,pf,dw-aw,dw-uniform,dual-aw",
    seeds: int = 3,
    steps: int = 1_000_000,
    batch_size: int = 256,
    chunk: int = 20_000,
    evaluation: Evaluation = Evaluation(),  # noqa: B008
    sweep: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FIELD=VALUE,…")] = (),
    environments: str = "",
    levels: str = "",
    shares: str = "",
    rows: int | None = None,
    version: str = "",
    largest_pack: int | None = None,
    shard: str = "1/1",
    retry_failed: bool = False,
    dry_run: bool = False,
    warm_up: bool = True,
    on: Literal["local", "ray"] = "local",
    ray_address: str = "auto",
    ray_shared: bool = False,
) -> None:
    """Train and play every dataset of a suite with every algorithm, method and seed, as few programs as possible.

    Each finished run is a small file in OUT/results. A second call does only what is missing, so a grid may be
    interrupted at any time, and results of several machines are merged by copying them into one folder.

    Args:
        suite: mixed, diverse, small, d4rl-mujoco, d4rl-antmaze, d4rl-kitchen, d4rl-adroit, paper (all 113), or names
            of datasets.
        out: A folder for the results, and for what is not finished.
        algorithms: Names with commas between them.
        methods: Names with commas between them.
        seeds: Runs of each kind, with seeds 0, 1, …
        steps: Updates of each run.
        batch_size: Rows drawn for each update.
        chunk: Updates between two checkpoints: what is lost at the most when the grid is killed.
        evaluation: When policies are played, and how much.
        sweep: Train with each of these values of a setting: weighter.lambda_k=0.2,1. Several are combined. It holds
            for every run that has the setting.
        environments: Only these: hopper,ant.
        levels: Only mixtures with these good policies (medium,expert), or D4RL's sets of these (medium-replay).
        shares: Only mixtures with these percentages: 1,5.
        rows: A trial with fewer rows; the same as NAME@ROWS.
        version: v2 for mixtures of D4RL's files instead of regenerated ones.
        largest_pack: Runs in one program at the most. Without it, what fits the device, up to 256 (on a CPU 16).
        shard: Which part of the grid to do, and of how many: 3/8. Every part may use the same folder, or its own.
        retry_failed: Train runs again whose result is that they failed.
        dry_run: Show the packs, what they take and what is done already, and train nothing.
        warm_up: Measure programs of every shape for a second, to say how long a dry run's packs would take.
        on: Where to train: on all devices of this machine, or on a Ray cluster, a pack on each of its GPUs (or nodes).
        ray_address: HOST:PORT of the cluster, or ray://HOST:PORT. Without it $RAY_ADDRESS, or this machine's cluster.
        ray_shared: OUT is the same folder on every node: a pack whose node dies goes on from its last checkpoint.
            Without it the pack begins anew.
    """
    from winnow.bench import local, plan, suites

    number, count = _part(shard)
    if evaluation.keep:
        raise BadInput("--evaluation.keep: a grid keeps results, not policies; `winnow train` keeps both")
    if largest_pack is not None and largest_pack < 1:
        raise BadInput(f"--largest-pack is {largest_pack}; it must be at least 1")
    entries = suites.chosen(
        suites.entries(suite, rows=rows, version=version), _words(environments), _words(levels), _numbers(shares)
    )
    how = plan.How(steps, batch_size, chunk, evaluation)
    runs = plan.grid(entries, _words(algorithms), _words(methods), seeds, how, sweep)
    packs = plan.shard(runs, number, count, largest_pack or plan.LARGEST)
    if dry_run:
        from winnow.bench.todo import todo

        left = todo(packs, out, local.finished(out, retry_failed=retry_failed, move=False))
        show(left, sum(map(len, packs)), warm_up)
        return
    if on == "ray":
        from winnow.bench import ray

        done = ray.run(
            packs, out, address=ray_address, shared=ray_shared, shard=(number, count), retry_failed=retry_failed
        )
    else:
        from winnow.commands.data import bar

        done = local.run(packs, out, shard=(number, count), retry_failed=retry_failed, watch=bar)
    summarise(done.results, done.before, out)


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in _words(text.replace("%", ""))]
    except ValueError as error:
        raise BadInput(f"--shares {text}: is not numbers with commas between them; write it like 1,5,50") from error


def _part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise BadInput(f"--shard {text}: is not one of 1/N, 2/N, … N/N; write it like 3/8")
    return int(number), int(count)


def show(left: Todo, total: int, warm_up: bool) -> None:
    """The packs that are left to do, and what they will take."""
    import jax
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from winnow.bench.costs import Costs
    from winnow.bench.plan import cut
    from winnow.bench.shelf import missing
    from winnow.methods import record

    devices = jax.local_devices()
    costs, console = Costs(devices[0]), Console()
    packs = list(left.begun)
    for pack in left.new:
        packs += cut(pack, -(-len(pack) // costs.fitting(pack))) if warm_up else [pack]
    table = Table(box=None, header_style="bold")
    for title in ("pack", "runs", "algorithm", "weights", "environments", *(("memory", "time") if warm_up else ())):
        table.add_column(title, justify="right" if title in ("pack", "runs", "memory", "time") else "left")
    seconds = 0.0
    for number, pack in enumerate(packs, 1):
        places = dict.fromkeys(run.entry.environment for run in pack)
        cells = [str(number), str(len(pack)), *(record(part)["name"] for part in (pack[0].algorithm, pack[0].weighter))]
        cells.append(", ".join(places) + (" (begun)" if number <= len(left.begun) else ""))
        if warm_up:
            with console.status(f"measuring pack {number} of {len(packs)}"):
                memory, needed = costs.memory(pack), costs.seconds(pack)
            seconds += needed
            cells += [f"{memory / 1e9:.2f} GB", duration(needed)]
        table.add_row(*map(Text, cells))
    console.print(table)
    console.print(f"{total:,} runs, {left.done:,} done; {len(left.runs):,} left in {len(packs)} packs", highlight=False)
    if packs and warm_up:
        kinds = f"{len(devices)} × {devices[0].device_kind}"
        words = f"about {duration(seconds / len(devices))} on {kinds}, without evaluation and checkpoints"
        console.print(words, highlight=False)
    if sources := missing(left.runs):
        console.print(Text(f"to be made or fetched first: {', '.join(sources)}"))


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def summarise(results: Sequence[Result], before: int, out: Path) -> None:
    """What is done now, and which runs failed."""
    failed = [result for result in results if result.failure]
    for result in failed[:10]:
        print(f"{result.name} failed: {result.failure}")
    if len(failed) > 10:
        print(f"… and {len(failed) - 10} more failed")
    print(f"{len(results):,} runs are done and {before:,} were done before; their results are in {out / 'results'}")
