"""Policies that can be played: those of finished runs, and those kept while runs train."""

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


def place(environment: str | None, spec: Spec) -> envs.Environment:
    """Where policies of this shape can be played; an error says why they can't."""
    if not environment:
        raise BadInput("the data does not say which environment it is from")
    entry = envs.lookup(environment)
    shape = envs.shape(entry)
    for what in ("action_kind", "obs_dim", "action_dim"):
        if getattr(shape, what) != getattr(spec, what):
            raise BadInput(
                f"{environment}: its {what} is {getattr(shape, what)}, and {getattr(spec, what)} in the data"
            )
    if shape.time_limit is None:
        raise BadInput(f"{environment}: has no time limit, so an episode might never end; register it with one")
    return entry


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
        finished = {file.stem: file for file in finished_runs(path)}
        files = [finished[name] for name in names if name in finished]
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
        record = read_json(folder / "config.json", "give a folder that `winnow train` wrote")
        names = [run["name"] for run in record["runs"]]
    except (KeyError, TypeError) as error:
        raise BadInput(f"{folder}: holds no runs ({error}); give a folder that `winnow train` wrote") from error
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
