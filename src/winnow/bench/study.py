"""What a study is: variants of methods, each with a name and a few settings, on some datasets with some algorithms.

Variants change settings as a sweep does, but need not be a product. A study is only a plan: its runs are ordinary runs,
so those that a grid has finished are not trained again.
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
"""Prefix of a study's name on the command line."""


@dataclass(frozen=True)
class Variant:
    """One line of a study: a method, and what is changed in it."""

    label: str
    method: str
    settings: tuple[str, ...] = ()
    """As a sweep writes them, with one value: weighter.lambda_k=0.2."""
    algorithms: tuple[str, ...] = ()
    """Only with these algorithms; with all of the study if empty."""
    group: str = ""
    """Name of what is tuned, shared by the variants that are its settings."""

    def kind(self, algorithm: str) -> Kind:
        return Kind(algorithm, self.method, tuple(map(Setting.parse, self.settings)))

    def value(self, path: str) -> float | None:
        """The number that it gives to a setting; None if it does not change it."""
        changes = (setting.partition("=") for setting in self.settings)
        return next((float(text) for changed, _, text in changes if changed == path), None)


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
    """The two settings whose product it is, with their symbols: for a map of the scores."""

    @property
    def paths(self) -> set[str]:
        """The settings that its variants change, as `family.field`."""
        return {setting.partition("=")[0] for variant in self.variants for setting in variant.settings}

    def compared(self, algorithm: str) -> list[Variant]:
        """The variants that are trained with an algorithm."""
        return [variant for variant in self.variants if not variant.algorithms or algorithm in variant.algorithms]

    def cells(self, algorithms: Sequence[str] = (), methods: Sequence[str] = ()) -> list[tuple[str, Variant]]:
        """What is trained on each dataset: pairs of algorithm and variant, or only those of some algorithms and
        methods."""
        known = {variant.method: None for variant in self.variants}
        if wrong := [name for name in methods if name not in known]:
            raise BadInput(f"--methods {wrong[0]}: is not part of {PREFIX}{self.name}; there are {', '.join(known)}")
        cells = []
        for algorithm in algorithms or self.algorithms:
            variants = self.compared(algorithm)
            if len(variants) < 2:
                raise BadInput(f"--algorithms {algorithm}: {PREFIX}{self.name} has nothing to compare there")
            cells += [(algorithm, variant) for variant in variants if not methods or variant.method in methods]
        if not cells:
            raise BadInput(f"{PREFIX}{self.name}: has none of these --methods with these --algorithms")
        return cells

    def entries(self, *, rows: int | None = None, version: str = "") -> list[Entry]:
        """Its datasets, as `suites.entries` finds them; with D4RL's version, names of mixtures mean D4RL's data too."""
        names = [f"{name}-{VERSION}" if version and "%" in name else name for name in self.datasets]
        return suites.entries(names, rows=rows, version=version)

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
