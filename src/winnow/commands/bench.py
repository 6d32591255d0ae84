"""`winnow bench run`: a grid of datasets, algorithms, methods and seeds, trained in packs and played, or a study.
`winnow bench list`: which suites and studies there are. `winnow bench pack`: a grid's results in one file."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from winnow.commands import config
from winnow.commands._shared import answer, bar
from winnow.errors import BadInput
from winnow.evaluation.settings import Evaluation
from winnow.system.progress import warn

if TYPE_CHECKING:
    from winnow.bench.plan import Planned
    from winnow.bench.results import Result


@dataclass(frozen=True)
class Options:
    """Train and play every dataset of a suite with every algorithm, method and seed, in as few programs as possible.

    Each finished run is a small file in OUT/results. A second call does only what is missing: a grid may be interrupted
    at any time, and the results of several machines are merged by copying them into one folder. Runs that
    `winnow bench pack` has put into OUT.jsonl.gz are finished too.
    """

    suite: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SUITE")]
    """mixed, diverse, small, d4rl-mujoco, d4rl-antmaze, d4rl-kitchen, d4rl-adroit, paper (all 113), or names of
    datasets. Or study:NAME (`winnow bench list` shows them): the study then says what is trained, and suites or
    datasets beside it replace its own."""
    out: Path
    """A folder for the results, and for what is not finished."""
    algorithms: str | None = None
    """Names, separated by commas. Default: iql,cql,td3bc, or those of the study."""
    methods: str | None = None
    """Names, separated by commas. Default: uniform,aw,pf,dw-aw,dw-uniform,dual-aw, or all of the study."""
    seeds: int = 3
    """Runs of each kind, with seeds 0, 1, …"""
    steps: int = 1_000_000
    """Updates of each run."""
    batch_size: int = 256
    """Rows sampled for each update."""
    chunk: int = 20_000
    """Updates between two checkpoints: the most that is lost when the grid is killed."""
    evaluation: Evaluation = Evaluation()
    """When policies are played, and how much."""
    held_out: float = 0.01
    """Fraction of each dataset's rows that is never sampled, to see whether a policy overfits. 0: none."""
    sweep: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FIELD=VALUE,…")] = ()
    """Train with each of these values of a setting: weighter.lambda_k=0.2,1. Several sweeps are combined. A sweep
    applies to every run that has the setting."""
    environments: str = ""
    """Only these environments: hopper,ant."""
    levels: str = ""
    """Only mixtures with these good policies (medium,expert), or D4RL's sets of these levels (medium-replay)."""
    shares: str = ""
    """Only mixtures with these percentages of good data: 1,5."""
    rows: int | None = None
    """A trial with fewer rows; the same as NAME@ROWS."""
    version: str = ""
    """v2 for mixtures of D4RL's files instead of regenerated ones."""
    largest_pack: int | None = None
    """Maximum number of runs in one program. Default: what fits the device, up to 256 (on a CPU 16)."""
    shard: str = "1/1"
    """Which shard of the grid to do, and of how many: 3/8. All shards may use the same folder, or each its own."""
    retry_failed: bool = False
    """Train runs again whose result is that they failed."""
    dry_run: bool = False
    """Show the packs, how long they take by recorded rates and what is done already, and train nothing."""
    measure: Annotated[bool, tyro.conf.arg(aliases=["--warm-up"])] = False
    """For a dry run: compile and time a program of every shape instead, on this machine or on a device of the cluster.
    Takes seconds for each pack on a GPU, and minutes for a large grid on a CPU."""
    on: Literal["local", "ray"] = "local"
    """Where to train: on all devices of this machine, or on a Ray cluster, one pack on each of its GPUs (or nodes)."""
    ray_address: str = "auto"
    """HOST:PORT of the cluster, or ray://HOST:PORT. Default: $RAY_ADDRESS, or this machine's cluster."""
    ray_shared: bool = False
    """OUT is the same folder on every node: a pack whose node dies continues from its last checkpoint. Otherwise the
    pack starts again."""
    json: bool = False
    """Print the plan, or what was done, as one JSON object on stdout; everything else goes to stderr."""

    def command(self) -> str:
        """The command that asks for this, without options that have their default."""
        arguments = ["winnow", "bench", "run", *self.suite]
        for name, value in _changed(self):
            flag = f"--{name.replace('_', '-')}"
            if isinstance(value, Evaluation):
                for part, setting in _changed(value):
                    arguments += _option(f"{flag}.{part.replace('_', '-')}", setting)
            else:
                for item in value if isinstance(value, tuple) else (value,):
                    arguments += _option(flag, item)
        return shlex.join(arguments)


