"""`winnow bench run`: a grid of datasets, algorithms, methods and seeds, trained in packs and played, or a study.
`winnow bench list`: which suites and studies there are. `winnow bench pack`: a grid's results in one file."""

from __future__ import annotations

import dataclasses
import inspect
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from winnow.errors import BadInput
from winnow.evaluation.settings import Evaluation

if TYPE_CHECKING:
    from winnow.bench.costs import Playing, Reckoned
    from winnow.bench.remaining import Todo
    from winnow.bench.results import Result


def run(
    suite: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SUITE")],
    /,
    *,
    out: Path,
    algorithms: str | None = None,
    methods: str | None = None,
    seeds: int = 3,
    steps: int = 1_000_000,
    batch_size: int = 256,
    chunk: int = 20_000,
    evaluation: Evaluation = Evaluation(),  # noqa: B008
    held_out: float = 0.01,
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
    interrupted at any time, and results of several machines are merged by copying them into one folder. Runs that
    `winnow bench pack` has put into OUT.jsonl.gz are finished too.

    Args:
        suite: mixed, diverse, small, d4rl-mujoco, d4rl-antmaze, d4rl-kitchen, d4rl-adroit, paper (all 113), or names
            of datasets. Or study:NAME (`winnow bench list` shows them): then the study says what is trained, and
            suites or datasets beside it take the place of its own.
        out: A folder for the results, and for what is not finished.
        algorithms: Names with commas between them. Without it iql,cql,td3bc, or those of the study.
        methods: Names with commas between them. Without it uniform,aw,pf,dw-aw,dw-uniform,dual-aw, or all of the study.
        seeds: Runs of each kind, with seeds 0, 1, …
        steps: Updates of each run.
        batch_size: Rows drawn for each update.
        chunk: Updates between two checkpoints: what is lost at the most when the grid is killed.
        evaluation: When policies are played, and how much.
        held_out: Part of each dataset's rows that is never drawn: on these runs are watched for memorising. 0: none.
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
        dry_run: Show the packs, what they take and what is done already, and train nothing. With --on ray, what they
            take is measured on a device of the cluster.
        warm_up: Measure programs of every shape for a second, to say how long a dry run's packs would take.
        on: Where to train: on all devices of this machine, or on a Ray cluster, a pack on each of its GPUs (or nodes).
        ray_address: HOST:PORT of the cluster, or ray://HOST:PORT. Without it $RAY_ADDRESS, or this machine's cluster.
        ray_shared: OUT is the same folder on every node: a pack whose node dies goes on from its last checkpoint.
            Without it the pack begins anew.
    """
    command = typed(locals())
    from winnow.bench import plan, run_local, study_list, suites
    from winnow.bench.results import PACKED

    number, count = _part(shard)
    if out.name.endswith(PACKED):
        raise BadInput(f"--out must be a folder, got {out}, which names a packed file; leave out {PACKED}")
    if evaluation.keep:
        raise BadInput("--evaluation.keep: a grid keeps results, not policies; `winnow train` keeps both")
    if largest_pack is not None and largest_pack < 1:
        raise BadInput(f"--largest-pack is {largest_pack}; it must be at least 1")
    how = plan.How(steps, batch_size, chunk, evaluation, held_out)
    filters = _words(environments), _words(levels), _numbers(shares)
    asked, words = study_list.divided(suite)
    named = suites.entries(words, rows=rows, version=version) if words or not asked else []
    if asked:
        kinds = {"algorithms": _words(algorithms or ""), "methods": _words(methods or "")}
        each = [(study, named or study.entries(rows=rows, version=version)) for study in asked]
        kept = set(suites.chosen(list(dict.fromkeys(one for _, some in each for one in some)), *filters))
        mine = [(study, [one for one in some if one in kept]) for study, some in each]
        every = [study.runs(some, seeds, how, **kinds, sweeps=sweep, command=command) for study, some in mine if some]
        runs = list({run.id: run for some in every for run in some}.values())
    else:
        trained = suites.ALGORITHMS if algorithms is None else _words(algorithms)
        drawn = suites.METHODS if methods is None else _words(methods)
        runs = plan.grid(suites.chosen(named, *filters), trained, drawn, seeds, how, sweep, command)
    packs = plan.shard(runs, number, count, largest_pack or plan.LARGEST)
    if dry_run:
        from winnow.bench.remaining import todo

        left = todo(packs, out, run_local.finished(out, retry_failed=retry_failed, move=False))
        found = reckoned(left, ray_address if on == "ray" else None) if warm_up and left.packs else None
        played = evaluated(left) if warm_up and left.packs and on == "local" else None
        show(left, sum(map(len, packs)), found, played, cluster=on == "ray")
        return
    if on == "ray":
        from winnow.bench import run_ray

        done = run_ray.run(
            packs, out, address=ray_address, shared=ray_shared, shard=(number, count), retry_failed=retry_failed
        )
    else:
        from winnow.commands.data import bar

        done = run_local.run(packs, out, shard=(number, count), retry_failed=retry_failed, watch=bar)
    summarise(done.results, done.before, out)


def typed(asked: Mapping[str, Any]) -> str:
    """The command that asks for this, without what is as usual."""
    words = ["winnow", "bench", "run", *asked["suite"]]
    usual = {name: one.default for name, one in inspect.signature(run).parameters.items() if name != "suite"}
    for name, value in asked.items():
        if name == "suite" or value == usual[name]:
            continue
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, Evaluation):
            for field in dataclasses.fields(value):
                if (part := getattr(value, field.name)) != getattr(usual[name], field.name):
                    words += _option(f"{flag}.{field.name.replace('_', '-')}", part)
        else:
            for one in value if isinstance(value, tuple) else (value,):
                words += _option(flag, one)
    return shlex.join(words)


def _option(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        *parents, last = flag.removeprefix("--").split(".")
        return [flag if value else "--" + ".".join([*parents, f"no-{last}"])]
    return [flag, str(value)]


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


def reckoned(left: Todo, cluster: str | None) -> Reckoned:
    """What the packs that are left will take: on this machine's devices, or on a cluster's."""
    if cluster is not None:
        from rich.console import Console

        from winnow.bench import run_ray

        with Console().status("measuring packs on a device of the cluster"):
            return run_ray.reckon(left, cluster)
    import jax

    from winnow.bench.costs import reckon
    from winnow.system.progress import Progress

    devices = jax.local_devices()
    packs = left.spread(len(devices))
    with Progress(2 * (len(left.begun) + len(packs)), shown=True, unit="packs") as bar:  # compiled, then measured

        def told(text: str) -> None:
            bar.describe(text)
            bar.count(1)

        return reckon(devices[0], left.begun, packs, len(devices), told)


def evaluated(left: Todo) -> Playing:
    """What the evaluation of what is left will take on this machine's cores."""
    from rich.console import Console

    from winnow.bench.costs import playing

    with Console().status("measuring environments") as status:
        return playing(left.packs, lambda environment: status.update(f"measuring {environment}"))


def show(left: Todo, total: int, found: Reckoned | None, played: Playing | None, cluster: bool) -> None:
    """The packs that are left to do, and what they will take, where it was measured."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from winnow.bench.datasets import missing
    from winnow.plugins import record
    from winnow.system.cores import cores_here

    console = Console()
    packs = [need.pack for need in found.needs] if found else left.packs
    table = Table(box=None, header_style="bold")
    measured = ("memory", "run-steps/s", "time") if found else ()
    for title in ("pack", "runs", "algorithm", "weights", "environments", *measured):
        table.add_column(title, justify="right" if title in ("pack", "runs", *measured) else "left")
    for number, pack in enumerate(packs, 1):
        places = dict.fromkeys(run.entry.environment for run in pack)
        cells = [str(number), str(len(pack)), *(record(part)["name"] for part in (pack[0].algorithm, pack[0].weighter))]
        cells.append(", ".join(places) + (" (begun)" if number <= len(left.begun) else ""))
        if found:
            need = found.needs[number - 1]
            cells += [f"{need.memory / 1e9:.2f} GB", f"{need.rate:,.0f}", duration(need.seconds)]
        table.add_row(*map(Text, cells))
    console.print(table)
    console.print(f"{total:,} runs, {left.done:,} done; {len(left.runs):,} left in {len(packs)} packs", highlight=False)
    if packs and found:
        words = f"about {duration(found.seconds)} of training on {found.places} × {found.kind}"
        words += " of the cluster (measured on one of them)" if cluster else ""
        if played and len(played.unknown) < len({run.entry.environment for run in left.runs}):
            words += f"; beside it, evaluation: {duration(played.seconds)} at the most on {cores_here()} cores"
        console.print(f"{words}; checkpoints are not counted", highlight=False, soft_wrap=True)
    for environment, why in (played.unknown if played else {}).items():
        console.print(Text(f"not counted, the evaluation of {environment}: {why}"))
    if sources := missing(left.runs):
        where = "not on this machine; every node makes or fetches its own" if cluster else "to be made or fetched first"
        console.print(Text(f"{where}: {', '.join(sources)}"))


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


def pack(folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")], /, *, keep: bool = False) -> None:
    """Put the results of a grid into one compressed file, DIR.jsonl.gz, and remove the files that it holds.

    `winnow report DIR` and `winnow bench run --out DIR` read it as they read the folder. What DIR.jsonl.gz held before
    stays in it, but for runs that the folder has again. It is written whole or not at all, and read back before
    anything is removed. A line is a result as JSON: `zcat DIR.jsonl.gz` shows them.

    Args:
        folder: The folder that `winnow bench run --out` has written to.
        keep: Leave the result files where they are.
    """
    from winnow.bench import packed
    from winnow.bench.results import packed_of

    count, path = packed.pack(folder, keep=keep), packed_of(folder)
    print(f"{path} holds {count:,} runs ({path.stat().st_size / 1e6:.2f} MB)")


def list_() -> None:
    """The suites and studies that `winnow bench run` knows, with what each asks and how many runs it is."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from winnow.bench import suites
    from winnow.bench.study import PREFIX
    from winnow.bench.study_list import STUDIES
    from winnow.data import names

    console, usual = Console(), inspect.signature(run).parameters["seeds"].default
    grid = len(suites.ALGORITHMS) * len(suites.METHODS) * usual
    table = Table(box=None, header_style="bold")
    for title in ("suite", "datasets", f"runs with {usual} seeds"):
        table.add_column(title, justify="left" if title == "suite" else "right")
    for suite in (*names.suites(), suites.PAPER):
        count = len(suites.entries([suite]))
        table.add_row(suite, f"{count:,}", f"{count * grid:,}")
    console.print(table)
    for study in STUDIES.values():
        datasets = len(study.entries())
        runs = datasets * len(study.cells()) * usual
        count = f"{datasets} datasets, {', '.join(study.algorithms)}, {runs:,} runs with {usual} seeds"
        console.print(Text.assemble("\n", (PREFIX + study.name, "bold"), f"  {count}"))
        console.print(Padding(Text(study.question), (0, 0, 0, 2)))
        console.print(Padding(Text(f"paper: {study.paper}", style="dim"), (0, 0, 0, 2)))
