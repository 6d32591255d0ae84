"""The runs of a report: what it needs of each result, and names that keep unlike runs apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from winnow.algorithms import ALGORITHMS
from winnow.bench import results
from winnow.bench.results import Result
from winnow.bench.suites import Entry
from winnow.data.names import VERSION, is_name, level, parse, suites
from winnow.errors import BadInput
from winnow.methods import METHODS

PROTOCOL = ("format", "steps", "batch_size", "chunk", "evaluation", "held_out")
"""Settings that all runs of a grid share: scores of runs in which they differ are not averaged."""
EARLIER: dict[str, Any] = {"held_out": 0.0}
"""What these were before results had them."""
WORDS = {
    "steps": "{:,} updates",
    "batch_size": "batches of {:,}",
    "chunk": "chunks of {:,}",
    "evaluation.episodes": "{:,} episodes a round",
    "evaluation.rounds": "{:,} rounds",
    "evaluation.spacing": "rounds {:,} updates apart",
    "evaluation.curve": "{:,} rounds on the curve",
    "held_out": "{:.1%} of the rows held out",
}

FAMILIES = ("algorithm", "sampler", "weighter")
MOST_SEEDS, HIGHEST = 100_000, 1_000_000
"""What no seed of a grid and no normalised score reaches."""

ORDER = {method: number for number, method in enumerate(METHODS)}

Points = tuple[tuple[int, float], ...]
"""A curve: values by step."""


@dataclass(frozen=True)
class Run:
    """What a report needs of a result."""

    id: str
    name: str
    dataset: str
    suite: str
    """The suite of its dataset, told apart by data and settings: runs of one may be averaged."""
    data: Literal["regenerated", "D4RL", "unknown"]
    trial: bool
    """Whether its dataset is one of the benchmark's, cut to fewer rows."""
    environment: str
    level: str
    share: float | None
    """σ of a mixture, in percent."""
    algorithm: str
    method: str
    label: str
    """The method, and what was changed in it."""
    order: int
    """Where its label stands among others."""
    seed: int
    swept: dict[str, Any]
    config: dict[str, Any]
    facts: dict[str, Any]
    """What the result says of its dataset."""
    made_with: dict[str, str]
    command: str
    """What was typed for it, where its result says so."""
    failure: str | None
    warnings: tuple[str, ...]
    """What its own numbers said against it while it trained."""
    score: float | None
    curve: Points
    """Scores while training."""
    ess: Points
    """Effective sample size of the weights while training."""
    shares: dict[str, float]
    """Part of the weight by source."""
    folder: str = ""
    """The folder or packed file that it was read from, as it was given."""
    raw: str = ""
    """The file that holds its raw result: its own, or the packed file it is in."""

    @property
    def good_share(self) -> float | None:
        """Part of the weight that is on the good source of a mixture."""
        return self.shares.get(level(parse(self.dataset).sources[1])) if self.share is not None else None


def read(folders: Path | Sequence[Path], say: Callable[[str], None]) -> list[Run]:
    """The runs of one folder or several, each with its packed file; a packed file may be given alone. A run that is in
    several of them counts once. A line names each file that is no result; nothing is moved or changed."""
    by_id: dict[str, Run] = {}
    repeated = 0
    for folder in [folders] if isinstance(folders, Path) else folders:
        for run in _read(folder, say):
            repeated += run.id in by_id
            by_id.setdefault(run.id, run)
    if repeated:
        say(f"{repeated:,} runs are in more than one of these folders; each counts once")
    runs = sorted(by_id.values(), key=lambda run: (run.order, run.label, run.seed, run.id))
    return told_apart(_by_protocol(_in_order(runs)))


def _read(folder: Path, say: Callable[[str], None]) -> list[Run]:
    packed = results.packed_of(folder)
    if not (folder / "results").is_dir() and not packed.exists():
        what = "has no folder `results`" if folder.is_dir() else "there is no such folder"
        raise BadInput(f"{folder}: {what}; give the one that `winnow bench run --out` has written to")
    runs = []
    for result in results.collect(folder, say, move=False):
        own = results.file_of(folder, result.id)
        raw = own if own.exists() else packed
        try:
            runs.append(dataclasses.replace(_run(result), folder=str(folder), raw=str(raw)))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            where = own if own.exists() else f"{packed}, run {result.id}"
            say(f"{where}: lacks what a report needs ({type(error).__name__}: {error}); it does not count")
    if not runs:
        raise BadInput(f"{folder / 'results'}: holds no result; `winnow bench run --out {folder}` writes them")
    return runs


