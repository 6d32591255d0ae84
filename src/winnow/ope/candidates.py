"""The candidates of `winnow tune`: methods, with settings that may differ from the defaults."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from winnow.data.advice import AUTO, advise
from winnow.data.dataset import Dataset
from winnow.errors import BadInput
from winnow.methods import METHODS, method, resized
from winnow.samplers import SAMPLERS
from winnow.weighters import WEIGHTERS


@dataclass(frozen=True)
class Candidate:
    """A method, and the settings that differ from its defaults: `sampler.temperature`, `weighter.budget`, …"""

    method: str
    settings: tuple[tuple[str, float], ...] = ()

    @property
    def label(self) -> str:
        """The name in tables and files: dual-aw or dual-aw~budget=0.5."""
        return "".join([self.method, *(f"~{name.split('.')[1]}={value:g}" for name, value in self.settings)])

    @property
    def options(self) -> list[str]:
        """The options of `winnow train` for this candidate."""
        pairs = [(f"--{name.replace('_', '-')}", f"{value:g}") for name, value in self.settings]
        return ["--method", self.method, *(part for pair in pairs for part in pair)]

    @property
    def has_layers(self) -> bool:
        """Whether the weighter has networks."""
        return hasattr(WEIGHTERS[METHODS[self.method][1]], "hidden")

    @classmethod
    def parse(cls, text: str) -> Candidate:
        """METHOD, or METHOD:sampler.temperature=0.5,weighter.budget=1"""
        name, _, rest = text.partition(":")
        settings = []
        for part in filter(None, rest.split(",")):
            path, _, value = (side.strip() for side in part.partition("="))
            family, _, setting = path.partition(".")
            try:
                number = float(value)
            except ValueError:
                number = None
            if number is None or family not in ("sampler", "weighter") or not setting:
                raise BadInput(
                    f"candidate {text!r}: settings must be sampler.NAME=NUMBER or weighter.NAME=NUMBER, got {part!r}"
                )
            settings.append((path.replace("-", "_"), number))
        return cls(name.strip(), tuple(settings))

    @property
    def cost(self) -> tuple[bool, bool, int, int]:
        """What makes it less simple, the worst first: a learned weighter, a fitted sampler, changed settings, a later
        place among the samplers."""
        sampler, weighter = METHODS[self.method]
        return weighter != "none", sampler in FITTED, len(self.settings), list(SAMPLERS).index(sampler)

    def resolved(self, dataset: Dataset) -> Candidate:
        """The candidate with the method that `auto` chooses for a dataset in its place."""
        if self.method != AUTO:
            return self
        advice = advise(dataset)
        return Candidate(advice.method, tuple({**advice.settings, **dict(self.settings)}.items()))

    def parts(self, algorithm: str, hidden: tuple[int, ...] | None) -> tuple[Any, Any]:
        """Its sampler and its weighter."""
        both: dict[str, Any] = dict(zip(("sampler", "weighter"), method(self.method, algorithm), strict=True))
        for path, value in self.settings:
            family, name = path.split(".")
            kind = {field.name: type(getattr(both[family], field.name)) for field in dataclasses.fields(both[family])}
            if kind.get(name) not in (int, float):
                numbers = ", ".join(field for field in kind if kind[field] in (int, float)) or "none"
                raise BadInput(f"candidate {self.label}: its {family} has no number {name!r} to set; it has {numbers}")
            both[family] = dataclasses.replace(both[family], **{name: kind[name](value)})
        return both["sampler"], resized(both["weighter"], hidden) if hidden else both["weighter"]


GRID = tuple(
    Candidate.parse(text)
    for text in (
        "uniform",
        "aw",
        "continued",
        "dual-uniform",
        "dw-aw",
        "pf",
        "dw-uniform",
        "dual-aw",
        "aw:sampler.temperature=1",
        "dual-aw:weighter.budget=0.5",
        "pf:sampler.share=0.5",
        "dw-aw:weighter.lambda_k=0.2,weighter.lambda_f=0.1",
    )
)
"""What is tried where nothing is named, after the method that `auto` chooses. With few runs the last are left out:
usual settings come before others."""
FITTED = ("continued", "followed", "odpr-a")
"""Samplers that fit a network first."""
EPISODELESS = ("uniform", "dual-uniform", "dw-uniform")
"""Methods that need no episodes."""


def usual(dataset: Dataset) -> list[Candidate]:
    """What is tried on a dataset where nothing is named: the method that `auto` chooses, and then the grid."""
    first = Candidate(AUTO).resolved(dataset)
    fitting = [item for item in GRID if dataset.has_episodes or item.method in EPISODELESS]
    return [first, *(item for item in fitting if item.label != first.label)]
