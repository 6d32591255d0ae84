"""The runs of a report: what it needs from each result, and labels that keep different runs apart."""

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
"""Values of settings that earlier results do not record."""
TEXTS = {
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
MAX_SEED = 100_000
MAX_SCORE = 1_000_000
"""Larger seeds and normalised scores are taken for damaged files."""

ORDER = {method: number for number, method in enumerate(METHODS)}

Points = tuple[tuple[int, float], ...]
"""A curve: values by step."""


@dataclass(frozen=True)
class Run:
    """What a report needs from a result."""

    id: str
    name: str
    dataset: str
    suite: str
    """The suite of its dataset, with a note on other data or settings: runs of equal suites may be averaged."""
    data: Literal["regenerated", "D4RL", "unknown"]
    trial: bool
    """Whether its dataset is one of the benchmark's, reduced to fewer rows."""
    environment: str
    level: str
    share: float | None
    """σ of a mixture, in percent."""
    algorithm: str
    method: str
    label: str
    """The method, and the settings that were changed in it."""
    order: int
    """Position of its label among the others."""
    seed: int
    swept: dict[str, Any]
    config: dict[str, Any]
    facts: dict[str, Any]
    """What the result records about its dataset."""
    made_with: dict[str, str]
    command: str
    """The command that made it, if the result has it."""
    failure: str | None
    warnings: tuple[str, ...]
    """Alarms that were raised while it trained."""
    score: float | None
    curve: Points
    """Scores while training."""
    ess: Points
    """Effective sample size of the weights while training."""
    shares: dict[str, float]
    """Fraction of the weight by source."""
    folder: str = ""
    """The folder or packed file that it was read from, as it was given."""
    raw: str = ""
    """The file that holds its raw result: its own, or the packed file it is in."""

    @property
    def good_share(self) -> float | None:
        """Fraction of the weight on the good source of a mixture."""
        return self.shares.get(level(parse(self.dataset).sources[1])) if self.share is not None else None


def read(folders: Path | Sequence[Path], say: Callable[[str], None]) -> list[Run]:
    """The runs of one folder or several, each with its packed file; a packed file may be given alone. A run that is in
    several of them counts once. `say` gets a line for each file that is not a result; nothing is moved or changed."""
    by_id: dict[str, Run] = {}
    repeated = 0
    for folder in [folders] if isinstance(folders, Path) else folders:
        for run in _read(folder, say):
            repeated += run.id in by_id
            by_id.setdefault(run.id, run)
    if repeated:
        say(f"{repeated:,} runs are in more than one of these folders; each counts once")
    runs = sorted(by_id.values(), key=lambda run: (run.order, run.label, run.seed, run.id))
    return with_distinct_labels(_by_protocol(_in_order(runs)))


def _read(folder: Path, say: Callable[[str], None]) -> list[Run]:
    packed = results.packed_of(folder)
    if not (folder / "results").is_dir() and not packed.exists():
        problem = "has no folder `results`" if folder.is_dir() else "there is no such folder"
        raise BadInput(f"{folder}: {problem}; give the folder that `winnow bench run --out` has written to")
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
        raise BadInput(f"{folder / 'results'}: holds no results; `winnow bench run --out {folder}` writes them")
    return runs


def _run(result: Result) -> Run:
    config = EARLIER | result.config
    asked = flat({name: config[name] for name in PROTOCOL})
    if type(asked["held_out"]) is not float:
        raise ValueError("config.held_out is not a fraction")
    if wrong := [name for name in TEXTS if name != "held_out" and type(asked[name]) is not int]:
        raise ValueError(f"config.{wrong[0]} is not a whole number")
    if wrong := [name for name in FAMILIES if not isinstance(config[name], dict)]:
        raise ValueError(f"config.{wrong[0]} holds no settings")
    if wrong := [path for path in result.swept if path.partition(".")[0] not in FAMILIES]:
        raise ValueError(f"swept.{wrong[0]} is not a setting")
    if not 0 <= int(config["seed"]) < MAX_SEED:
        raise ValueError(f"config.seed is {config['seed']}")
    heights = [result.score, *(point.get("score") for point in result.rounds)]
    if any(abs(height) > MAX_SCORE for height in heights if height is not None):
        raise ValueError(f"a score is beyond {MAX_SCORE:,}")
    text = str(config["dataset"]["name"])
    name = parse(text) if is_name(text) else None
    entry = Entry(name) if name else None
    trial = "@" in text
    suite = name.suite if name else "other"
    if name and name.kind == "mixture" and name.is_d4rl:
        suite += " (D4RL's data)"
    if entry and trial:
        suite += f" (trial, {entry.rows:,} rows)"
    changes = ", ".join(f"{path}={short(value)}" for path, value in result.swept.items())
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
        curve=tuple(
            (int(point["step"]), float(point["score"])) for point in result.rounds if point.get("score") is not None
        ),
        ess=tuple((int(step), float(point)) for step, point in zip(steps, ess, strict=True)),
        shares={str(label): float(part) for label, part in result.shares.items()},
    )