def _run(result: Result) -> Run:
    config = result.config
    config = EARLIER | config
    asked = flat({name: config[name] for name in PROTOCOL})
    if type(asked["held_out"]) is not float:
        raise ValueError("config.held_out is no part of the rows")
    if wrong := [name for name in WORDS if name != "held_out" and type(asked[name]) is not int]:
        raise ValueError(f"config.{wrong[0]} is no whole number")
    if wrong := [name for name in FAMILIES if not isinstance(config[name], dict)]:
        raise ValueError(f"config.{wrong[0]} holds no settings")
    if wrong := [place for place in result.swept if place.partition(".")[0] not in FAMILIES]:
        raise ValueError(f"swept.{wrong[0]} is no setting")
    if not 0 <= int(config["seed"]) < MOST_SEEDS:
        raise ValueError(f"config.seed is {config['seed']}")
    heights = [result.score, *(one.get("score") for one in result.rounds)]
    if any(abs(height) > HIGHEST for height in heights if height is not None):
        raise ValueError(f"a score is beyond {HIGHEST:,}")
    text = str(config["dataset"]["name"])
    name = parse(text) if is_name(text) else None
    entry = Entry(name) if name else None
    trial = "@" in text
    suite = name.suite if name else "other"
    if name and name.kind == "mixture" and name.is_d4rl:
        suite += " (D4RL's data)"
    if entry and trial:
        suite += f" (trial, {entry.rows:,} rows)"
    changes = ", ".join(f"{place}={short(value)}" for place, value in result.swept.items())
    ess = result.metrics.get("weight/ess", [])
    steps = result.metrics["step"] if ess else []
    return Run(
        id=result.id,
        name=str(result.name),
        dataset=text,
        suite=suite,
        data=("D4RL" if name.is_d4rl else "regenerated") if name else "unknown",
        trial=trial,
        environment=str(config["environment"]),
        level=entry.level if entry else "",
        share=entry.share if entry else None,
        algorithm=str(config["algorithm"]["name"]),
        method=str(result.method),
        label=f"{result.method} {changes}".strip(),
        order=ORDER.get(str(result.method), len(ORDER)),
        seed=int(config["seed"]),
        swept=dict(result.swept),
        config=config,
        facts=dict(result.dataset),
        made_with=dict(result.made_with),
        command=str(result.command),
        failure=None if result.failure is None else str(result.failure),
        warnings=tuple(map(str, result.warnings)),
        score=None if result.score is None or result.failure is not None else float(result.score),
        curve=tuple((int(one["step"]), float(one["score"])) for one in result.rounds if one.get("score") is not None),
        ess=tuple((int(step), float(one)) for step, one in zip(steps, ess, strict=True)),
        shares={str(label): float(part) for label, part in result.shares.items()},
    )


def _in_order(runs: list[Run]) -> list[Run]:
    """Suites, datasets and algorithms as the benchmark lists them; methods and seeds stay in their order."""
    listed = suites()
    first = {suite: number for number, suite in enumerate(listed)}
    place = {name: number for number, name in enumerate(name for names in listed.values() for name in names)}
    algorithms = {name: number for number, name in enumerate(ALGORITHMS)}

    def rank(run: Run) -> tuple[Any, ...]:
        plain = run.dataset.split("@")[0]
        plain = plain if plain in place else plain.removesuffix(f"-{VERSION}")
        where = first.get(run.suite.split(" ")[0], len(first))
        kind = algorithms.get(run.algorithm, len(algorithms))
        return where, run.suite, place.get(plain, len(place)), run.dataset, kind, run.algorithm

    return sorted(runs, key=rank)


# ---------------------------------------------------------------------------------------- keeping unlike runs apart


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level: {"evaluation.rounds": 10}."""
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list) and any(isinstance(one, (dict, list)) for one in value):
        parts = enumerate(value)
    else:
        return {prefix: tuple(value) if isinstance(value, list) else value}
    return {
        name: one for key, part in parts for name, one in flat(part, f"{prefix}.{key}" if prefix else str(key)).items()
    }


def differing(settings: Iterable[dict[str, Any]]) -> list[str]:
    """Names of what is not the same in all of these."""
    seen: dict[str, set[Any]] = {}
    every = [flat(one) for one in settings]
    for name in dict.fromkeys(name for one in every for name in one):
        seen[name] = {one.get(name) for one in every}
    return [name for name, values in seen.items() if len(values) > 1]


def protocol(run: Run) -> dict[str, Any]:
    return {name: run.config.get(name, EARLIER.get(name)) for name in PROTOCOL}


def _by_protocol(runs: list[Run]) -> list[Run]:
    """Where runs were trained or played differently, their suites say so."""
    names = differing(map(protocol, runs))
    if not names:
        return runs

    def said(run: Run) -> str:
        settings = flat(protocol(run))
        return ", ".join(WORDS.get(name, name + " {}").format(settings.get(name)) for name in names)

    marked = [dataclasses.replace(run, suite=f"{run.suite}, {said(run)}") for run in runs]
    order = {suite: number for number, suite in enumerate(dict.fromkeys(run.suite for run in marked))}
    return sorted(marked, key=lambda run: order[run.suite])


def told_apart(runs: list[Run]) -> list[Run]:
    """Where runs with one name have other settings but the seed (of another version, say), their labels say so."""
    kinds: dict[tuple[str, ...], dict[str, list[Run]]] = {}
    for run in runs:
        kinds.setdefault((run.suite, run.algorithm, run.label), {}).setdefault(run.dataset, []).append(run)
    labels: dict[str, str] = {}
    for by_dataset in kinds.values():
        found = {
            dataset: differing({**run.config, "seed": 0} for run in same)
            for dataset, same in by_dataset.items()
            if len(same) > 1
        }
        # A setting tells all datasets' runs apart; which data a name meant, only those of its own dataset.
        everywhere = {name for names in found.values() for name in names if not name.startswith("dataset.")}
        for dataset, same in by_dataset.items():
            names = sorted(everywhere | set(found.get(dataset, ())))
            for run in same if names else ():
                settings = flat(run.config)
                labels[run.id] = f"{run.label} ({', '.join(f'{n}={short(settings.get(n))}' for n in names)})"
    return [dataclasses.replace(run, label=labels.get(run.id, run.label)) for run in runs]


def short(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return "x".join(map(str, value))
    text = str(value)
    return text if len(text) <= 24 else f"{text[:12]}…"  # a sum


def labels(runs: Sequence[Run]) -> list[str]:
    """Methods in the order that columns and bars have."""
    rank = {run.label: (run.order, run.label) for run in runs}
    return sorted(rank, key=rank.__getitem__)
