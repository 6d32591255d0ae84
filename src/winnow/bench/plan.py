"""Planning: every run of a grid as plain settings with an id, and the packs they are trained in. Opens no dataset."""

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

from winnow.bench.overrides import Setting, fields_of, word
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
"""Raised when the same settings would give other results: earlier ones are then not taken for done."""
LONGEST_NAME = 150
"""Letters of a run's name, about: it becomes the name of a file, for which systems have 255 bytes."""
LARGEST = 256
"""Runs in one pack at the most: an H200 is hardly faster with more."""


def canonical(value: Any) -> str:
    """The one way to write a value as JSON, for hashing."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class How:
    """How every run of a grid is trained and played."""

    steps: int = 1_000_000
    batch_size: int = 256
    chunk: int = 20_000
    """Updates between two checkpoints and lines of metrics."""
    evaluation: Evaluation = Evaluation()
    held_out: float = HELD_OUT
    """Part of each dataset's rows that is never drawn: on these a run is watched for memorising."""

    def check(self) -> None:
        for name in ("steps", "batch_size", "chunk"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.held_out < 1:
            raise BadInput(f"held_out is {self.held_out}; it must be at least 0 and below 1")
        self.evaluation.check()


@dataclass(frozen=True, eq=False)
class Planned:
    """One run that is to be trained."""

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
    """What was typed for it: kept with the result, and no part of what decides it."""

    @cached_property
    def name(self) -> str:
        """What it is called: dataset, algorithm, method, what was swept, and seed."""
        changes = [f"{place}={word(value)}" for place, value in self.swept.items()]
        title = record(self.algorithm)["name"]
        words = ".".join([self.entry.text, title, self.method, *changes])
        if len(words) > LONGEST_NAME:
            words = f"{words[:LONGEST_NAME]}…{digest(words)[:8]}"
        return f"{words}.seed{self.seed}"

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
        """A hash of what decides the result: not of its name, of paths, or of who computed it."""
        return digest(self.config)

    @cached_property
    def shape(self) -> Hashable:
        """Runs with the same one can be trained in one program."""
        return jax.tree.structure((self.algorithm, self.weighter)), self.entry.sizes


@lru_cache(maxsize=4096)
def identity(text: str) -> dict[str, Any]:
    """What decides a dataset's rows: of regenerated data the policies and the physics, of D4RL's the file's sum."""
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
        """Its plug-ins for a dataset, by family, and which settings are not the method's own, as `family.field`."""
        sampler, weighter = method(self.method, self.algorithm, entry.rows)
        made: dict[str, Any] = {"algorithm": make_algorithm(self.algorithm, entry.environment)}
        made |= {"sampler": sampler, "weighter": weighter}
        changed: dict[str, Any] = {}
        for setting in self.settings:
            part = made[setting.family]
            if setting.field not in fields_of(part):
                near = ", ".join(fields_of(part)) or "none"
                raise BadInput(f"{self.method} with {self.algorithm}: has no {setting.place}; there are {near}")
            made[setting.family], value = setting.applied(part, setting.values[0])
            if value != getattr(part, setting.field):
                changed[setting.place] = value
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
    for option, words in {"--algorithms": algorithms, "--methods": methods}.items():
        if not words:
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
    """Every dataset with every kind, swept setting and seed, each once: what comes twice is planned as it comes first.

    A sweep is FAMILY.FIELD=VALUE,VALUE,… where the family is algorithm, sampler or weighter; several are combined.
    It holds for every run that has the field; the others are planned once.
    """
    how.check()
    if seeds < 1:
        raise BadInput(f"seeds is {seeds}; it must be at least 1")
    wanted = [Setting.parse(text) for text in sweeps]
    if twice := [sweep for number, sweep in enumerate(wanted) if sweep.place in {s.place for s in wanted[:number]}]:
        raise BadInput(f"--sweep {twice[0].place}: is given twice; put all its values in one, with commas")
    if fixed := {one.place for kind in kinds for one in kind.settings} & {sweep.place for sweep in wanted}:
        raise BadInput(f"--sweep {min(fixed)}: the study sets it itself; sweep it in a grid of its own")
    used: set[Setting] = set()
    known: set[str] = set()
    runs: dict[str, Planned] = {}
    for entry, kind in itertools.product(entries, kinds):
        parts, changed = kind.parts(entry)
        fitting = [sweep for sweep in wanted if sweep.field in fields_of(parts[sweep.family])]
        used.update(fitting)
        for values in itertools.product(*(sweep.values for sweep in fitting)):
            made, swept = dict(parts), dict(changed)
            for sweep, text in zip(fitting, values, strict=True):
                made[sweep.family], swept[sweep.place] = sweep.applied(made[sweep.family], text)
            _check(*made.values())
            for seed in range(seeds):
                run = Planned(entry, **made, seed=seed, how=how, method=kind.method, swept=swept, command=command)
                runs.setdefault(run.id, run)
            known.update({f"{family}.{field}" for family, part in made.items() for field in fields_of(part)})
    if unused := [sweep for sweep in wanted if sweep not in used]:
        near = [place for place in sorted(known) if place.startswith(f"{unused[0].family}.")] or sorted(known)
        raise BadInput(f"--sweep {unused[0].place}: no run here has that field; there are {', '.join(near)}")
    return list(runs.values())


@lru_cache(maxsize=4096)
def _check(algorithm: Algorithm, sampler: Sampler, weighter: Weighter) -> None:
    """Refuse settings outside their range."""
    for family, part in {"algorithm": algorithm, "sampler": sampler, "weighter": weighter}.items():
        check_settings(part, family)


# ------------------------------------------------------------------------------------------------------ packs


def packs(runs: Sequence[Planned], largest: int = LARGEST) -> list[list[Planned]]:
    """Runs in packs of one shape and at most `largest`, those of an environment beside each other.

    The packs of a shape are about as large as each other, and those of an environment follow one another: they share
    its data.
    """
    if largest < 1:
        raise BadInput(f"largest_pack is {largest}; it must be at least 1")
    places = list(dict.fromkeys(run.entry.environment for run in runs))
    groups: dict[Hashable, list[Planned]] = {}
    for run in sorted(runs, key=lambda run: places.index(run.entry.environment)):
        groups.setdefault(run.shape, []).append(run)
    made = [part for group in groups.values() for part in cut(group, -(-len(group) // largest))]
    return sorted(made, key=lambda pack: places.index(pack[0].entry.environment))


def cut(runs: Sequence[Planned], parts: int) -> list[list[Planned]]:
    """Runs in so many stretches of about the same length."""
    edges = [len(runs) * number // parts for number in range(parts + 1)]
    return [list(runs[low:high]) for low, high in itertools.pairwise(edges)]


def shard(runs: Sequence[Planned], number: int, count: int, largest: int = LARGEST) -> list[list[Planned]]:
    """The packs of one of `count` machines: each pack is one machine's, and every algorithm is dealt out evenly.

    It depends on the runs and on `largest` alone, so that machines need not talk to each other.
    """
    if not 1 <= number <= count:
        raise BadInput(f"--shard {number}/{count}: is not one of 1/{count} to {count}/{count}")
    whole = packs(runs, min(largest, -(-len(runs) // count)) or 1)
    loads: dict[str, list[int]] = {}
    total, mine = [0] * count, []
    for pack in sorted(whole, key=len, reverse=True):
        load = loads.setdefault(record(pack[0].algorithm)["name"], [0] * count)
        place = min(range(count), key=lambda each: (load[each], total[each], each))
        load[place] += len(pack)
        total[place] += len(pack)
        if place == number - 1:
            mine.append(pack)
    return sorted(mine, key=whole.index)
