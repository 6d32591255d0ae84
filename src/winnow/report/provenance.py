"""How the runs of a report were made: commands that plan them, their settings, and the versions they ran with."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from winnow.bench import plan, suites
from winnow.bench.plan import How, canonical
from winnow.bench.results import PACKED
from winnow.bench.study import PREFIX, Study
from winnow.data import names
from winnow.errors import BadInput
from winnow.evaluation.settings import Evaluation
from winnow.report.runs import Run, protocol
from winnow.report.studies import matched

MOST_RUNS = 1_000_000
"""A command that might plan more runs is not tried."""
MAX_COMMANDS = 5
"""Maximum number of commands for runs with the same protocol."""


@dataclass(frozen=True)
class Command:
    """A command that plans these runs, derived from their settings."""

    text: str
    here: int
    """Runs of this report that it plans."""
    missing: list[str]
    """Names of runs that it plans and that have no result."""
    others: int
    """Runs that this version of winnow does not plan: they were made with other settings or another version."""


def commands(runs: Sequence[Run], folder: Path, studies: Sequence[Study] = ()) -> list[Command]:
    """One command for runs with the same protocol, or several if they plan fewer runs that have no result; for runs of
    these studies, one command for each study."""
    ways: dict[str, list[Run]] = {}
    for run in runs:
        ways.setdefault(canonical(protocol(run)), []).append(run)
    made: list[Command] = []
    for alike in ways.values():
        left = alike
        done = []
        for study in studies:
            if mine := matched(study, alike)[0]:
                done.append(_command(mine, folder, study))
                theirs = {run.id for run in mine}
                left = [run for run in left if run.id not in theirs]
        made += done + (_commands(left, folder) if left else [])
    return made


def typed(runs: Sequence[Run]) -> dict[str, int]:
    """The commands that made the runs, if their results have them, each with its number of runs; most frequent
    first."""
    return dict(Counter(run.command for run in runs if run.command).most_common())


def _commands(runs: list[Run], folder: Path) -> list[Command]:
    best: list[Command] = []
    for parts in ([runs], _alike(runs), [part for swept in _by_sweep(runs) for part in _alike(swept)]):
        if len(parts) <= MAX_COMMANDS or not best:
            made = [_command(part, folder) for part in parts]
            if not best or _num_missing(made) < _num_missing(best):
                best = made
            if not _num_missing(best):
                break
    return best


def _num_missing(made: Sequence[Command]) -> int:
    return sum(len(command.missing) for command in made)


def _alike(runs: list[Run]) -> list[list[Run]]:
    """Runs grouped by datasets that have the same algorithms, methods and sweeps."""
    trained: dict[str, set[str]] = {}
    for run in runs:
        trained.setdefault(run.dataset, set()).add(f"{run.algorithm} {run.method} {canonical(run.swept)}")
    groups: dict[frozenset[str], list[Run]] = {}
    for run in runs:
        groups.setdefault(frozenset(trained[run.dataset]), []).append(run)
    return list(groups.values())


def _by_sweep(runs: list[Run]) -> list[list[Run]]:
    groups: dict[frozenset[str], list[Run]] = {}
    for run in runs:
        groups.setdefault(frozenset(run.swept), []).append(run)
    return list(groups.values())


def _command(runs: list[Run], folder: Path, study: Study | None = None) -> Command:
    options: dict[str, str] = {}
    datasets, rows, version = _datasets(list(dict.fromkeys(run.dataset for run in runs)))
    algorithms = list(dict.fromkeys(run.algorithm for run in runs))
    methods = list(dict.fromkeys(run.method for run in runs))
    seeds = max(run.seed for run in runs) + 1
    options |= {"algorithms": ",".join(algorithms), "methods": ",".join(methods), "seeds": str(seeds)}
    if study:
        own = {entry.text for entry in study.entries(rows=rows, version=version)}
        datasets = [] if own == {run.dataset for run in runs} else datasets
        methods = [] if {variant.method for variant in study.variants} == set(methods) else methods
        options |= {"methods": ",".join(methods)}
    asked = protocol(runs[0])
    usual = How()
    options |= {name.replace("_", "-"): str(asked[name]) for name in ("steps", "batch_size", "chunk")}
    played = asked["evaluation"] or {}
    options |= {
        f"evaluation.{name}": str(played[name])
        for name, value in usual.evaluation.record().items()
        if played.get(name, value) != value
    }
    options |= {"held-out": str(asked["held_out"])} if asked["held_out"] != usual.held_out else {}
    options |= {"rows": str(rows)} if rows else {}
    options |= {"version": version} if version else {}
    swept: dict[str, dict[str, None]] = {}
    for run in runs:
        for path, value in run.swept.items():
            if study and path in study.paths:
                continue
            swept.setdefault(path, {})["x".join(map(str, value)) if isinstance(value, list) else str(value)] = None
    sweeps = [f"{path}={','.join(values)}" for path, values in swept.items()]
    named = [f"{PREFIX}{study.name}"] if study else []
    parts = [*named, *datasets, *(part for name, value in options.items() if value for part in (f"--{name}", value))]
    parts += [part for sweep in sweeps for part in ("--sweep", sweep)]
    text = f"winnow bench run {shlex.join([*parts, '--out', str(folder).removesuffix(PACKED)])}"
    times = seeds * len(datasets or runs) * len(algorithms) * len(methods or runs)
    if times * math.prod(map(len, swept.values())) > MOST_RUNS:
        return Command(text, 0, [], len(runs))
    try:
        sizes = (asked["steps"], asked["batch_size"], asked["chunk"])
        how = How(*sizes, Evaluation(**played), asked["held_out"])
        if study:
            entries = (
                suites.entries(datasets, rows=rows, version=version)
                if datasets
                else study.entries(rows=rows, version=version)
            )
            every = study.runs(entries, seeds, how, algorithms=algorithms, methods=methods, sweeps=sweeps)
        else:
            entries = suites.entries(datasets, rows=rows, version=version)
            every = plan.grid(entries, algorithms, methods, seeds, how, sweeps)
        planned = {run.id: run.name for run in every}
    except (BadInput, TypeError):
        return Command(text, 0, [], len(runs))
    here = {run.id for run in runs}
    missing = [name for identity, name in planned.items() if identity not in here]
    return Command(text, len(planned.keys() & here), missing, len(here - planned.keys()))


def _datasets(texts: list[str]) -> tuple[list[str], int | None, str]:
    """Datasets as few names: whole suites by their own names. And the options --rows and --version, if they hold for
    all datasets."""
    cut = {text.partition("@")[2] for text in texts}
    size = cut.pop() if len(cut) == 1 else ""
    rows = int(size) if size.isdigit() else None
    left = {text.partition("@")[0] if rows else text: None for text in texts}
    version = names.VERSION if any("%" in text and text.endswith(f"-{names.VERSION}") for text in left) else ""
    suites_and_names = []
    full = False
    for suite, whole in names.suites(version).items():
        if left.keys() >= set(whole):
            suites_and_names.append(suite)
            full |= "%" in whole[0]
            left = {text: None for text in left if text not in whole}
    if set(suites_and_names) == set(names.suites()):
        suites_and_names = [suites.PAPER]
    return [*suites_and_names, *left], rows, version if full else ""


def versions(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """The versions of everything that the runs were made with, and how many runs had each."""
    counts_of: dict[str, Counter[str]] = {}
    for run in runs:
        for name, version in run.made_with.items():
            counts_of.setdefault(str(name), Counter())[str(version)] += 1
    return {name: dict(counts.most_common()) for name, counts in counts_of.items()}


def settings(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """The settings of algorithms, samplers and weighters, and how many runs had each."""
    return {
        family: dict(Counter(canonical(run.config.get(family)) for run in runs).most_common())
        for family in ("algorithm", "sampler", "weighter")
    }


def odd_data(runs: Sequence[Run]) -> list[str]:
    """Datasets whose name stands for different rows in different runs."""
    prints: dict[str, set[str]] = {}
    for run in runs:
        if mark := run.facts.get("fingerprint"):
            prints.setdefault(run.dataset, set()).add(str(mark))
    return [dataset for dataset, marks in prints.items() if len(marks) > 1]
