"""The shorthands everyone uses: a method is a sampler and a weighter, set as its algorithm was tuned with."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any, NamedTuple

from winnow.algorithms import ALGORITHMS
from winnow.data.advice import AUTO, Advice, advise
from winnow.data.dataset import Dataset
from winnow.data.names import SMALL_ROWS
from winnow.errors import BadInput
from winnow.samplers import SAMPLERS, Sampler
from winnow.system.progress import say
from winnow.types import Algorithm, Weighter
from winnow.weighters import WEIGHTERS

METHODS: dict[str, tuple[str, str]] = {
    "uniform": ("uniform", "none"),
    "aw": ("aw", "none"),
    "pf": ("pf", "none"),
    "rw": ("rw", "none"),
    "dw-uniform": ("uniform", "density"),
    "dw-aw": ("aw", "density"),
    "dw-uniform-script": ("uniform", "density"),
    "dw-aw-script": ("aw", "density"),
    "dw-uniform-text": ("uniform", "density"),
    "dw-aw-text": ("aw", "density"),
    "dual-uniform": ("uniform", "dual"),
    "dual-aw": ("aw", "dual"),
    "dual-paths-uniform": ("uniform", "dual"),
    "dual-paths-aw": ("aw", "dual"),
    "optidice-w": ("uniform", "optidice"),
    "red": ("red", "none"),
    "odpr-r": ("red", "none"),
    "odpr-a": ("odpr-a", "decoupled"),
    "continued": ("continued", "none"),
    "followed": ("followed", "none"),
    "dw-continued": ("continued", "density"),
    "dual-continued": ("continued", "dual"),
    "best-source": ("source", "none"),
}
"""name: (sampler, weighter). OptiDICE itself is `optidice-w` with the algorithm bc; 10 %-BC is `pf` with bc.
`best-source` reads source labels, which real data rarely has: an oracle for comparison, not a method.

`dw-…` is the published code with the λ that the paper's text gives for its experiments, `-script` the same with λ that
the published scripts set, and `-text` the paper's equations in place of its code."""

DISCRETE = "discrete-"
"""Begins the names of algorithms for discrete actions."""
PATHS = {"average": "trajectory", "control": "temperature"}
TEXT = {"form": "paper", "state_weight": "marginal"}
SETTINGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("dual-paths-uniform", "dual-paths-aw", "dual-continued"), PATHS),
    **dict.fromkeys(("dw-uniform-text", "dw-aw-text"), TEXT),
}
"""Settings of a method's weighter that are not the usual ones. PATHS: weigh whole episodes, at a fixed λ."""
TEMPERATURE = {"cql": 0.2}
"""AW's and RW's η where it is not 0.1."""
SMALL = 1.05 * SMALL_ROWS
"""Rows of a small set, about as many as the paper's have."""
SMALL_TEMPERATURE = 5.0
"""AW's and RW's η in the published results of small sets, which is nearly uniform sampling. `winnow bench` alone uses
it."""
DENSITY: dict[str, dict[str, Any]] = {
    "iql": {"standardise": False, "initialisation": "orthogonal"},
    "cql": {
        "lambda_k": 0.2,
        "lambda_f": 0.1,
        "reward_scaling": "min-max",
        "standardise": False,
        "initialisation": "lecun",
    },
    "td3bc": {
        "form": "code-td3bc",
        "lambda_k": 0.2,
        "lambda_f": 0.1,
        "reward_scaling": "min-max",
        "state_weight": "marginal",
        "initialisation": "torch",
    },
}
"""The density weighter as published with an algorithm, where it is not as its own defaults. The text gives no λ for
TD3+BC; these are the first of its grid."""
SCRIPT_LAMBDAS = {"cql": (0.0, 0.1), "iql": (0.2, 1.0), "td3bc": (0.2, 1.0)}
"""(λK, λF) in the published scripts. Those of CQL set λK to 0; of the others this is one cell of a sweep, and
`study:script` has all of them."""
ITERATIONS = {"iql": 4, "bc": 4}
"""ODPR-A's iterations where they are not 5."""


def method(name: str, algorithm: str = "iql", published_rows: int | None = None) -> tuple[Sampler, Weighter]:
    """The sampler and the weighter of a method, set for an algorithm.

    published_rows: the size of a dataset whose published settings are wanted
    """
    if name == AUTO:
        raise BadInput(f"{AUTO} chooses a method by the rows of a dataset, which are not known here; name a method")
    sampler, weighter = METHODS[_known(name, METHODS, "method")]
    settings = dict(SETTINGS.get(name, {}))
    if name.endswith("-script"):
        settings["lambda_k"], settings["lambda_f"] = SCRIPT_LAMBDAS.get(algorithm, SCRIPT_LAMBDAS["iql"])
    made: Any = make_weighter(weighter, algorithm)
    return make_sampler(sampler, algorithm, published_rows), dataclasses.replace(made, **settings)


class Chosen(NamedTuple):
    """A method for a dataset, and why, where it was chosen by the data."""

    method: str
    sampler: Sampler
    weighter: Weighter
    advice: Advice | None


def for_dataset(name: str, dataset: Dataset, algorithm: str = "iql") -> Chosen:
    """A method by its name, or the one that the data asks for where the name is `auto`."""
    advice = advise(dataset) if name == AUTO else None
    title = advice.method if advice else name
    parts: dict[str, Any] = dict(zip(("sampler", "weighter"), method(title, algorithm), strict=True))
    for name_of_setting, value in (advice.settings if advice else {}).items():
        family, setting = name_of_setting.split(".")
        parts[family] = dataclasses.replace(parts[family], **{setting: value})
    return Chosen(title, parts["sampler"], parts["weighter"], advice)


def sampler_for(name: str, dataset: Dataset) -> Sampler:
    """A sampler by its name, or that of the method which the data asks for where the name is `auto`. What was chosen is
    said in a line."""
    if name != AUTO:
        return make_sampler(name)
    chosen = for_dataset(AUTO, dataset)
    assert chosen.advice is not None
    say(chosen.advice.line(dataset.meta.name))
    return chosen.sampler


def make_sampler(name: str, algorithm: str = "iql", published_rows: int | None = None) -> Sampler:
    kind = SAMPLERS[_known(name, SAMPLERS, "sampler")]
    if name in ("aw", "rw"):
        few = published_rows is not None and published_rows <= SMALL
        return kind(temperature=SMALL_TEMPERATURE if few else TEMPERATURE.get(algorithm, 0.1))
    if name == "odpr-a":
        return kind(iterations=ITERATIONS.get(algorithm, 5))
    return kind()


def make_weighter(name: str, algorithm: str = "iql") -> Weighter:
    kind = WEIGHTERS[_known(name, WEIGHTERS, "weighter")]
    return kind(**DENSITY.get(algorithm, {})) if name == "density" else kind()


def make_algorithm(name: str, dataset: Dataset | str | None = None) -> Algorithm:
    """An algorithm set as published for the domain of a dataset, or of an environment by its name. For a dataset of
    discrete actions a name means the algorithm's discrete form."""
    name = _known(name, ALGORITHMS, "algorithm")
    if isinstance(dataset, Dataset) and dataset.action_kind == "discrete" and not name.startswith(DISCRETE):
        if DISCRETE + name not in ALGORITHMS:
            known = ", ".join(word.removeprefix(DISCRETE) for word in ALGORITHMS if word.startswith(DISCRETE))
            raise BadInput(f"{dataset.meta.name}: has discrete actions, which {name} can't take; choose one of {known}")
        name = DISCRETE + name
    kind: Any = ALGORITHMS[name]
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
