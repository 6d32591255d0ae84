"""What trained policies are worth, without an environment: from episodes that training has not seen.

Two estimates, of two different things:

- *fitted Q evaluation* (`fqe`): the discounted return of the policy itself, from held-out episodes' first states on;
- *the weighted reward* J(D_w): the mean reward of a step of the held-out rows, drawn and weighed as the run does it.
  This is what the weights promise, not what the policy earns.

Intervals say how far the estimates would move with other logged episodes, other initial networks and, where a method
has several runs, other training seeds. They do not cover what Q can't know: states and actions that nobody logged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.holdout import held_out_of, join, split
from winnow.data.sources import open_dataset
from winnow.errors import BadInput
from winnow.ope import fqe
from winnow.ope.fqe import FQE, USUAL
from winnow.ope.importance import FEW_EPISODES, Importance, has_propensities, importance
from winnow.ope.ranking import MethodEstimate, compare, draws
from winnow.ope.weighted_reward import Interval, Weighted, mean_reward, own_return, weighted_reward
from winnow.packs.step import act
from winnow.policy.files import finished_runs
from winnow.policy.stacked import SCALING, Actors, pruned
from winnow.system import checkpoint
from winnow.training.trained import Trained

STATES = 1_000
"""First states that values are averaged over, at the most; evenly chosen where there are more."""
BLOCK = 65_536
"""Rows that are looked at in one pass."""

Fit = Literal["train", "held-out", "both"]


@dataclass(frozen=True)
class RunEstimate:
    """One run."""

    run: str
    method: str
    """The run's name without its seed."""
    seed: int
    value: Interval
    fits: list[float]
    """The value by each Q network."""
    drift: float
    """How much of the value came in the last tenth of the updates: far from 0, FQE needs more of them."""
    clipped: float
    """The share of Q's targets beyond what the log knows, at the end: far from 0, Q has run away."""
    weighted: Weighted | None
    """None where the weights belong to the training rows alone."""
    importance: Importance | None = None
    """Estimates by importance sampling; None without propensities in the held-out rows."""


