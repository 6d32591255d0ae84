"""`winnow train`: its options are those of the algorithm and the method that the command line itself names."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import tyro

from winnow.commands import config
from winnow.commands._shared import answer
from winnow.errors import BadInput
from winnow.evaluation.settings import Evaluation
from winnow.system.progress import warn

DEFAULT_METHOD = "auto"
MANY_PASSES = 400
"""Passes over a dataset from which on the command warns. The published runs make 256 (a million updates, a million
rows); with IQL on 50,000 rows, scores have dropped again after 1,000 (docs/log/iql.md, small sets)."""


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
    """Rows sampled for each update."""
    chunk: int = 5_000
    """Updates between two lines of metrics."""
    checkpoint_seconds: float = 30.0
    """Minimum time between two checkpoints. A crash loses at most this much work, or one chunk if that is longer."""
    resume: bool = False
    """Continue from the folder's checkpoints, bit for bit, after a crash or Ctrl-C. Run the same command again."""
    largest_pack: int | None = None
    """Maximum number of runs in one program, for devices with little memory."""
    held_out: float = 0.01
    """Fraction of each dataset's rows that training never samples, to see whether a policy overfits. 0: none."""
    log: tuple[str, ...] = ()
    """Where else metrics go: tensorboard, wandb."""
    evaluate: bool = True
    """Play the policies in the dataset's environment, if it is known, while training goes on."""
    evaluation: Evaluation = Evaluation()
    json: bool = False
    """Print the result as one JSON object on stdout; everything else goes to stderr."""
    write_config: Path | None = None
    """Write these options to a TOML file for --config, and train nothing."""


class Names(NamedTuple):
    """The four options that say what is trained; all others depend on them."""

    algorithm: str
    method: str
    sampler: str | None
    weighter: str | None


def train(arguments: list[str], prog: str) -> None:
    """Read the names, then the options that go with them, and train."""
    from winnow.commands.table import epilogue
    from winnow.commands.train_help import names as names_in_help

    names, rest = _names(arguments)
    text = f"{Options.__doc__}\n{names_in_help(DEFAULT_METHOD)}{epilogue('train')}"
    if any(word.partition("=")[0].replace("_", "-") == "--write-config" for word in rest):
        rest = [*rest, *(() if any(word.partition("=")[0] == "--out" for word in rest) else ("--out", "runs"))]
    options, settings = _parse(rest, prog, _defaults(names), text)
    if options.write_config is not None:
        from winnow.commands.train_config import write

        write(options.write_config, options, names, _defaults(names), settings)
        print(f"config {options.write_config}\nnext: winnow train --config {options.write_config}")
        return
    with answer(options.json) as report:
        report(_go(options, names, settings))


def options(arguments: list[str], asked: Mapping[str, Any]) -> config.Options:
    """The options that --config may set, given the names on the command line and in the file."""
    known = dict.fromkeys(Names._fields, config.Option()) | config.options_of_dataclass(Options)
    in_file = [word for name in Names._fields if name in asked for word in (f"--{name}", _joined(asked[name]))]
    for prefix, default in _defaults(_names([*in_file, *arguments])[0]).items():
        known |= config.options_of_dataclass(type(default), f"{prefix}.")
    return known