def _changed(options: Any) -> list[tuple[str, Any]]:
    """The fields that do not have their default, without the suites, which are no option, and --json, which changes no
    result."""
    fields = [field for field in dataclasses.fields(options) if field.name not in ("suite", "json")]
    values = [(field, getattr(options, field.name)) for field in fields]
    return [(field.name, value) for field, value in values if value != field.default]


def options(arguments: Sequence[str], asked: Mapping[str, Any]) -> config.Options:
    """The options that --config may set."""
    return config.options_of_dataclass(Options)


def run(arguments: Sequence[str], prog: str) -> None:
    """Read the options, and train the grid or show what it would take."""
    from winnow.commands.table import epilogue

    options = tyro.cli(Options, args=arguments, prog=prog, description=f"{Options.__doc__}\n{epilogue('bench run')}")
    with answer(options.json) as report:
        report(_run(options))


def _run(options: Options) -> dict[str, Any]:
    """Do what the options ask for. Returns the record for --json."""
    from winnow.bench import plan, run_local
    from winnow.bench.results import PACKED

    shard = _part(options.shard)
    out = options.out
    if out.name.endswith(PACKED):
        raise BadInput(f"--out must be a folder, got {out}, which names a packed file; leave out {PACKED}")
    if options.evaluation.keep:
        raise BadInput("--evaluation.keep: a grid keeps results, not policies; `winnow train` keeps both")
    if options.largest_pack is not None and options.largest_pack < 1:
        raise BadInput(f"--largest-pack must be at least 1, got {options.largest_pack}")
    packs = plan.shard(_runs(options), *shard, options.largest_pack or plan.LARGEST)
    if options.dry_run:
        from winnow.commands import dry_run

        cluster = options.ray_address if options.on == "ray" else None
        return dry_run.show(packs, out, retry_failed=options.retry_failed, measure=options.measure, cluster=cluster)
    if options.on == "ray":
        from winnow.bench import run_ray

        done = run_ray.run(
            packs,
            out,
            address=options.ray_address,
            shared=options.ray_shared,
            shard=shard,
            retry_failed=options.retry_failed,
        )
    else:
        done = run_local.run(packs, out, shard=shard, retry_failed=options.retry_failed, watch=bar)
    return summarise(done.results, done.before, out)


def _runs(options: Options) -> list[Planned]:
    """The runs that the options ask for: those of studies, or a grid of datasets, algorithms and methods."""
    from winnow.bench import plan, study_list, suites

    size = {"rows": options.rows, "version": options.version}
    how = plan.How(options.steps, options.batch_size, options.chunk, options.evaluation, options.held_out)
    filters = (_list(options.environments), _list(options.levels), _numbers(options.shares))
    studies, names = study_list.divided(options.suite)
    datasets = suites.entries(names, **size) if names or not studies else []
    command = options.command()
    if not studies:
        algorithms = suites.ALGORITHMS if options.algorithms is None else _list(options.algorithms)
        methods = suites.METHODS if options.methods is None else _list(options.methods)
        return plan.grid(
            suites.chosen(datasets, *filters), algorithms, methods, options.seeds, how, options.sweep, command
        )
    kinds = {"algorithms": _list(options.algorithms or ""), "methods": _list(options.methods or "")}
    asked = [(study, datasets or study.entries(**size)) for study in studies]
    kept = set(suites.chosen(list(dict.fromkeys(entry for _, entries in asked for entry in entries)), *filters))
    runs = {}
    for study, entries in asked:
        if mine := [entry for entry in entries if entry in kept]:
            planned = study.runs(mine, options.seeds, how, **kinds, sweeps=options.sweep, command=command)
            runs |= {run.id: run for run in planned}
    return list(runs.values())


