"""`winnow train`: its options are those of the algorithm and the method that the words themselves name."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from winnow.errors import BadInput
from winnow.evaluation.settings import Evaluation

NAMES = """
naming what to train (give these words first or last, in any order):
  --algorithm NAME    {algorithms} (default iql)
  --method NAME[,…]   {methods} (default dw-aw); several are trained side by side
  --sampler NAME      instead of the method's: {samplers}
  --weighter NAME     instead of the method's: {weighters}

The settings below are those of the algorithm, sampler and weighter named; name others to see theirs.
With several methods, a setting holds for each of them that has it.
"""

MANY_PASSES = 400
"""Over a dataset: the published runs make 256, a million updates of a million rows; with IQL on 50,000 rows what is
learnt well by then is lost again by 1,000 (docs/log/iql.md, small sets)."""


@dataclass(frozen=True)
class Options:
    """Train policies and weights, many runs in one program."""

    dataset: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DATASET...")]
    """One or more datasets: files that winnow wrote, or anything that `winnow data import` reads."""
    out: Path
    """A folder for the runs: policies, weights, metrics and checkpoints."""
    steps: int = 1_000_000
    """Updates of each run."""
    seeds: int = 3
    """Runs of each kind, with seeds 0, 1, …"""
    batch_size: int = 256
    """Rows drawn for each update."""
    chunk: int = 5_000
    """Updates between two lines of metrics."""
    checkpoint_seconds: float = 30.0
    """The least time between two checkpoints: what a crash can cost, or a chunk where that takes longer."""
    resume: bool = False
    """Go on with what the folder holds, bit for bit, after a crash or a Ctrl-C. Give the same words again."""
    largest_pack: int | None = None
    """Runs in one program at the most, where the device's memory asks for it."""
    held_out: float = 0.01
    """Part of each dataset's rows that is never drawn: on these the training is watched for memorising. 0: none."""
    log: tuple[str, ...] = ()
    """Where else metrics go: tensorboard, wandb."""
    evaluate: bool = True
    """Play the policies in the dataset's environment, if it is known, beside the training."""
    evaluation: Evaluation = Evaluation()


def train(words: list[str], prog: str) -> None:
    """Read the names, then the options that go with them, and train."""
    from winnow.algorithms import ALGORITHMS
    from winnow.methods import METHODS, make_algorithm
    from winnow.samplers import SAMPLERS
    from winnow.weighters import WEIGHTERS

    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--algorithm", default="iql")
    first.add_argument("--method", default="dw-aw")
    first.add_argument("--sampler")
    first.add_argument("--weighter")
    names, rest = first.parse_known_args(words)
    pairs = [_parts(method, names) for method in names.method.split(",")]
    defaults = {"algorithm": make_algorithm(names.algorithm)}
    for family, parts in zip(("sampler", "weighter"), zip(*pairs, strict=True), strict=True):
        kinds = {_word(part): part for part in parts}
        defaults |= {family if len(kinds) == 1 else f"{family}.{word}": part for word, part in kinds.items()}
    tables = {"algorithms": ALGORITHMS, "methods": METHODS, "samplers": SAMPLERS, "weighters": WEIGHTERS}
    text = NAMES.format(**{name: ", ".join(table) for name, table in tables.items()})
    options, settings = _parse(rest, prog, defaults, f"{Options.__doc__}\n{text}")
    _go(options, names, settings)


def _parts(method: str, names: Any, rows: int | None = None) -> tuple[Any, Any]:
    """The sampler and the weighter of a method, or those that were named in their place."""
    from winnow.methods import make_sampler, make_weighter
    from winnow.methods import method as named

    sampler, weighter = named(method, names.algorithm, rows)
    return (
        make_sampler(names.sampler, names.algorithm, rows) if names.sampler else sampler,
        make_weighter(names.weighter, names.algorithm) if names.weighter else weighter,
    )


def _parse(words: list[str], prog: str, defaults: dict[str, Any], text: str) -> tuple[Options, dict[str, Any]]:
    """The general options and, for each plug-in named, its settings that were given (only those)."""
    fields: list[Any] = [("options", Annotated[Options, tyro.conf.arg(name="")])]
    places = {}
    for number, (place, default) in enumerate(defaults.items()):
        if dataclasses.fields(default):
            places[f"part{number}"] = (place, default)
            kind = Annotated[type(default), tyro.conf.arg(name=place)]
            fields.append((f"part{number}", kind, dataclasses.field(default=default)))
    whole = dataclasses.make_dataclass("Words", fields)
    parsed = tyro.cli(whole, args=words, prog=prog, description=text, config=(tyro.conf.OmitSubcommandPrefixes,))
    flags = {word.split("=")[0].replace("_", "-").replace(".no-", ".") for word in words}
    settings = {
        place: {
            field.name: getattr(getattr(parsed, part), field.name)
            for field in dataclasses.fields(default)
            if f"--{place}.{field.name}".replace("_", "-") in flags
        }
        for part, (place, default) in places.items()
    }
    return parsed.options, settings


