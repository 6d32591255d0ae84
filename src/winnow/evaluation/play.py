"""Evaluating policies: playing episodes in their environment."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax

from winnow.envs.play import MAX_ENVS_PER_CORE, Games
from winnow.envs.workers import WorkerError
from winnow.errors import BadInput
from winnow.evaluation.candidates import Candidate, candidate_of, candidates, resolve_environment
from winnow.evaluation.records import Round, make_round
from winnow.policy import stacked
from winnow.system.cores import cores_here

if TYPE_CHECKING:
    from winnow.training.trained import Trained


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
    """Play trained policies and return their raw returns. A run is given by its file, its folder, or as `train`
    returned it.

    episodes: episodes of each run; which ones they are depends on its seed alone
    environment: replaces the environment that the dataset names
    seed: one for all runs, in place of each run's own
    all_rounds: play the policies of every round that training has kept (`Evaluation.keep`), not the final ones
    progress: called with the number of episodes that have ended, and how many there will be
    """
    if episodes < 1:
        raise BadInput(f"episodes must be at least 1, got {episodes}")
    results: list[Candidate | Round] = []
    for run in runs if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]:
        results += candidates(Path(run), all_rounds) if isinstance(run, (str, Path)) else [candidate_of(run)]
    overrides = {"environment": environment, "seed": seed}
    given = {name: value for name, value in overrides.items() if value is not None}
    groups: dict[Hashable, list[int]] = {}
    policies: dict[int, Candidate] = {}
    for number, result in enumerate(results):
        if isinstance(result, Candidate):
            policies[number] = result._replace(**given)
            shape = jax.tree.structure(result.algorithm), result.spec.obs_dim, result.spec.action_dim
            groups.setdefault(shape, []).append(number)
    _check(list(policies.values()), results)
    size = max(1, MAX_ENVS_PER_CORE // 2 * (processes or cores_here()))
    total = episodes * len(policies)
    ended = 0

    def tick(more: int) -> None:
        nonlocal ended
        ended += more
        if progress:
            progress(ended, total)

    for group in groups.values():
        for low in range(0, len(group), size):
            batch = group[low : low + size]
            rounds = _play([policies[number] for number in batch], episodes, processes, tick)
            for number, played in zip(batch, rounds, strict=True):
                results[number] = played
    return [result for result in results if isinstance(result, Round)]


def _check(policies: Sequence[Candidate], results: Sequence[Candidate | Round]) -> None:
    """Refuse what can't be played, before any episode begins."""
    if not policies:
        why = "; ".join(f"{result.run} failed ({result.failed})" for result in results if isinstance(result, Round))
        raise BadInput(f"there is no policy to evaluate: {why or 'name at least one run'}")
    for policy in {(policy.environment, policy.spec[:2]): policy for policy in policies}.values():
        try:
            resolve_environment(policy.environment, policy.spec)
        except BadInput as error:
            raise BadInput(
                f"{policy.run}: can't be played ({error}); name another environment (--environment)"
            ) from error


def _play(
    policies: Sequence[Candidate], episodes: int, processes: int | None, tick: Callable[[int], None]
) -> list[Round]:
    """Play policies of one shape at once."""
    environments = [policy.environment or "" for policy in policies]
    act = stacked.together([policy.actors for policy in policies]).on_cpu()
    seeds = [policy.seed for policy in policies]
    first = [policy.first for policy in policies]
    try:
        with Games(environments, episodes, processes) as games:
            tick(0)
            played = games.play(act, seeds, first, tick=tick)
    except WorkerError as error:
        raise BadInput(f"{', '.join(sorted(set(environments)))}: can't be played: {error}") from error
    return [
        make_round(policy.run, policy.step, policy.round, environment, returns, lengths)
        for policy, environment, returns, lengths in zip(
            policies, environments, played.returns, played.lengths, strict=True
        )
    ]
