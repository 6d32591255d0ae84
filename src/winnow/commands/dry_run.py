"""`winnow bench run --dry-run`: the packs of a grid, what is done already, and how long the rest takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from winnow.system.progress import duration, say

if TYPE_CHECKING:
    from winnow.bench.costs import EvaluationTime, Measured
    from winnow.bench.plan import Planned
    from winnow.bench.recorded import Estimate
    from winnow.bench.remaining import Todo


def show(
    packs: Sequence[Sequence[Planned]], out: Path, *, retry_failed: bool, measure: bool, cluster: str | None
) -> dict[str, Any]:
    """Print what is left of a grid and what it takes. Returns the record for --json.

    measure: time programs of every shape instead of looking rates up
    cluster: the address of a Ray cluster to measure on
    """
    from winnow.bench.recorded import estimate
    from winnow.bench.remaining import todo
    from winnow.bench.results import collect

    results = list(collect(out, say, move=False))
    left = todo(packs, out, {result.id for result in results if result.finished or not retry_failed})
    runs = sum(map(len, packs))
    record: dict[str, Any] = {"runs": runs, "done": left.done, "left": len(left.runs), "packs": []}
    if measure and left.packs:
        measured = _measured(left, cluster)
        played = _evaluated(left) if cluster is None else None
        record["packs"] = [
            _pack_record(need.pack) | {"bytes": need.memory, "run_steps_per_second": need.rate, "seconds": need.seconds}
            for need in measured.needs
        ]
        record |= {"seconds": measured.seconds, "source": f"measured on {measured.devices} × {measured.kind}"}
        record["evaluation_seconds"] = played.seconds if played else None
        lines = _measured_lines(left, measured, played, cluster is not None)
        cells = [
            [f"{need.memory / 1e9:.2f} GB", f"{need.rate:,.0f}", duration(need.seconds)] for need in measured.needs
        ]
        _table(left, [need.pack for need in measured.needs], ("memory", "run-steps/s", "time"), cells)
    else:
        known = estimate(left.packs, results)
        record["packs"] = [
            _pack_record(pack) | {"seconds": seconds} for pack, seconds in zip(left.packs, known.seconds, strict=True)
        ]
        record |= {"seconds": known.total, "source": known.source}
        lines = _recorded_lines(known)
        cells = [["" if seconds is None else duration(seconds)] for seconds in known.seconds]
        _table(left, left.packs, ("time",), cells)
    count = len(record["packs"])
    print(f"{runs:,} runs, {left.done:,} done; {len(left.runs):,} left in {count} packs")
    for line in lines if left.packs else []:
        print(line)
    record["missing_datasets"] = _missing(left, cluster is not None)
    return record


def _pack_record(pack: Sequence[Planned]) -> dict[str, Any]:
    from winnow.plugins import record

    return {
        "runs": len(pack),
        "algorithm": record(pack[0].algorithm)["name"],
        "weighter": record(pack[0].weighter)["name"],
        "environments": list(dict.fromkeys(run.entry.environment for run in pack)),
    }


def _table(
    left: Todo, packs: Sequence[Sequence[Planned]], heads: Sequence[str], cells: Sequence[Sequence[str]]
) -> None:
    """The packs that are left, a line each, with what they take."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    for title in ("pack", "runs", "algorithm", "weights", "environments", *heads):
        table.add_column(title, justify="right" if title in ("pack", "runs", *heads) else "left")
    for number, (pack, more) in enumerate(zip(packs, cells, strict=True), 1):
        facts = _pack_record(pack)
        places = ", ".join(facts["environments"]) + (" (begun)" if number <= len(left.begun) else "")
        line = [str(number), str(len(pack)), facts["algorithm"], facts["weighter"], places, *more]
        table.add_row(*map(Text, line))
    if packs:
        Console().print(table)


def _recorded_lines(known: Estimate) -> list[str]:
    lines = [f"about {duration(known.total)} of training by {known.source}; --measure times programs here instead"]
    if unknown := sum(seconds is None for seconds in known.seconds):
        lines.append(f"not counted: {unknown} packs of kinds that were never recorded")
    return [*lines, "evaluation runs beside the training and may take longer; checkpoints are not counted"]


def _measured_lines(left: Todo, measured: Measured, played: EvaluationTime | None, on_cluster: bool) -> list[str]:
    from winnow.system.cores import cores_here

    text = f"about {duration(measured.seconds)} of training on {measured.devices} × {measured.kind}"
    text += " of the cluster (measured on one of them)" if on_cluster else ""
    if played and len(played.unknown) < len({run.entry.environment for run in left.runs}):
        text += f"; beside it, evaluation: {duration(played.seconds)} at the most on {cores_here()} cores"
    unknown = played.unknown if played else {}
    more = [f"not counted, the evaluation of {environment}: {why}" for environment, why in unknown.items()]
    return [f"{text}; checkpoints are not counted", *more]


def _missing(left: Todo, on_cluster: bool) -> list[str]:
    """Datasets that are not on this machine yet, which are named."""
    from winnow.bench.datasets import missing

    sources = list(missing(left.runs))
    if sources:
        where = "not on this machine; every node makes or fetches its own" if on_cluster else "to be made or fetched"
        print(f"{where}: {', '.join(sources)}")
    return sources


def _measured(left: Todo, cluster: str | None) -> Measured:
    """What the packs that are left will take: on this machine's devices, or on a cluster's."""
    from winnow.system.progress import Progress

    if cluster is not None:
        from rich.console import Console

        from winnow.bench import run_ray

        with Console(stderr=True).status("measuring packs on a device of the cluster"):
            return run_ray.measure_packs(left, cluster)
    import jax

    from winnow.bench.costs import measure_packs

    devices = jax.local_devices()
    packs = left.spread(len(devices))
    with Progress(2 * (len(left.begun) + len(packs)), shown=True, unit="packs") as bar:  # compiled, then measured

        def tell(text: str) -> None:
            bar.describe(text)
            bar.count(1)

        return measure_packs(devices[0], left.begun, packs, len(devices), tell)


def _evaluated(left: Todo) -> EvaluationTime:
    """What the evaluation of what is left will take on this machine's cores."""
    from rich.console import Console

    from winnow.bench.costs import evaluation_time

    with Console(stderr=True).status("measuring environments") as status:
        return evaluation_time(left.packs, lambda environment: status.update(f"measuring {environment}"))
