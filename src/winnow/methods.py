"""The shorthands everyone uses: a method is a sampler and a weighter, set as its algorithm was tuned with."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

from winnow.algorithms import ALGORITHMS
from winnow.data.dataset import Dataset
from winnow.errors import BadInput
from winnow.samplers import SAMPLERS, Sampler
from winnow.types import Algorithm, Weighter
from winnow.weighters import WEIGHTERS

METHODS: dict[str, tuple[str, str]] = {
    "uniform": ("uniform", "none"),
    "aw": ("aw", "none"),
    "pf": ("pf", "none"),
    "rw": ("rw", "none"),
    "dw-uniform": ("uniform", "density"),
    "dw-aw": ("aw", "density"),
    "dual-uniform": ("uniform", "dual"),
    "dual-aw": ("aw", "dual"),
    "optidice-w": ("uniform", "optidice"),
    "red": ("red", "none"),
    "odpr-r": ("red", "none"),
    "odpr-a": ("odpr-a", "decoupled"),
}
"""name: (sampler, weighter). OptiDICE itself is `optidice-w` with the algorithm bc; 10 %-BC is `pf` with bc."""

TEMPERATURE = {"cql": 0.2}
"""AW's and RW's η where it is not 0.1."""
SMALL_ROWS, SMALL_TEMPERATURE = 50_000, 5.0
"""Datasets of about this many rows (the `small` suite) are drawn from with a much higher η."""
LAMBDAS = {"iql": (1.0, 1.0)}
"""Density's (λK, λF) where they are not (0.2, 0.1)."""
ITERATIONS = {"iql": 4, "bc": 4}
"""ODPR-A's iterations where they are not 5."""


def method(name: str, algorithm: str = "iql", rows: int | None = None) -> tuple[Sampler, Weighter]:
    """The sampler and the weighter of a method, set as for the published results of that algorithm."""
    sampler, weighter = METHODS[_known(name, METHODS, "method")]
    return make_sampler(sampler, algorithm, rows), make_weighter(weighter, algorithm)


def make_sampler(name: str, algorithm: str = "iql", rows: int | None = None) -> Sampler:
    kind = SAMPLERS[_known(name, SAMPLERS, "sampler")]
    if name in ("aw", "rw"):
        little = rows is not None and rows <= 1.05 * SMALL_ROWS
        return kind(temperature=SMALL_TEMPERATURE if little else TEMPERATURE.get(algorithm, 0.1))
    if name == "odpr-a":
        return kind(iterations=ITERATIONS.get(algorithm, 5))
    return kind()


def make_weighter(name: str, algorithm: str = "iql") -> Weighter:
    kind = WEIGHTERS[_known(name, WEIGHTERS, "weighter")]
    if name == "density":
        lambda_k, lambda_f = LAMBDAS.get(algorithm, (0.2, 0.1))
        return kind(lambda_k=lambda_k, lambda_f=lambda_f)
    return kind()


def make_algorithm(name: str, dataset: Dataset | str | None = None) -> Algorithm:
    """An algorithm set as published for the domain of a dataset, or of an environment by its name."""
    kind: Any = ALGORITHMS[_known(name, ALGORITHMS, "algorithm")]
    environment = dataset.meta.environment if isinstance(dataset, Dataset) else dataset
    return kind(**kind.PRESETS.get(domain(environment), {}))


def resized(config: Any, hidden: tuple[int, ...]) -> Any:
    """A plug-in with other widths of its hidden layers, where it has layers."""
    return dataclasses.replace(config, hidden=hidden) if hasattr(config, "hidden") else config


def domain(environment: str | None) -> str:
    """The group of environments that shares settings, from an environment's name: hopper, ant, antmaze, …"""
    known = {"antmaze": "antmaze", "kitchen": "kitchen", "adroit": "adroit", "ant": "ant"}
    adroit = ("pen", "hammer", "door", "relocate")
    word = (environment or "").lower().replace("_", "-").removeprefix("d4rl/")
    if word.split("-")[0].split("/")[0].removeprefix("adroithand") in adroit:
        return "adroit"
    return next((group for prefix, group in known.items() if word.startswith(prefix) or f"{prefix}-" in word), "")


def _known(name: str, table: dict[str, Any], what: str) -> str:
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise BadInput(f"there is no {what} {name!r}{hint} (choose from {', '.join(table)})")
    return name


# ------------------------------------------------------------------------------------------------- records


def record(config: Any) -> dict[str, Any]:
    """A plug-in as plain JSON: its registered name and its settings."""
    kinds = {kind: name for table in (ALGORITHMS, WEIGHTERS, SAMPLERS) for name, kind in table.items()}
    if type(config) not in kinds:
        raise BadInput(
            f"{type(config).__name__} is not registered; add it to ALGORITHMS, WEIGHTERS or SAMPLERS by name"
        )
    return {"name": kinds[type(config)]} | {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}


def from_record(saved: dict[str, Any], table: dict[str, type]) -> Any:
    """The plug-in again."""
    settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()}
    return table[settings.pop("name")](**settings)