@dataclass(frozen=True)
class Judgement:
    """All that was estimated on one held-out set."""

    dataset: str
    held_out: dict[str, Any]
    """Name, episodes, rows, and whether training has seen them."""
    fit: Fit
    settings: FQE
    data: Interval | None
    """The held-out episodes' own discounted return, where they are whole episodes."""
    reward: Interval
    """The mean reward of a held-out row."""
    methods: list[MethodEstimate]
    runs: list[RunEstimate]
    notes: list[str]

    def record(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return _plain(dataclasses.asdict(self))


# ---------------------------------------------------------------------------------------------------- which runs


def load(places: Sequence[Path], dataset: str | None = None) -> tuple[list[Trained], list[str]]:
    """Finished runs from files and folders, every dataset opened once; and a line for each run that failed."""
    files = [file for place in places for file in _files(place)]
    if not files:
        raise BadInput("no run is given; name at least one file or folder that `winnow train` wrote")
    opened: dict[str, Dataset] = {}
    found, failed = [], []
    for file in files:
        said = checkpoint.read_record(file)
        if said.get("failure"):
            failed.append(f"{said['name']} failed ({said['failure']}) and is left out")
            continue
        source = dataset or (said.get("dataset") or {}).get("path")
        if source and source not in opened:
            try:
                opened[source] = open_dataset(source)
            except BadInput as error:
                raise BadInput(f"{file}: its dataset can't be opened: {error}; give it with --dataset") from error
        found.append(Trained.load(file, opened.get(source) if source else None))
    if not found:
        raise BadInput(f"there is no policy to judge: {'; '.join(failed)}")
    return found, failed


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    found = finished_runs(place)
    if not found:
        raise BadInput(f"{place}: holds no finished run; give a folder that `winnow train` wrote")
    return found


def find_held_out(train: Dataset, given: Dataset | str | float | None) -> tuple[Dataset, bool]:
    """The episodes to judge by, and whether training has seen them.

    given: a dataset or its file; a share of the training data itself; or None for what was held out of it
    """
    share = _share(given)
    if share is not None:
        return split(train, share)[1], True
    if given is None:
        held = held_out_of(train)
        if held is None:
            raise BadInput(
                f"{train.meta.name}: nothing was held out of it. Split it before training (`winnow data split`), name "
                "other episodes (--held-out FILE), or judge by a share of what it was trained on (--held-out 0.2)"
            )
        return held, False
    held = given if isinstance(given, Dataset) else open_dataset(str(given))
    if held.fingerprint == train.fingerprint:
        raise BadInput(f"{held.meta.name}: is what the run was trained on; hold episodes out with `winnow data split`")
    return held, False


def _share(given: Any) -> float | None:
    try:
        return None if given is None or isinstance(given, Dataset) else float(given)
    except ValueError:
        return None


def check_fit(train: Dataset, held: Dataset, run: str = "") -> None:
    """Refuse held-out episodes that can't judge what was trained on a dataset, before anything starts."""
    if len(held.episodes) == 0:
        raise BadInput(f"{held.meta.name}: the held-out set is empty; hold out more episodes")
    for what in ("obs_dim", "action_dim"):
        mine, theirs = getattr(train, what), getattr(held, what)
        if mine != theirs:
            raise BadInput(
                f"{run or train.meta.name}: its {what} is {mine}, and {theirs} in {held.meta.name}; "
                "give held-out episodes of the same task"
            )


# ------------------------------------------------------------------------------------------------------ judging


def judge(
    trained: Sequence[Trained],
    held_out: Dataset | str | float | None = None,
    settings: FQE = USUAL,
    fit: Fit = "held-out",
    tick: Callable[[int], None] = lambda updates: None,
    done: Callable[[str, float], None] = lambda run, value: None,
) -> list[Judgement]:
    """Estimates for finished runs, one judgement for each dataset that they were trained on.

    held_out: see `find_held_out`
    fit: the rows that Q is fitted to
    tick: called with the updates done since the last call; there are settings.steps for each run
    done: called with the name and the value of each run as soon as its Q is fitted
    """
    settings.check()
    groups: dict[str, list[Trained]] = {}
    for one in trained:
        groups.setdefault(one.run.dataset.fingerprint, []).append(one)
    planned = []
    for group in groups.values():
        held, seen = find_held_out(group[0].run.dataset, held_out)
        check_fit(group[0].run.dataset, held, group[0].run.name)
        planned.append((group, held, seen))
    return [_judge(group, held, seen, settings, fit, tick, done) for group, held, seen in planned]


def _judge(
    trained: Sequence[Trained],
    held: Dataset,
    seen: bool,
    settings: FQE,
    fit: Fit,
    tick: Callable[[int], None],
    done: Callable[[str, float], None],
) -> Judgement:
    train = trained[0].run.dataset
    log = {"train": train, "held-out": held}.get(fit) or join(train, held)
    states, strata, notes = first_states(held)
    policies = list(map(policy_of, trained))
    found = fqe.evaluate(
        log,
        states,
        policies,
        settings,
        tick,
        choices_at=held.rows().obs if has_propensities(held) else None,
        done=lambda number, values: done(trained[number].run.name, float(values.value.mean())),
    )
    values = np.stack([one.value for one in found])  # [runs, fits, states]
    drawn = draws(values, strata, settings.seed)
    names = [one.run.name for one in trained]
    methods = [finished.run.group for finished in trained]
    if seen:
        notes.append("the held-out episodes were part of the training data: estimates are too good")
    if settings.fits == 1:
        notes.append("a single fit of Q: intervals do not cover the fit")
    # A sampler may fit networks to the held-out rows, for minutes: once, not once a seed.
    samplers = {finished.run.sampler for finished in trained if finished.run.weighs_any_row}
    probability = {sampler: sampler.probabilities(held) for sampler in samplers}
    weighted = [
        weighted_reward(finished, held, settings.seed, probability.get(finished.run.sampler)) for finished in trained
    ]
    runs = [
        RunEstimate(
            name,
            method,
            one.run.seed,
            Interval.of(value.value.mean(), drawn[:, number]),
            value.value.mean(axis=1).tolist(),
            value.drift,
            value.clipped,
            weight,
            _importance(held, policies[number], value, settings),
        )
        for number, (one, name, method, value, weight) in enumerate(
            zip(trained, names, methods, found, weighted, strict=True)
        )
    ]
    if any(one.clipped > 0.01 for one in runs):
        notes.append("Q ran out of what the log knows for some runs (clipped > 1 %): distrust their values")
    if any(run.importance and run.importance.effective < FEW_EPISODES for run in runs):
        notes.append(
            f"importance sampling rests on fewer than {FEW_EPISODES} effective episodes for some runs: distrust those"
        )
    promised = [one.weighted.reward.value if one.weighted else None for one in runs]
    table, _, more = compare(methods, values.mean(axis=(1, 2)), drawn, settings.seed, promised)
    total = {"name": held.meta.name, "episodes": len(held.episodes), "rows": len(held), "seen_in_training": seen}
    return Judgement(
        train.meta.name,
        total,
        fit,
        settings,
        own_return(held, settings.discount, settings.seed),
        mean_reward(held, np.ones(len(held)), settings.seed)[0],
        table,
        runs,
        notes + more,
    )


def _importance(log: Dataset, policy: Any, values: fqe.Values, settings: FQE) -> Importance | None:
    """Estimates by importance sampling of the policy as it is played, where the log has propensities."""
    if not has_propensities(log):
        return None
    return importance(log, policy(log.rows().obs), settings.discount, values.choices, settings.seed)


def policy_of(one: Trained) -> Callable[[np.ndarray], np.ndarray]:
    """The policy as a function of raw observations, compiled once for all runs of a shape. Choices are one-hot rows."""
    state = pruned(one.run.algorithm, one.run.spec, one.policy.state)
    actor = Actors(one.run.algorithm, state, *(getattr(one.policy, name) for name in SCALING))

    def acting(obs: np.ndarray) -> np.ndarray:
        parts = [np.asarray(_act(actor, obs[low : low + BLOCK])) for low in range(0, len(obs), BLOCK)]
        values = np.concatenate(parts)
        # Q reads choices as one-hot rows, and the policy takes the choice with the greatest score.
        return np.eye(values.shape[-1])[values.argmax(axis=-1)] if one.policy.is_discrete else values

    return acting


@jax.jit
def _act(actor: Actors, obs: Any) -> Any:
    return act(actor, actor.state, obs)


def first_states(held: Dataset) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Observations that episodes begin with, the source of each, and what is to be said about them."""
    notes = []
    if held.has_episodes:
        whole = np.flatnonzero(held.episodes.offset == 0)
        if len(whole) == 0:
            whole = np.arange(len(held.episodes))
            notes.append("no piece is the beginning of an episode: values are at the pieces' first states")
        states, source = held.start_obs[whole], held.episodes.source[whole]
    else:
        states, source = held.rows().obs, held.source
        notes.append(f"{held.meta.kind} data has no first states: values are averaged over all held-out states")
    some = np.unique(np.linspace(0, len(states) - 1, min(len(states), STATES)).round().astype(int))
    if len(states) < 10:
        notes.append(f"{len(states)} held-out first states: hold out more episodes")
    return states[some], source[some], notes


def _plain(value: Any) -> Any:
    """Tuples with names as dictionaries."""
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value
