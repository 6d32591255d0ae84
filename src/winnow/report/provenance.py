"""How the runs of a report were made: the command that plans them, their settings, and the versions they ran with."""

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
"""A command that might plan more than these is not tried."""
MOST = 5
"""Commands for one way of training, at the most."""


@dataclass(frozen=True)
class Command:
    """A command that plans these runs, made up from their settings."""

    text: str
    here: int
    """Runs of this report that it plans."""
    missing: list[str]
    """Names of runs that it plans and that have no result."""
    others: int
    """Runs that this version of winnow would not plan so: they were made with other settings or another version."""


def commands(runs: Sequence[Run], folder: Path, studies: Sequence[Study] = ()) -> list[Command]:
    """For each way of training one command, or as few as plan all its runs with the fewest that have no result; for
    runs of these studies, one for each study."""
    ways: dict[str, list[Run]] = {}
    for run in runs:
        ways.setdefault(canonical(protocol(run)), []).append(run)
    found: list[Command] = []
    for some in ways.values():
        left, done = some, []
        for study in studies:
            if mine := matched(study, some)[0]:
                done.append(_command(mine, folder, study))
                theirs = {run.id for run in mine}
                left = [run for run in left if run.id not in theirs]
        found += done + (_commands(left, folder) if left else [])
    return found


def typed(runs: Sequence[Run]) -> dict[str, int]:
    """What was typed for the runs, where their results say so, and for how many; the most frequent first."""
    return dict(Counter(run.command for run in runs if run.command).most_common())


def _commands(runs: list[Run], folder: Path) -> list[Command]:
    best: list[Command] = []
    for parts in ([runs], _alike(runs), [part for swept in _by_sweep(runs) for part in _alike(swept)]):
        if len(parts) <= MOST or not best:
            found = [_command(part, folder) for part in parts]
            if not best or _absent(found) < _absent(best):
                best = found
            if not _absent(best):
                break
    return best


def _absent(found: Sequence[Command]) -> int:
    return sum(len(command.missing) for command in found)


def _alike(runs: list[Run]) -> list[list[Run]]:
    """Runs in groups of datasets on which the same was trained."""
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
    words, rows, version = _datasets(list(dict.fromkeys(run.dataset for run in runs)))
    algorithms, methods = ([*dict.fromkeys(getattr(run, what) for run in runs)] for what in ("algorithm", "method"))
    seeds = max(run.seed for run in runs) + 1
    options |= {"algorithms": ",".join(algorithms), "methods": ",".join(methods), "seeds": str(seeds)}
    if study:
        own = {entry.text for entry in study.entries(rows=rows, version=version)}
        words = [] if own == {run.dataset for run in runs} else words
        methods = [] if {one.method for one in study.variants} == set(methods) else methods
        options |= {"methods": ",".join(methods)}
    asked, usual = protocol(runs[0]), How()
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
        for place, value in run.swept.items():
            if study and place in study.places:
                continue
            swept.setdefault(place, {})["x".join(map(str, value)) if isinstance(value, list) else str(value)] = None
    sweeps = [f"{place}={','.join(values)}" for place, values in swept.items()]
    named = [f"{PREFIX}{study.name}"] if study else []
    parts = [*named, *words, *(part for name, value in options.items() if value for part in (f"--{name}", value))]
    parts += [part for sweep in sweeps for part in ("--sweep", sweep)]
    text = f"winnow bench run {shlex.join([*parts, '--out', str(folder).removesuffix(PACKED)])}"
    times = seeds * len(words or runs) * len(algorithms) * len(methods or runs)
    if times * math.prod(map(len, swept.values())) > MOST_RUNS:
        return Command(text, 0, [], len(runs))
    try:
        sizes = (asked["steps"], asked["batch_size"], asked["chunk"])
        how = How(*sizes, Evaluation(**played), asked["held_out"])
        if study:
            entries = (
                suites.entries(words, rows=rows, version=version)
                if words
                else study.entries(rows=rows, version=version)
            )
            every = study.runs(entries, seeds, how, algorithms=algorithms, methods=methods, sweeps=sweeps)
        else:
            entries = suites.entries(words, rows=rows, version=version)
            every = plan.grid(entries, algorithms, methods, seeds, how, sweeps)
        planned = {run.id: run.name for run in every}
    except (BadInput, TypeError):
        return Command(text, 0, [], len(runs))
    here = {run.id for run in runs}
    missing = [name for identity, name in planned.items() if identity not in here]
    return Command(text, len(planned.keys() & here), missing, len(here - planned.keys()))


def _datasets(texts: list[str]) -> tuple[list[str], int | None, str]:
    """Datasets as few words: whole suites by their names. And the options --rows and --version, where they hold for
    all."""
    cut = {text.partition("@")[2] for text in texts}
    one = cut.pop() if len(cut) == 1 else ""
    rows = int(one) if one.isdigit() else None
    left = {text.partition("@")[0] if rows else text: None for text in texts}
    version = names.VERSION if any("%" in text and text.endswith(f"-{names.VERSION}") for text in left) else ""
    words, full = [], False
    for suite, whole in names.suites(version).items():
        if left.keys() >= set(whole):
            words.append(suite)
            full |= "%" in whole[0]
            left = {text: None for text in left if text not in whole}
    if set(words) == set(names.suites()):
        words = [suites.PAPER]
    return [*words, *left], rows, version if full else ""


def versions(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """What the runs were made with: for each thing its versions, and how many runs had each."""
    found: dict[str, Counter[str]] = {}
    for run in runs:
        for name, version in run.made_with.items():
            found.setdefault(str(name), Counter())[str(version)] += 1
    return {name: dict(counts.most_common()) for name, counts in found.items()}


def settings(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """The settings of algorithms, samplers and weighters, and how many runs had each."""
    return {
        family: dict(Counter(canonical(run.config.get(family)) for run in runs).most_common())
        for family in ("algorithm", "sampler", "weighter")
    }


def odd_data(runs: Sequence[Run]) -> list[str]:
    """Datasets whose name meant other rows in some runs than in others."""
    prints: dict[str, set[str]] = {}
    for run in runs:
        if mark := run.facts.get("fingerprint"):
            prints.setdefault(run.dataset, set()).add(str(mark))
    return [dataset for dataset, marks in prints.items() if len(marks) > 1]