def _in_order(runs: list[Run]) -> list[Run]:
    """Sorted by suite, dataset and algorithm as the benchmark lists them; methods and seeds keep their order."""
    listed = suites()
    first = {suite: number for number, suite in enumerate(listed)}
    order = {name: number for number, name in enumerate(name for names in listed.values() for name in names)}
    algorithms = {name: number for number, name in enumerate(ALGORITHMS)}

    def rank(run: Run) -> tuple[Any, ...]:
        plain = run.dataset.split("@")[0]
        plain = plain if plain in order else plain.removesuffix(f"-{VERSION}")
        where = first.get(run.suite.split(" ")[0], len(first))
        kind = algorithms.get(run.algorithm, len(algorithms))
        return where, run.suite, order.get(plain, len(order)), run.dataset, kind, run.algorithm

    return sorted(runs, key=rank)


# ---------------------------------------------------------------------------------------- keeping different runs apart


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings on one level: {"evaluation.rounds": 10}."""
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        parts = enumerate(value)
    else:
        return {prefix: tuple(value) if isinstance(value, list) else value}
    return {
        name: item
        for key, part in parts
        for name, item in flat(part, f"{prefix}.{key}" if prefix else str(key)).items()
    }


def differing(settings: Iterable[dict[str, Any]]) -> list[str]:
    """Names of the settings that are not the same in all of these."""
    seen: dict[str, set[Any]] = {}
    every = [flat(settings_of_one) for settings_of_one in settings]
    for name in dict.fromkeys(name for settings_of_one in every for name in settings_of_one):
        seen[name] = {settings_of_one.get(name) for settings_of_one in every}
    return [name for name, values in seen.items() if len(values) > 1]


def protocol(run: Run) -> dict[str, Any]:
    return {name: run.config.get(name, EARLIER.get(name)) for name in PROTOCOL}


def _by_protocol(runs: list[Run]) -> list[Run]:
    """If runs were trained or evaluated differently, their suites' names say how."""
    names = differing(map(protocol, runs))
    if not names:
        return runs

    def differences(run: Run) -> str:
        settings = flat(protocol(run))
        return ", ".join(TEXTS.get(name, name + " {}").format(settings.get(name)) for name in names)

    marked = [dataclasses.replace(run, suite=f"{run.suite}, {differences(run)}") for run in runs]
    order = {suite: number for number, suite in enumerate(dict.fromkeys(run.suite for run in marked))}
    return sorted(marked, key=lambda run: order[run.suite])


def with_distinct_labels(runs: list[Run]) -> list[Run]:
    """If runs with the same label differ in more than the seed (made by another version, say), labels say how."""
    kinds: dict[tuple[str, ...], dict[str, list[Run]]] = {}
    for run in runs:
        kinds.setdefault((run.suite, run.algorithm, run.label), {}).setdefault(run.dataset, []).append(run)
    labels: dict[str, str] = {}
    for by_dataset in kinds.values():
        differences = {
            dataset: differing({**run.config, "seed": 0} for run in same)
            for dataset, same in by_dataset.items()
            if len(same) > 1
        }
        # Settings mark the runs of all datasets; which data a name stands for, only the runs of that dataset.
        everywhere = {name for names in differences.values() for name in names if not name.startswith("dataset.")}
        for dataset, same in by_dataset.items():
            names = sorted(everywhere | set(differences.get(dataset, ())))
            for run in same if names else ():
                settings = flat(run.config)
                labels[run.id] = f"{run.label} ({', '.join(f'{n}={short(settings.get(n))}' for n in names)})"
    return [dataclasses.replace(run, label=labels.get(run.id, run.label)) for run in runs]


def short(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return "x".join(map(str, value))
    text = str(value)
    return text if len(text) <= 24 else f"{text[:12]}…"  # a checksum


def labels(runs: Sequence[Run]) -> list[str]:
    """Methods in the order that columns and bars have."""
    rank = {run.label: (run.order, run.label) for run in runs}
    return sorted(rank, key=rank.__getitem__)
