"""Playing policies in their environment."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from winnow.envs.play import MAX_ENVS_PER_CORE, Games
from winnow.envs.workers import WorkerError
from winnow.errors import BadInput
from winnow.evaluation.candidates import Candidate, _given, candidates, place
from winnow.evaluation.records import Round, earned
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
    size = max(1, MAX_ENVS_PER_CORE // 2 * (processes or cores_here()))
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