def _joined(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _names(arguments: list[str]) -> tuple[Names, list[str]]:
    """The names among the words of a command line, and the words that are left."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--algorithm", default="iql")
    parser.add_argument("--method", default=DEFAULT_METHOD)
    parser.add_argument("--sampler")
    parser.add_argument("--weighter")
    parsed, rest = parser.parse_known_args(arguments)
    return Names(parsed.algorithm, parsed.method, parsed.sampler, parsed.weighter), rest


def _defaults(names: Names) -> dict[str, Any]:
    """The plug-ins that the names mean, each under the prefix of its settings."""
    from winnow.methods import make_algorithm

    pairs = [_parts(method, names) for method in names.method.split(",")]
    defaults: dict[str, Any] = {"algorithm": make_algorithm(names.algorithm)}
    for family, parts in zip(("sampler", "weighter"), zip(*pairs, strict=True), strict=True):
        kinds = {_word(part): part for part in parts}
        defaults |= {family if len(kinds) == 1 else f"{family}.{word}": part for word, part in kinds.items()}
    return defaults


def _parts(method: str, names: Names, dataset: Any = None) -> tuple[Any, Any]:
    """The sampler and the weighter of a method, or those that were named in their place. Without a dataset `auto` is
    plain uniform sampling: it has no settings."""
    from winnow.data.advice import AUTO
    from winnow.methods import for_dataset, make_sampler, make_weighter
    from winnow.methods import method as named

    if dataset is None:
        sampler, weighter = named("uniform" if method == AUTO else method, names.algorithm)
    else:
        _, sampler, weighter, _ = for_dataset(method, dataset, names.algorithm)
    return (
        make_sampler(names.sampler, names.algorithm) if names.sampler else sampler,
        make_weighter(names.weighter, names.algorithm) if names.weighter else weighter,
    )


def _parse(arguments: list[str], prog: str, defaults: dict[str, Any], text: str) -> tuple[Options, dict[str, Any]]:
    """The general options and, for each plug-in named, its settings that were given (only those)."""
    fields: list[Any] = [("options", Annotated[Options, tyro.conf.arg(name="")])]
    places = {}
    for number, (prefix, default) in enumerate(defaults.items()):
        if dataclasses.fields(default):
            places[f"part{number}"] = (prefix, default)
            shown = _with_ranges(default)
            kind = Annotated[type(shown), tyro.conf.arg(name=prefix)]
            fields.append((f"part{number}", kind, dataclasses.field(default=shown)))
    whole = dataclasses.make_dataclass("CommandLine", fields)
    parsed = tyro.cli(whole, args=arguments, prog=prog, description=text, config=(tyro.conf.OmitSubcommandPrefixes,))
    flags = {word.split("=")[0].replace("_", "-").replace(".no-", ".") for word in arguments}
    settings = {
        prefix: {
            field.name: getattr(getattr(parsed, part), field.name)
            for field in dataclasses.fields(default)
            if f"--{prefix}.{field.name}".replace("_", "-") in flags
        }
        for part, (prefix, default) in places.items()
    }
    return parsed.options, settings


def _with_ranges(default: Any) -> Any:
    """The same settings, whose help says which numbers are allowed."""
    from winnow.types import allowed_range  # which imports jax

    hints = get_type_hints(type(default))
    fields = [
        (
            field.name,
            Annotated[hints[field.name], tyro.conf.arg(metavar=f"{hints[field.name].__name__.upper()} {span}")],
            dataclasses.field(default=getattr(default, field.name)),
        )
        for field in dataclasses.fields(default)
        if (span := allowed_range(field))
    ]
    kind = dataclasses.make_dataclass(type(default).__name__, fields, bases=(type(default),), frozen=True)
    kind.__doc__ = type(default).__doc__
    return kind(**{field.name: getattr(default, field.name) for field in dataclasses.fields(default)})


def _go(options: Options, names: Names, settings: dict[str, Any]) -> dict[str, Any]:
    """Plan the runs of every dataset, with its domain's settings and those that were given, and train them. Returns
    the record for --json."""
    from winnow.data.advice import AUTO, advise
    from winnow.data.sources import open_dataset
    from winnow.methods import make_algorithm
    from winnow.training import train_runs
    from winnow.training.planning import plan

    def given(family: str, part: Any) -> Any:
        chosen = settings.get(family, {}) | settings.get(f"{family}.{_word(part)}", {})
        return dataclasses.replace(part, **chosen)

    if not options.dataset:
        raise BadInput("no dataset is given; name at least one")
    runs = []
    notes: dict[str, None] = {}
    for dataset in map(open_dataset, options.dataset):
        notes |= dict.fromkeys(_overfitting(dataset, options))
        algorithm = _with_settings(make_algorithm(names.algorithm, dataset), settings.get("algorithm", {}))
        meant = names._replace(algorithm=_word(algorithm))
        for method in names.method.split(","):
            sampler, weighter = map(given, ("sampler", "weighter"), _parts(method, meant, dataset))
            runs += plan(dataset, algorithm, method, sampler=sampler, weighter=weighter, seeds=options.seeds)
            if method == AUTO:
                notes[advise(dataset).line(dataset.meta.name)] = None
    for note in notes:
        warn(note)
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
    from winnow.commands.train_table import record, show

    if not options.json:
        show(trained, options.out)
    return record(trained, options.out, list(notes))


def _with_settings(algorithm: Any, settings: dict[str, Any]) -> Any:
    """The algorithm with the given settings, which it may lack where a name means its discrete form."""
    known = [field.name for field in dataclasses.fields(algorithm)]
    if lacking := [name for name in settings if name not in known]:
        raise BadInput(f"{_word(algorithm)} has no setting {lacking[0]!r}; it has {', '.join(known)}")
    return dataclasses.replace(algorithm, **settings)


def _overfitting(dataset: Any, options: Options) -> list[str]:
    """A warning where so many updates pass over the rows very often."""
    passes = options.steps * options.batch_size / len(dataset)
    if passes <= MANY_PASSES:
        return []
    fewer = float(f"{options.steps * MANY_PASSES / 2 / passes:.1g}")
    return [
        f"{dataset.meta.name}: {options.steps:,} updates pass {passes:,.0f} times over its {len(dataset):,} rows, so "
        f"the policy may overfit; compare with fewer, say --steps {max(fewer, 1):.0f}"
    ]


def _word(part: Any) -> str:
    """What a plug-in is called on the command line."""
    from winnow.plugins import record

    return record(part)["name"]
