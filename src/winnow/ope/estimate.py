"""Estimates the value of trained policies without an environment, from episodes that training has not seen.

Two estimates, of two different things:

- *fitted Q evaluation* (`fqe`): the discounted return of the policy itself, from the first states of held-out episodes;
- *the weighted reward* J(D_w): the mean reward of a held-out row, sampled and weighted as in the run's training. This
  is what the weights promise, not what the policy earns.

Intervals show how much the estimates would change with other logged episodes, other initial networks and, if a method
has several runs, other training seeds. They do not cover Q's errors in states and actions that were never logged.
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
"""Maximum number of first states that values are averaged over; evenly spaced ones if there are more."""
FEW_STATES = 10
"""With fewer first states, a note asks for more."""
MAX_CLIPPED = 0.01
"""A larger share of clipped targets gets a warning."""
BLOCK = 65_536
"""Rows processed at once."""

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
    """How much the value changed in the last tenth of the updates. If it is far from 0, FQE needs more updates."""
    clipped: float
    """The share of targets that were clipped, at the end. If it is far from 0, Q diverges."""
    weighted: Weighted | None
    """None if the run has weights for its training rows only."""
    importance: Importance | None = None
    """Estimates by importance sampling. None if the held-out rows have no propensities."""


@dataclass(frozen=True)
class Judgement:
    """All estimates from one held-out set."""

    dataset: str
    held_out: dict[str, Any]
    """Name, episodes, rows, and whether training has seen them."""
    fit: Fit
    settings: FQE
    data: Interval | None
    """The held-out episodes' own discounted return, if they are whole episodes."""
    reward: Interval
    """The mean reward of a held-out row."""
    methods: list[MethodEstimate]
    runs: list[RunEstimate]
    notes: list[str]

    def record(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return _plain(dataclasses.asdict(self))


# ---------------------------------------------------------------------------------------------------- which runs


def load(paths: Sequence[Path], dataset: str | None = None) -> tuple[list[Trained], list[str]]:
    """Finished runs from files and folders, with each dataset opened once; and a line for each run that failed."""
    files = [file for path in paths for file in _files(path)]
    if not files:
        raise BadInput("no run is given; name at least one file or folder that `winnow train` wrote")
    opened: dict[str, Dataset] = {}
    trained = []
    failed = []
    for file in files:
        record = checkpoint.read_record(file)
        if record.get("failure"):
            failed.append(f"{record['name']} failed ({record['failure']}) and is left out")
            continue
        source = dataset or (record.get("dataset") or {}).get("path")
        if source and source not in opened:
            try:
                opened[source] = open_dataset(source)
            except BadInput as error:
                raise BadInput(f"{file}: its dataset can't be opened: {error}; give it with --dataset") from error
        trained.append(Trained.load(file, opened.get(source) if source else None))
    if not trained:
        raise BadInput(f"there is no policy to evaluate: {'; '.join(failed)}")
    return trained, failed


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = finished_runs(path)
    if not files:
        raise BadInput(f"{path}: holds no finished run; give a folder that `winnow train` wrote")
    return files


def find_held_out(train: Dataset, given: Dataset | str | float | None) -> tuple[Dataset, bool]:
    """The episodes to evaluate on, and whether training has seen them.

    given: a dataset or its file; a share of the training data itself; or None for the episodes held out of it
    """
    share = _share(given)
    if share is not None:
        return split(train, share)[1], True
    if given is None:
        held_out = held_out_of(train)
        if held_out is None:
            raise BadInput(
                f"{train.meta.name}: nothing was held out of it. Split it before training (`winnow data split`), give "
                "other episodes (--held-out FILE), or a share of the training data itself (--held-out 0.2)"
            )
        return held_out, False
    held_out = given if isinstance(given, Dataset) else open_dataset(str(given))
    if held_out.fingerprint == train.fingerprint:
        raise BadInput(
            f"{held_out.meta.name}: is what the run was trained on; hold episodes out with `winnow data split`"
        )
    return held_out, False


def _share(given: Any) -> float | None:
    try:
        return None if given is None or isinstance(given, Dataset) else float(given)
    except ValueError:
        return None


def check_fit(train: Dataset, held_out: Dataset, run: str = "") -> None:
    """Refuse held-out episodes of another shape than the training data, before anything starts."""
    if len(held_out.episodes) == 0:
        raise BadInput(f"{held_out.meta.name}: the held-out set is empty; hold out more episodes")
    for name in ("obs_dim", "action_dim"):
        if getattr(train, name) != getattr(held_out, name):
            raise BadInput(
                f"{run or train.meta.name}: its {name} is {getattr(train, name)}, and {getattr(held_out, name)} in "
                f"{held_out.meta.name}; give held-out episodes of the same task"
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
    tick: called with the number of updates done since the last call; there are settings.steps for each run
    done: called with the name and the value of each run as soon as its Q is fitted
    """
    settings.check()
    groups: dict[str, list[Trained]] = {}
    for finished in trained:
        groups.setdefault(finished.run.dataset.fingerprint, []).append(finished)
    planned = []
    for group in groups.values():
        episodes, seen = find_held_out(group[0].run.dataset, held_out)
        check_fit(group[0].run.dataset, episodes, group[0].run.name)
        planned.append((group, episodes, seen))
    return [_judge(group, episodes, seen, settings, fit, tick, done) for group, episodes, seen in planned]


def _judge(
    trained: Sequence[Trained],
    held_out: Dataset,
    seen: bool,
    settings: FQE,
    fit: Fit,
    tick: Callable[[int], None],
    done: Callable[[str, float], None],
) -> Judgement:
    train = trained[0].run.dataset
    log = {"train": train, "held-out": held_out}.get(fit) or join(train, held_out)
    states, strata, notes = first_states(held_out)
    policies = [policy_of(finished) for finished in trained]
    results = fqe.evaluate(
        log,
        states,
        policies,
        settings,
        tick,
        choices_at=held_out.rows().obs if has_propensities(held_out) else None,
        done=lambda number, values: done(trained[number].run.name, float(values.value.mean())),
    )
    values = np.stack([estimated.value for estimated in results])  # [runs, fits, states]
    drawn = draws(values, strata, settings.seed)
    names = [finished.run.name for finished in trained]
    methods = [finished.run.group for finished in trained]
    if seen:
        notes.append("the held-out episodes were part of the training data: estimates are too optimistic")
    if settings.fits == 1:
        notes.append("a single fit of Q: intervals do not cover differences between fits")
    # A sampler may fit networks to the held-out rows for minutes: do it once, not for every seed.
    samplers = {finished.run.sampler for finished in trained if finished.run.weighs_any_row}
    probability = {sampler: sampler.probabilities(held_out) for sampler in samplers}
    weighted = [
        weighted_reward(finished, held_out, settings.seed, probability.get(finished.run.sampler))
        for finished in trained
    ]
    runs = [
        RunEstimate(
            name,
            method,
            finished.run.seed,
            Interval.of(value.value.mean(), drawn[:, number]),
            value.value.mean(axis=1).tolist(),
            value.drift,
            value.clipped,
            weight,
            _importance(held_out, policies[number], value, settings),
        )
        for number, (finished, name, method, value, weight) in enumerate(
            zip(trained, names, methods, results, weighted, strict=True)
        )
    ]
    if any(run.clipped > MAX_CLIPPED for run in runs):
        notes.append("Q exceeds the returns in the log for some runs (clipped > 1 %): do not trust their values")
    if any(run.importance and run.importance.effective < FEW_EPISODES for run in runs):
        notes.append(
            f"importance sampling has fewer than {FEW_EPISODES} effective episodes for some runs: do not trust those"
        )
    promised = [run.weighted.reward.value if run.weighted else None for run in runs]
    table, _, more = compare(methods, values.mean(axis=(1, 2)), drawn, settings.seed, promised)
    total = {
        "name": held_out.meta.name,
        "episodes": len(held_out.episodes),
        "rows": len(held_out),
        "seen_in_training": seen,
    }
    return Judgement(
        train.meta.name,
        total,
        fit,
        settings,
        own_return(held_out, settings.discount, settings.seed),
        mean_reward(held_out, np.ones(len(held_out)), settings.seed)[0],
        table,
        runs,
        notes + more,
    )


def _importance(log: Dataset, policy: Any, values: fqe.Values, settings: FQE) -> Importance | None:
    """Estimates by importance sampling for the deterministic policy that is played. None without propensities."""
    if not has_propensities(log):
        return None
    return importance(log, policy(log.rows().obs), settings.discount, values.choices, settings.seed)


def policy_of(trained: Trained) -> Callable[[np.ndarray], np.ndarray]:
    """The policy as a function of raw observations, compiled once for all runs of a shape. Choices are one-hot rows."""
    state = pruned(trained.run.algorithm, trained.run.spec, trained.policy.state)
    actor = Actors(trained.run.algorithm, state, *(getattr(trained.policy, name) for name in SCALING))

    def acting(obs: np.ndarray) -> np.ndarray:
        parts = [np.asarray(_act(actor, obs[low : low + BLOCK])) for low in range(0, len(obs), BLOCK)]
        values = np.concatenate(parts)
        # Q reads choices as one-hot rows, and the policy takes the choice with the highest score.
        return np.eye(values.shape[-1])[values.argmax(axis=-1)] if trained.policy.is_discrete else values

    return acting


@jax.jit
def _act(actor: Actors, obs: Any) -> Any:
    return act(actor, actor.state, obs)


def first_states(held_out: Dataset) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Observations that episodes begin with, the source of each, and notes about them."""
    notes = []
    if held_out.has_episodes:
        first = np.flatnonzero(held_out.episodes.offset == 0)
        if len(first) == 0:
            first = np.arange(len(held_out.episodes))
            notes.append("no segment begins an episode: values are at the segments' first states")
        states = held_out.start_obs[first]
        source = held_out.episodes.source[first]
    else:
        states = held_out.rows().obs
        source = held_out.source
        notes.append(f"{held_out.meta.kind} data has no first states: values are averaged over all held-out states")
    chosen = np.unique(np.linspace(0, len(states) - 1, min(len(states), STATES)).round().astype(int))
    if len(states) < FEW_STATES:
        notes.append(f"{len(states)} held-out first states: hold out more episodes")
    return states[chosen], source[chosen], notes


def _plain(value: Any) -> Any:
    """The value with named tuples turned into dictionaries, for JSON."""
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value
