"""Policies that can be evaluated: those of finished runs, and snapshots kept during training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from winnow import envs
from winnow.errors import BadInput
from winnow.evaluation.records import Round
from winnow.policy import stacked
from winnow.policy.files import finished_runs
from winnow.policy.stacked import Actors
from winnow.system import checkpoint
from winnow.system.files import is_file_name, read_json
from winnow.types import Algorithm, Spec

if TYPE_CHECKING:
    from winnow.training.trained import Trained

SNAPSHOT = "winnow-policies-1"


def resolve_environment(environment: str | None, spec: Spec) -> envs.Environment:
    """The environment by its name, if policies with this spec can be played in it; otherwise an error says why not."""
    if not environment:
        raise BadInput("the data does not say which environment it is from")
    entry = envs.lookup(environment)
    shape = envs.shape(entry)
    for name in ("action_kind", "obs_dim", "action_dim"):
        if getattr(shape, name) != getattr(spec, name):
            raise BadInput(
                f"{environment}: its {name} is {getattr(shape, name)}, and {getattr(spec, name)} in the data"
            )
    if shape.time_limit is None:
        raise BadInput(f"{environment}: has no time limit, so an episode might never end; register it with one")
    return entry


class Candidate(NamedTuple):
    """A policy to be evaluated."""

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
    """Each run's name, seed, environment and algorithm, and whether it plays."""
    actors: Actors

    def save(self, path: Path) -> None:
        fields = ("step", "round", "first", "spec", "runs")
        checkpoint.save(path, self.actors.tree(), {"format": SNAPSHOT} | {name: getattr(self, name) for name in fields})

    @classmethod
    def load(cls, path: Path) -> Snapshot:
        record = checkpoint.read_record(path)
        if record.get("format") != SNAPSHOT:
            raise BadInput(f"{path}: is not a snapshot of policies by this version of winnow")
        try:
            algorithms = [
                stacked.algorithm_of(run["algorithm"], path) for run in record["runs"] if run["plays"] in (0, 1)
            ]
            record["spec"] = Spec(*record["spec"])
            fields = {name: record[name] for name in cls._fields if name != "actors"}
        except (KeyError, TypeError) as error:
            raise BadInput(f"{path}: is not a complete snapshot of policies ({error})") from error
        if len({jax.tree.structure(algorithm) for algorithm in algorithms}) != 1:
            raise BadInput(f"{path}: policies in one snapshot must be of one shape, and these are not")
        return cls(**fields, actors=stacked.of_file(path, algorithms, fields["spec"], stacked=True))

    def candidates(self) -> Iterator[Candidate]:
        for number, run in enumerate(self.runs):
            if run["plays"]:
                actors = jax.tree.map(lambda leaf, i=number: leaf[i : i + 1], self.actors)
                algorithm = stacked.algorithm_of(run["algorithm"], run["name"])
                fields = (run["name"], run["seed"], self.step, self.round, run["environment"])
                yield Candidate(*fields, algorithm, self.spec, actors, self.first)


def candidates(path: Path, all_rounds: bool = False) -> list[Candidate | Round]:
    """The policies of a finished run, or of all runs in a folder. For a run that failed, a Round that says so.

    all_rounds: the snapshots of all rounds during training instead of the final policies
    """
    if path.is_dir():
        folder = path
        names = _runs_in(path)
        finished = {file.stem: file for file in finished_runs(path)}
        files = [finished[name] for name in names if name in finished]
        if not files:
            raise BadInput(f"{path}: holds no finished run yet; continue with `winnow train … --out {path} --resume`")
    else:
        folder = path.parent
        names = [path.stem]
        files = [path]
    if not all_rounds:
        return [_finished(file) for file in files]
    snapshots = sorted((folder / "policies").glob("*.safetensors"))
    kept = [policy for file in snapshots for policy in Snapshot.load(file).candidates() if policy.run in names]
    if not kept:
        raise BadInput(f"{path}: the policies of its rounds were not kept; train with --evaluation.keep to have them")
    return list(kept)


def _runs_in(folder: Path) -> list[str]:
    try:
        record = read_json(folder / "config.json", "give a folder that `winnow train` wrote")
        names = [run["name"] for run in record["runs"]]
    except (KeyError, TypeError) as error:
        raise BadInput(f"{folder}: holds no runs ({error}); give a folder that `winnow train` wrote") from error
    if odd := [str(name)[:80] for name in names if not is_file_name(name)]:
        raise BadInput(f"{folder / 'config.json'}: a run's name must be a file name, got {odd[0]!r}")
    return names


def _finished(path: Path) -> Candidate | Round:
    record = checkpoint.read_record(path)
    try:
        name = record["name"]
        seed = record["seed"]
        steps = record["steps"]
        environment = record["dataset"].get("environment")
        spec = Spec(*record["spec"])
        failure = record["failure"]
        algorithm_record = record["algorithm"]
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path}: is not a finished run ({error}); give a file that `winnow train` wrote") from error
    if failure:
        return Round(name, steps, None, environment or "", failed=failure)
    algorithm = stacked.algorithm_of(algorithm_record, path)
    actors = stacked.of_file(path, [algorithm], spec, stacked=False)
    return Candidate(name, seed, steps, None, environment, algorithm, spec, actors)


def candidate_of(trained: Trained) -> Candidate | Round:
    """The policy of a run in memory. For a run that failed, a Round that says so."""
    run = trained.run
    environment = run.dataset.meta.environment
    if trained.failure:
        return Round(run.name, trained.steps, None, environment or "", failed=trained.failure)
    actors = Actors(
        run.algorithm,
        stacked.pruned(run.algorithm, run.spec, trained.policy.state),
        *(getattr(trained.policy, name) for name in stacked.SCALING),
    )
    single = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32)[None], actors)
    return Candidate(run.name, run.seed, trained.steps, None, environment, run.algorithm, run.spec, single)
