"""Evaluation: the returns that policies earn in an environment, of single runs and of whole protocols.

The protocol of the published results: 20 episodes of the mean action in each of the last 10 rounds, 1000 updates apart,
and a run's score is the mean over all of them. Earlier rounds, further apart, draw the curve.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from winnow import envs
from winnow.envs.play import CROWD, Games
from winnow.envs.workers import WorkerError
from winnow.errors import BadInput
from winnow.policy import stacked
from winnow.policy.stacked import Actors
from winnow.system import checkpoint
from winnow.system.cores import cores_here
from winnow.system.files import is_file_name, parse_json
from winnow.system.metrics import read_metrics
from winnow.types import Algorithm, Spec

if TYPE_CHECKING:
    from winnow.training.trained import Trained

SNAPSHOT = "winnow-policies-1"


@dataclass(frozen=True)
class Evaluation:
    """When policies are played while they are trained, and how much."""

    episodes: int = 20
    """Episodes in each round."""
    rounds: int = 10
    """Rounds at the end of training: a run's score is the mean over them."""
    spacing: int = 1_000
    """Updates between two of these rounds."""
    curve: int = 10
    """Rounds before them, spread evenly over the training."""
    processes: int | None = None
    """Processes that play; without it, one for each core."""
    keep: bool = False
    """Keep the policies of every round, so that `winnow evaluate` can play them again."""

    def check(self) -> None:
        least = {"episodes": 1, "rounds": 1, "spacing": 1, "curve": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise BadInput(f"evaluation.{name} is {getattr(self, name)}; it must be at least {low}")

    def steps(self, total: int) -> dict[int, int | None]:
        """The updates after which policies are played, in order, and which of the last rounds each is (from 1 on)."""
        last = [step for step in range(total - (self.rounds - 1) * self.spacing, total + 1, self.spacing) if step > 0]
        evenly = [last[0] * number / (self.curve + 1) for number in range(1, self.curve + 1)]
        early = sorted({self.spacing * round(step / self.spacing) for step in evenly} - {0})
        found: dict[int, int | None] = dict.fromkeys(step for step in early if step < last[0])
        return found | {step: number for number, step in enumerate(last, 1)}

    def record(self) -> dict[str, Any]:
        """What decides the results."""
        return {name: getattr(self, name) for name in ("episodes", "rounds", "spacing", "curve")}


@dataclass(frozen=True)
class Round:
    """What one run's policy earned in one round, episode by episode."""

    run: str
    step: int
    """The updates it was trained for."""
    round: int | None
    """Which of the last rounds this is, from 1 on; None for one of the curve, and for one played after training."""
    environment: str
    returns: list[float] = dataclasses.field(default_factory=list)
    lengths: list[int] = dataclasses.field(default_factory=list)
    score: float | None = None
    """The mean return as a normalised score, where the environment has reference returns."""
    failed: str | None = None
    """Why there are no returns, if there are none."""

    def line(self) -> dict[str, Any]:
        """The round as plain JSON."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "failed" or value}

    def metrics(self) -> dict[str, Any]:
        """The round as a line of metrics: the mean return, and the score if there is one."""
        found = {"evaluation/return": float(np.mean(self.returns)) if self.returns else None}
        named = (found | {"evaluation/score": self.score}).items()
        return {"run": self.run, "step": self.step} | {name: value for name, value in named if value is not None}


def read_rounds(path: Path) -> list[Round]:
    """The rounds in a returns.jsonl, in its order; lines that are none are left out, as `read_metrics` does it."""
    found = []
    for line in read_metrics(path):
        with contextlib.suppress(TypeError):
            one = Round(**line)
            numbers = [*one.returns, *one.lengths, *([] if one.score is None else [one.score])]
            if all(type(number) in (int, float) for number in numbers) and isinstance(one.environment, str):
                found.append(one)
    return found


def earned(
    run: str, step: int, number: int | None, environment: str, returns: Sequence[float], lengths: Sequence[int]
) -> Round:
    """The round of these returns, with its score."""
    if not np.all(np.isfinite(returns)):
        return Round(run, step, number, environment, failed="its returns are not finite")
    scores = envs.normalised(environment, returns) if envs.lookup(environment).reference else None
    score = None if scores is None else float(scores.mean())
    return Round(run, step, number, environment, list(map(float, returns)), list(map(int, lengths)), score)


def score_of(rounds: Iterable[Round]) -> float | None:
    """A run's score: the mean over the last rounds of its training."""
    scores = [one.score for one in rounds if one.round is not None]
    good = [score for score in scores if score is not None]
    return float(np.mean(good)) if scores and len(good) == len(scores) else None


def place(environment: str | None, spec: Spec) -> envs.Environment:
    """Where policies of this shape can be played; an error says why they can't."""
    if not environment:
        raise BadInput("the data does not say which environment it is from")
    entry = envs.lookup(environment)
    shape = envs.shape(entry)
    for what in ("obs_dim", "action_dim"):
        if getattr(shape, what) != getattr(spec, what):
            raise BadInput(
                f"{environment}: its {what} is {getattr(shape, what)}, and {getattr(spec, what)} in the data"
            )
    if shape.time_limit is None:
        raise BadInput(f"{environment}: has no time limit, so an episode might never end; register it with one")
    return entry


# ----------------------------------------------------------------------------------------------- policies


class Candidate(NamedTuple):
    """A policy that is to be played."""

    run: str
    seed: int
    step: int
    round: int | None
    environment: str | None
    algorithm: Algorithm
    spec: Spec
    actors: Actors  # of this run alone
    first: int = 0
    """The number of the first episode."""


class Snapshot(NamedTuple):
    """The policies of a pack at one step of its training."""

    step: int
    round: int | None
    first: int
    spec: Spec
    runs: list[dict[str, Any]]
    """Name, seed, environment and algorithm of each, and whether it plays."""
    actors: Actors

    def save(self, path: Path) -> None:
        told = ("step", "round", "first", "spec", "runs")
        checkpoint.save(path, self.actors.tree(), {"format": SNAPSHOT} | {name: getattr(self, name) for name in told})

    @classmethod
    def load(cls, path: Path) -> Snapshot:
        said = checkpoint.read_record(path)
        if said.get("format") != SNAPSHOT:
            raise BadInput(f"{path}: is no snapshot of policies that this version of winnow wrote")
        try:
            learners = [stacked.algorithm_of(run["algorithm"], path) for run in said["runs"] if run["plays"] in (0, 1)]
            said["spec"] = Spec(*said["spec"])
            told = {name: said[name] for name in cls._fields if name != "actors"}
        except (KeyError, TypeError) as error:
            raise BadInput(f"{path}: is no whole snapshot of policies ({error})") from error
        if len({jax.tree.structure(one) for one in learners}) != 1:
            raise BadInput(f"{path}: is no snapshot of policies of one shape")
        return cls(**told, actors=stacked.of_file(path, learners, told["spec"], stacked=True))

    def candidates(self) -> Iterator[Candidate]:
        for number, run in enumerate(self.runs):
            if run["plays"]:
                one = jax.tree.map(lambda leaf, i=number: leaf[i : i + 1], self.actors)
                learner = stacked.algorithm_of(run["algorithm"], run["name"])
                where = (run["name"], run["seed"], self.step, self.round, run["environment"])
                yield Candidate(*where, learner, self.spec, one, self.first)


def candidates(path: Path, all_rounds: bool = False) -> list[Candidate | Round]:
    """The policies of a finished run, or of all runs in a folder. A run that failed is a round that says so."""
    if path.is_dir():
        names = _runs_in(path)
        files = [file for name in names if (file := path / f"{name}.safetensors").exists()]
        if not files:
            raise BadInput(f"{path}: holds no finished run yet; go on with `winnow train … --out {path} --resume`")
        folder = path
    else:
        names, files, folder = [path.stem], [path], path.parent
    if not all_rounds:
        return [_finished(file) for file in files]
    kept = sorted((folder / "policies").glob("*.safetensors"))
    found = [one for file in kept for one in Snapshot.load(file).candidates() if one.run in names]
    if not found:
        raise BadInput(f"{path}: the policies of its rounds were not kept; train with --evaluation.keep to have them")
    return list(found)


def _runs_in(folder: Path) -> list[str]:
    try:
        names = [run["name"] for run in parse_json((folder / "config.json").read_bytes())["runs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{folder}: is no folder of runs ({error}); give one that `winnow train` wrote") from error
    if odd := [str(name)[:80] for name in names if not is_file_name(name)]:
        raise BadInput(f"{folder / 'config.json'}: no run is called {odd[0]!r}; a name must be that of a file")
    return names


def _finished(path: Path) -> Candidate | Round:
    said = checkpoint.read_record(path)
    try:
        name, data, steps, spec = said["name"], said["dataset"], said["steps"], Spec(*said["spec"])
        failure, seed, learner = said["failure"], said["seed"], said["algorithm"]
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path}: is not a finished run ({error}); give a file that `winnow train` wrote") from error
    if failure:
        return Round(name, steps, None, data.get("environment") or "", failed=failure)
    learner = stacked.algorithm_of(learner, path)
    held = stacked.of_file(path, [learner], spec, stacked=False)
    return Candidate(name, seed, steps, None, data.get("environment"), learner, spec, held)


def _given(one: Trained) -> Candidate | Round:
    run, policy = one.run, one.policy
    if one.failure:
        return Round(run.name, one.steps, None, run.dataset.meta.environment or "", failed=one.failure)
    held = Actors(
        run.algorithm,
        stacked.pruned(run.algorithm, run.spec, policy.state),
        *(getattr(policy, name) for name in stacked.SCALING),
    )
    single = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32)[None], held)
    return Candidate(run.name, run.seed, one.steps, None, run.dataset.meta.environment, run.algorithm, run.spec, single)


