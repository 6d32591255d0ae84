"""What a study is: variants of methods, each with a name and a few settings, on some datasets with some algorithms.

Variants change settings as a sweep does, but need not be a product. A study is only a plan: its runs are ordinary ones,
so a run that a grid has done already is not done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from winnow.bench import suites
from winnow.bench.overrides import Setting
from winnow.bench.plan import How, Kind, Planned, planned
from winnow.bench.suites import Entry
from winnow.data.names import VERSION
from winnow.errors import BadInput

PREFIX = "study:"
"""What its name has before it among the words of a grid."""


@dataclass(frozen=True)
class Variant:
    """One line of a study: a method, and what is changed in it."""

    label: str
    method: str
    settings: tuple[str, ...] = ()
    """As a sweep writes them, with one value: weighter.lambda_k=0.2."""
    algorithms: tuple[str, ...] = ()
    """Only with these; with every one of the study if empty."""
    group: str = ""
    """Variants that are the tuning of one thing have its name here."""

    def kind(self, algorithm: str) -> Kind:
        return Kind(algorithm, self.method, tuple(map(Setting.parse, self.settings)))

    def value(self, place: str) -> float | None:
        """The number that it gives to a setting, if it does."""
        return next((float(one.partition("=")[2]) for one in self.settings if one.startswith(f"{place}=")), None)


@dataclass(frozen=True)
class Study:
    """A question, and the runs that answer it."""

    name: str
    question: str
    paper: str
    """Where the paper asks it, or that it does not."""
    datasets: tuple[str, ...]
    """Suites or names."""
    algorithms: tuple[str, ...]
    variants: tuple[Variant, ...]
    remark: str = ""
    axes: tuple[tuple[str, str], ...] = ()
    """Two settings whose product it is, and what they are called: for a map of the scores."""

    @property
    def places(self) -> set[str]:
        """The settings that its variants change, as `family.field`."""
        return {one.partition("=")[0] for variant in self.variants for one in variant.settings}

    def compared(self, algorithm: str) -> list[Variant]:
        """The variants that are trained with an algorithm."""
        return [one for one in self.variants if not one.algorithms or algorithm in one.algorithms]

    def cells(self, algorithms: Sequence[str] = (), methods: Sequence[str] = ()) -> list[tuple[str, Variant]]:
        """What is trained on each dataset: algorithms and variants, or those of some algorithms and methods."""
        there = {variant.method: None for variant in self.variants}
        if wrong := [word for word in methods if word not in there]:
            raise BadInput(f"--methods {wrong[0]}: is not part of {PREFIX}{self.name}; there are {', '.join(there)}")
        found = []
        for algorithm in algorithms or self.algorithms:
            some = self.compared(algorithm)
            if len(some) < 2:
                raise BadInput(f"--algorithms {algorithm}: {PREFIX}{self.name} has nothing to compare there")
            found += [(algorithm, one) for one in some if not methods or one.method in methods]
        if not found:
            raise BadInput(f"{PREFIX}{self.name}: has none of these --methods with these --algorithms")
        return found

    def entries(self, *, rows: int | None = None, version: str = "") -> list[Entry]:
        """Its datasets, as `suites.entries` finds them; with D4RL's version, names of mixtures mean D4RL's data too."""
        words = [f"{word}-{VERSION}" if version and "%" in word else word for word in self.datasets]
        return suites.entries(words, rows=rows, version=version)

    def runs(
        self,
        entries: Sequence[Entry],
        seeds: int,
        how: How,
        *,
        algorithms: Sequence[str] = (),
        methods: Sequence[str] = (),
        sweeps: Sequence[str] = (),
        command: str = "",
    ) -> list[Planned]:
        """Every dataset with every variant and seed, each once."""
        kinds = [variant.kind(algorithm) for algorithm, variant in self.cells(algorithms, methods)]
        return planned(entries, kinds, seeds, how, sweeps, command)