def _go(options: Options, names: Any, settings: dict[str, Any]) -> None:
    """Plan the runs of every dataset, with its domain's settings and those that were given, and train them."""
    from winnow.data.sources import open_dataset
    from winnow.methods import make_algorithm
    from winnow.training import train_runs
    from winnow.training.planning import plan

    def given(family: str, part: Any) -> Any:
        chosen = settings.get(family, {}) | settings.get(f"{family}.{_word(part)}", {})
        return dataclasses.replace(part, **chosen)

    if not options.dataset:
        raise BadInput("no dataset is given; name at least one")
    runs, notes = [], {}
    for dataset in map(open_dataset, options.dataset):
        notes |= dict.fromkeys(_learnt_by_heart(dataset, options))
        algorithm = given("algorithm", make_algorithm(names.algorithm, dataset))
        for method in names.method.split(","):
            sampler, weighter = map(given, ("sampler", "weighter"), _parts(method, names, len(dataset)))
            runs += plan(dataset, algorithm, method, sampler=sampler, weighter=weighter, seeds=options.seeds)
            usual = given("sampler", _parts(method, names)[0])
            notes |= dict.fromkeys(_set_by_rows(dataset, usual, sampler, settings))
    for note in notes:
        print(note, flush=True)
    trained = train_runs(
        runs,
        steps=options.steps,
        batch_size=options.batch_size,
        chunk=options.chunk,
        out=options.out,
        resume=options.resume,
        checkpoint_seconds=options.checkpoint_seconds,
        largest_pack=options.largest_pack,
        log=options.log,
        evaluate=options.evaluation if options.evaluate else None,
        held_out=options.held_out,
    )
    summarise(trained, options.out)


def _learnt_by_heart(dataset: Any, options: Options) -> list[str]:
    """A line where so many updates go over the rows very often."""
    passes = options.steps * options.batch_size / len(dataset)
    if passes <= MANY_PASSES:
        return []
    fewer = float(f"{options.steps * MANY_PASSES / 2 / passes:.1g}")
    return [
        f"{dataset.meta.name}: {options.steps:,} updates go {passes:,.0f} times over its {len(dataset):,} rows, which "
        f"may be learnt by heart; compare with fewer, say --steps {max(fewer, 1):.0f}"
    ]


def _set_by_rows(dataset: Any, usual: Any, sampler: Any, settings: dict[str, Any]) -> list[str]:
    """A line for every setting of a sampler that the number of rows has decided, and nobody gave."""
    word, rows = _word(sampler), f"{dataset.meta.name}: has only {len(dataset):,} rows"
    place = "sampler" if "sampler" in settings else f"sampler.{word}"
    names = [field.name for field in dataclasses.fields(usual)]
    values = {name: (getattr(sampler, name), getattr(usual, name)) for name in names}
    return [
        f"{rows}, so {word}'s {name} is {here:g} in place of {elsewhere:g}, as published for small sets; "
        f"--{place}.{name} sets it"
        for name, (here, elsewhere) in values.items()
        if here != elsewhere
    ]


def _word(part: Any) -> str:
    """What a plug-in is called on the command line."""
    from winnow.plugins import record

    return record(part)["name"]


def summarise(trained: Sequence[Any], out: Path) -> None:
    """What was trained, where it is and what to do with it."""
    from rich.console import Console
    from rich.table import Table

    from winnow.system.metrics import read_metrics

    last = {line["run"]: line for line in read_metrics(out / "metrics.jsonl")}
    names = ("run", "steps", "weighted reward", "effective share", "return", "score", "state")
    table = Table(*names, title=str(out), title_justify="left")
    for one in trained:
        line = last.get(one.run.name, {})
        numbers = [f"{line[name]:.3f}" if name in line else "" for name in ("weight/reward", "weight/ess")]
        earned = [value for played in one.rounds if played.round for value in played.returns]
        numbers.append(f"{sum(earned) / len(earned):,.1f}" if earned else "")
        numbers.append("" if one.score is None else f"{one.score:.1f}")
        state = one.failure or ("trained, with warnings" if one.warnings else "trained")
        table.add_row(one.run.name, f"{one.steps:,}", *numbers, state)
    console = Console()
    console.print(table)
    for one in trained:
        for text in one.warnings:
            console.print(f"warning: {one.run.name}: {text}", soft_wrap=True, highlight=False, markup=False)
    good = [one.run.name for one in trained if not one.failure]
    if good:
        console.print(f"next: winnow weights {out / good[-1]}.safetensors", soft_wrap=True, highlight=False)