def _option(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        *parents, last = flag.removeprefix("--").split(".")
        return [flag if value else "--" + ".".join([*parents, f"no-{last}"])]
    return [flag, str(value)]


def _list(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in _list(text.replace("%", ""))]
    except ValueError as error:
        raise BadInput(
            f"--shares must be numbers with commas between them, got {text!r}; write it like 1,5,50"
        ) from error


def _part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise BadInput(f"--shard must be one of 1/N, 2/N, … N/N, got {text!r}; write it like 3/8")
    return int(number), int(count)


def summarise(results: Sequence[Result], before: int, out: Path) -> dict[str, Any]:
    """Say what is done now, and which runs failed. Returns the record for --json."""
    failed = [result for result in results if result.failure]
    for result in failed[:10]:
        warn(f"{result.name} failed: {result.failure}")
    if len(failed) > 10:
        warn(f"… and {len(failed) - 10} more failed")
    print(f"{len(results):,} runs are done and {before:,} were done before; their results are in {out / 'results'}")
    failures = {result.name: result.failure for result in failed}
    return {"done": len(results), "done_before": before, "failed": failures, "results": out / "results"}


def pack(
    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")],
    /,
    *,
    keep: bool = False,
    json: bool = False,
) -> None:
    """Put the results of a grid into one compressed file, DIR.jsonl.gz, and remove the files that it holds.

    `winnow report DIR` and `winnow bench run --out DIR` read it as they read the folder. What DIR.jsonl.gz held before
    stays in it, but for runs that the folder has again. It is written whole or not at all, and read back before
    anything is removed. A line is a result as JSON: `zcat DIR.jsonl.gz` shows them.

    Args:
        folder: The folder that `winnow bench run --out` has written to.
        keep: Leave the result files where they are.
        json: Print the file and its number of runs as one JSON object on stdout.
    """
    from winnow.bench import packed
    from winnow.bench.results import packed_of

    with answer(json) as report:
        count = packed.pack(folder, keep=keep)
        path = packed_of(folder)
        print(f"{path} holds {count:,} runs ({path.stat().st_size / 1e6:.2f} MB)")
        report({"file": path, "runs": count, "bytes": path.stat().st_size})


def list_(*, json: bool = False) -> None:
    """The suites and studies that `winnow bench run` knows, with what each asks and how many runs it is.

    Args:
        json: Print the same as one JSON object on stdout.
    """
    from winnow.bench import suites
    from winnow.bench.study_list import STUDIES
    from winnow.data import names

    usual = Options.seeds
    grid = len(suites.ALGORITHMS) * len(suites.METHODS) * usual
    sizes = {suite: len(suites.entries([suite])) for suite in (*names.suites(), suites.PAPER)}
    studies = [
        {
            "name": study.name,
            "datasets": len(study.entries()),
            "algorithms": list(study.algorithms),
            "runs": len(study.entries()) * len(study.cells()) * usual,
            "question": study.question,
            "paper": study.paper,
        }
        for study in STUDIES.values()
    ]
    with answer(json) as report:
        if not json:
            _show_list(sizes, grid, studies, usual)
        listed = [{"name": suite, "datasets": size, "runs": size * grid} for suite, size in sizes.items()]
        report({"seeds": usual, "suites": listed, "studies": studies})


def _show_list(sizes: Mapping[str, int], grid: int, studies: Sequence[Mapping[str, Any]], seeds: int) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from winnow.bench.study import PREFIX

    console = Console()
    table = Table(box=None, header_style="bold")
    for title in ("suite", "datasets", f"runs with {seeds} seeds"):
        table.add_column(title, justify="left" if title == "suite" else "right")
    for suite, size in sizes.items():
        table.add_row(suite, f"{size:,}", f"{size * grid:,}")
    console.print(table)
    for study in studies:
        count = (
            f"{study['datasets']} datasets, {', '.join(study['algorithms'])}, {study['runs']:,} runs with {seeds} seeds"
        )
        console.print(Text.assemble("\n", (PREFIX + study["name"], "bold"), f"  {count}"))
        console.print(Padding(Text(study["question"]), (0, 0, 0, 2)))
        console.print(Padding(Text(f"paper: {study['paper']}", style="dim"), (0, 0, 0, 2)))