# ------------------------------------------------------------------------------------------------ playing


def evaluate(
    runs: str | Path | Trained | Sequence[str | Path | Trained],
    episodes: int = 20,
    *,
    environment: str | None = None,
    seed: int | None = None,
    processes: int | None = None,
    all_rounds: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Round]:
    """Play trained policies: the raw returns of runs in files, of a folder of them, or as `train` gave them.

    episodes: of each run; which ones they are depends on its seed alone
    environment: instead of the one that the dataset names
    seed: one for all runs, instead of each one's own
    all_rounds: the policies of every round that training has kept (`Evaluation.keep`), not the final ones
    progress: called with the episodes that have ended and all there will be
    """
    if episodes < 1:
        raise BadInput(f"episodes is {episodes}; it must be at least 1")
    wanted: list[Candidate | Round] = []
    for one in runs if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]:
        wanted += candidates(Path(one), all_rounds) if isinstance(one, (str, Path)) else [_given(one)]
    others = {"environment": environment, "seed": seed}
    changed = {name: value for name, value in others.items() if value is not None}
    groups: dict[Hashable, list[int]] = {}
    for number, one in enumerate(wanted):
        if isinstance(one, Candidate):
            wanted[number] = one = one._replace(**changed)
            shape = jax.tree.structure(one.algorithm), one.spec.obs_dim, one.spec.action_dim
            groups.setdefault(shape, []).append(number)
    _check([one for one in wanted if isinstance(one, Candidate)], wanted)
    size = max(1, CROWD // 2 * (processes or cores_here()))
    total, ended = episodes * sum(map(len, groups.values())), 0

    def tick(more: int) -> None:
        nonlocal ended
        ended += more
        if progress:
            progress(ended, total)

    for group in groups.values():
        for low in range(0, len(group), size):
            some: Any = [wanted[number] for number in group[low : low + size]]
            for number, found in zip(group[low:], _play(some, episodes, processes, tick), strict=False):
                wanted[number] = found
    return [one for one in wanted if isinstance(one, Round)]


def _check(found: Sequence[Candidate], wanted: Sequence[Candidate | Round]) -> None:
    """Refuse what can't be played, before anything is."""
    if not found:
        why = "; ".join(f"{one.run} failed ({one.failed})" for one in wanted if isinstance(one, Round))
        raise BadInput(f"there is no policy to evaluate: {why or 'name at least one run'}")
    for one in {(one.environment, one.spec[:2]): one for one in found}.values():
        try:
            place(one.environment, one.spec)
        except BadInput as error:
            raise BadInput(f"{one.run}: can't be played ({error}); name another environment (--environment)") from error


def _play(some: Sequence[Candidate], episodes: int, processes: int | None, tick: Callable[[int], None]) -> list[Round]:
    """Policies of one shape, in one pass."""
    places: list[Any] = [one.environment for one in some]
    act = stacked.together([one.actors for one in some]).on_cpu()
    try:
        with Games(places, episodes, processes) as games:
            tick(0)
            played = games.play(act, [one.seed for one in some], [one.first for one in some], tick=tick)
    except WorkerError as error:
        raise BadInput(f"{', '.join(sorted(set(places)))}: can't be played: {error}") from error
    return [
        earned(one.run, one.step, one.round, where, returns, lengths)
        for one, where, returns, lengths in zip(some, places, played.returns, played.lengths, strict=True)
    ]
