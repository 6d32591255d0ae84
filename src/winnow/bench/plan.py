"""Plans a grid: every run as plain settings with an id, and the packs that train them. Opens no dataset."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import jax

from winnow.bench.overrides import Setting, as_text, fields_of
from winnow.bench.suites import Entry
from winnow.data import d4rl, pools
from winnow.data.names import level, parse
from winnow.errors import BadInput
from winnow.evaluation.settings import Evaluation
from winnow.methods import make_algorithm, method
from winnow.plugins import record
from winnow.samplers import Sampler
from winnow.training import HELD_OUT
from winnow.types import Algorithm, Weighter, check_settings

FORMAT = 2
"""Increased when the same settings would give other results, so that earlier results do not count as done."""
LONGEST_NAME = 150
"""Approximate maximum length of a run's name: it becomes a file name, which may have 255 bytes."""
LARGEST = 256
"""Maximum number of runs in one pack: an H200 is hardly faster with more."""


def canonical(value: Any) -> str:
    """The one way to write a value as JSON, for hashing."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class How:
    """How every run of a grid is trained and evaluated."""

    steps: int = 1_000_000
    batch_size: int = 256
    chunk: int = 20_000
    """Updates between two checkpoints and lines of metrics."""
    evaluation: Evaluation = Evaluation()
    held_out: float = HELD_OUT
    """Fraction of each dataset's rows that is never sampled, to see whether a run overfits."""

    def check(self) -> None:
        for name in ("steps", "batch_size", "chunk"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.held_out < 1:
            raise BadInput(f"held_out must be at least 0 and below 1, got {self.held_out}; 1 % is 0.01")
        self.evaluation.check()


@dataclass(frozen=True, eq=False)
class Planned:
    """One run of a plan."""

    entry: Entry
    algorithm: Algorithm
    sampler: Sampler
    weighter: Weighter
    seed: int
    how: How
    method: str
    swept: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Settings that a sweep has changed, as `family.field`."""
    command: str = ""
    """The command that asked for it: kept with the result, and no part of its id."""

    @cached_property
    def name(self) -> str:
        """Dataset, algorithm, method, swept settings and seed."""
        changes = [f"{path}={as_text(value)}" for path, value in self.swept.items()]
        title = record(self.algorithm)["name"]
        group = ".".join([self.entry.text, title, self.method, *changes])
        if len(group) > LONGEST_NAME:
            group = f"{group[:LONGEST_NAME]}…{digest(group)[:8]}"
        return f"{group}.seed{self.seed}"

    @cached_property
    def config(self) -> dict[str, Any]:
        """Everything that decides the result, as plain JSON."""
        how = self.how
        return {
            "format": FORMAT,
            "dataset": identity(self.entry.text),
            "environment": self.entry.environment,
            "algorithm": record(self.algorithm),
            "sampler": record(self.sampler),
            "weighter": record(self.weighter),
            "seed": self.seed,
            "steps": how.steps,
            "batch_size": how.batch_size,
            "chunk": how.chunk,
            "evaluation": how.evaluation.record(),
            "held_out": how.held_out,
        }

    @cached_property
    def id(self) -> str:
        """A hash of what decides the result: not of its name, of paths, or of the machine."""
        return digest(self.config)

    @cached_property
    def shape(self) -> Hashable:
        """Runs of equal shape can be trained in one program."""
        return jax.tree.structure((self.algorithm, self.weighter)), self.entry.sizes


@lru_cache(maxsize=4096)
def identity(text: str) -> dict[str, Any]:
    """What decides a dataset's rows: policies and physics for regenerated data, the file's checksum for D4RL's."""
    name = parse(text)
    if name.kind == "d4rl":
        return {"name": text, "file": d4rl.FILES[text].sha256}
    if name.kind == "pool":
        return {"name": text, "pool": _pool_key(name.environment, level(text)), "rows": name.pool_rows}
    assert name.recipe is not None
    return {"name": text, "sources": [identity(source) for source in name.sources]} | dataclasses.asdict(name.recipe)


@lru_cache
def _pool_key(environment: str, policy: str) -> str:
    return pools.Job(environment, policy).key


# --------------------------------------------------------------------------------------------------- the grid


@dataclass(frozen=True)
class Kind:
    """What is trained on each dataset: an algorithm with a method, in which some settings may be changed."""

    algorithm: str
    method: str
    settings: tuple[Setting, ...] = ()

    def parts(self, entry: Entry) -> tuple[dict[str, Any], dict[str, Any]]:
        """Its plug-ins for a dataset, by family, and the changed settings by `family.field`."""
        sampler, weighter = method(self.method, self.algorithm, entry.rows)
        made: dict[str, Any] = {"algorithm": make_algorithm(self.algorithm, entry.environment)}
        made |= {"sampler": sampler, "weighter": weighter}
        changed: dict[str, Any] = {}
        for setting in self.settings:
            part = made[setting.family]
            if setting.field not in fields_of(part):
                near = ", ".join(fields_of(part)) or "none"
                raise BadInput(f"{self.method} with {self.algorithm}: has no {setting.path}; there are {near}")
            made[setting.family], value = setting.applied(part, setting.values[0])
            if value != getattr(part, setting.field):
                changed[setting.path] = value
        return made, changed


def grid(
    entries: Sequence[Entry],
    algorithms: Sequence[str],
    methods: Sequence[str],
    seeds: int,
    how: How,
    sweeps: Sequence[str] = (),
    command: str = "",
) -> list[Planned]:
    """Every dataset with every algorithm, method, swept setting and seed, each once."""
    for option, names in {"--algorithms": algorithms, "--methods": methods}.items():
        if not names:
            raise BadInput(f"{option} is empty; name at least one")
    kinds = [Kind(algorithm, title) for algorithm, title in itertools.product(algorithms, methods)]
    return planned(entries, kinds, seeds, how, sweeps, command)


def planned(
    entries: Sequence[Entry],
    kinds: Sequence[Kind],
    seeds: int,
    how: How,
    sweeps: Sequence[str] = (),
    command: str = "",
) -> list[Planned]:
    """Every dataset with every kind, swept setting and seed, each once: of equal runs the first is kept.

    A sweep is FAMILY.FIELD=VALUE,VALUE,… where the family is algorithm, sampler or weighter; several are combined.
    It applies to every run that has the field; the others are planned once.
    """
    how.check()
    if seeds < 1:
        raise BadInput(f"seeds must be at least 1, got {seeds}")
    wanted = [Setting.parse(text) for text in sweeps]
    if twice := [sweep for number, sweep in enumerate(wanted) if sweep.path in {s.path for s in wanted[:number]}]:
        raise BadInput(f"--sweep {twice[0].path} is given twice; put all its values in one, with commas")
    if fixed := {setting.path for kind in kinds for setting in kind.settings} & {sweep.path for sweep in wanted}:
        raise BadInput(f"--sweep {min(fixed)}: the study sets it itself; sweep it in a grid of its own")
    used: set[Setting] = set()
    known: set[str] = set()
    runs: dict[str, Planned] = {}
    for entry, kind in itertools.product(entries, kinds):
        parts, changed = kind.parts(entry)
        fitting = [sweep for sweep in wanted if sweep.field in fields_of(parts[sweep.family])]
        used.update(fitting)
        for values in itertools.product(*(sweep.values for sweep in fitting)):
            made = dict(parts)
            swept = dict(changed)
            for sweep, text in zip(fitting, values, strict=True):
                made[sweep.family], swept[sweep.path] = sweep.applied(made[sweep.family], text)
            _check(*made.values())
            for seed in range(seeds):
                run = Planned(entry, **made, seed=seed, how=how, method=kind.method, swept=swept, command=command)
                runs.setdefault(run.id, run)
            known.update({f"{family}.{field}" for family, part in made.items() for field in fields_of(part)})
    if unused := [sweep for sweep in wanted if sweep not in used]:
        near = [path for path in sorted(known) if path.startswith(f"{unused[0].family}.")] or sorted(known)
        raise BadInput(f"--sweep {unused[0].path}: no run has this field; there are {', '.join(near)}")
    return list(runs.values())


@lru_cache(maxsize=4096)
def _check(algorithm: Algorithm, sampler: Sampler, weighter: Weighter) -> None:
    """Refuse settings outside their range."""
    for family, part in {"algorithm": algorithm, "sampler": sampler, "weighter": weighter}.items():
        check_settings(part, family)


# ------------------------------------------------------------------------------------------------------ packs


def packs(runs: Sequence[Planned], largest: int = LARGEST) -> list[list[Planned]]:
    """Runs in packs of one shape and at most `largest` runs.

    The packs of a shape have about the same size, and packs of one environment follow one another because they share
    its data.
    """
    if largest < 1:
        raise BadInput(f"largest_pack must be at least 1, got {largest}")
    environments = list(dict.fromkeys(run.entry.environment for run in runs))
    groups: dict[Hashable, list[Planned]] = {}
    for run in sorted(runs, key=lambda run: environments.index(run.entry.environment)):
        groups.setdefault(run.shape, []).append(run)
    made = [part for group in groups.values() for part in cut(group, -(-len(group) // largest))]
    return sorted(made, key=lambda pack: environments.index(pack[0].entry.environment))


def cut(runs: Sequence[Planned], parts: int) -> list[list[Planned]]:
    """Runs divided into so many parts of about equal length, in order."""
    edges = [len(runs) * number // parts for number in range(parts + 1)]
    return [list(runs[low:high]) for low, high in itertools.pairwise(edges)]


def shard(runs: Sequence[Planned], number: int, count: int, largest: int = LARGEST) -> list[list[Planned]]:
    """The packs of one of `count` machines. Each pack belongs to one machine, and every algorithm is spread evenly.

    The result depends only on the runs and on `largest`, so machines need not talk to each other.
    """
    if not 1 <= number <= count:
        raise BadInput(f"--shard must be one of 1/{count} to {count}/{count}, got {number}/{count}")
    whole = packs(runs, min(largest, -(-len(runs) // count)) or 1)
    loads: dict[str, list[int]] = {}
    total = [0] * count
    mine = []
    for pack in sorted(whole, key=len, reverse=True):
        load = loads.setdefault(record(pack[0].algorithm)["name"], [0] * count)
        machine = min(range(count), key=lambda each: (load[each], total[each], each))
        load[machine] += len(pack)
        total[machine] += len(pack)
        if machine == number - 1:
            mine.append(pack)
    return sorted(mine, key=whole.index)
