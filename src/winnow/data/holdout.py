"""Episodes that training never sees: splitting a dataset in two, and finding the other part again.

The part to train on is written with the name and the fingerprint of the part that is held out, so a run that was
trained on it leads to the episodes it can be judged by.
"""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from winnow.data import store
from winnow.data.dataset import Dataset, Episodes
from winnow.errors import BadInput

KEY = "split"
"""Where a part's recipe says what it is a part of."""


def split(dataset: Dataset, share: float = 0.2, seed: int = 0) -> tuple[Dataset, Dataset]:
    """The dataset to train on and the one that is held out: whole episodes, the same share of every source.

    Inside a source, episodes are ordered by return and one is drawn from every 1/share neighbours: a source of 5 %
    good episodes has its good ones on both sides. Segments of one original episode, and copies of it, stay together.
    A source of a single episode stays in the training part.
    """
    if not 0 < share < 1:
        raise BadInput(f"share must be above 0 and below 1, got {share}; a fifth is 0.2")
    table = dataset.episodes
    rng = np.random.default_rng([seed, len(dataset.episodes)])
    pairs = np.stack([table.source, table.origin], axis=1)
    origins, group = np.unique(pairs, axis=0, return_inverse=True)
    group = group.reshape(-1)
    best = np.full(len(origins), -np.inf)
    np.maximum.at(best, group, dataset.returns)
    is_held_out = np.zeros(len(origins), bool)
    for source in np.unique(origins[:, 0]):
        inside = np.flatnonzero(origins[:, 0] == source)
        is_held_out[_spread(inside[np.argsort(best[inside], kind="stable")], share, rng)] = True
    if not is_held_out.any() or is_held_out.all():
        fragments = "episodes" if dataset.has_episodes else "fragments"
        raise BadInput(
            f"{dataset.meta.name}: {len(origins)} {fragments} can't be split with a share of {share}: one part would "
            "be empty; give more of them (say, an `episode` column that changes every day), or another share"
        )
    out = is_held_out[group]
    parts = (dataset.select(np.flatnonzero(~out)), dataset.select(np.flatnonzero(out)))
    whole = {"name": dataset.meta.name, "fingerprint": dataset.fingerprint, "recipe": dataset.meta.recipe}
    train, other = (
        part.describe(
            name=f"{dataset.meta.name}-{word}",
            recipe={KEY: {"part": word, "share": share, "seed": seed, "of": whole}},
        )
        for part, word in zip(parts, ("train", "held-out"), strict=True)
    )
    return _knowing(train, other), other


def _spread(order: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """About a share of what is ordered, evenly spread over the order, from a random start; never all of it."""
    count = min(max(1, round(share * len(order))), len(order) - 1)
    if count < 1:
        return order[:0]
    edge = np.arange(count + 1) * len(order) // count
    return order[rng.integers(edge[:-1], edge[1:])]


def _knowing(train: Dataset, other: Dataset, file: str | None = None) -> Dataset:
    """The training part with a note of what was held out of it."""
    recipe: dict[str, Any] = dict(train.meta.recipe or {})
    recipe[KEY] = recipe[KEY] | {"held_out": {"file": file, "fingerprint": other.fingerprint}}
    return train.describe(recipe=recipe)


def write(train: Dataset, other: Dataset, train_file: Path, held_file: Path) -> None:
    """Both parts as files; the first knows the second by its name, so they can be moved together."""
    if train_file.resolve() == held_file.resolve():
        raise BadInput(f"{train_file}: both parts can't be the same file; name two")
    near = train_file.resolve().parent == held_file.resolve().parent
    store.save(other, held_file)
    store.save(_knowing(train, other, held_file.name if near else str(held_file.resolve())), train_file)


def held_out_of(train: Dataset) -> Dataset | None:
    """The episodes that were held out of a dataset, where it says so and was opened from a file."""
    part = (train.meta.recipe or {}).get(KEY)
    saved = part.get("held_out") if isinstance(part, dict) else None
    if not isinstance(saved, dict) or not isinstance(saved.get("file"), str) or not train.path:
        return None
    path = Path(train.path).parent / saved["file"]
    there = False
    with contextlib.suppress(OSError, ValueError):  # no system has a file of such a name
        there = path.is_file()
    if not there:
        raise BadInput(f"{path}: was held out of {train.path} and is gone; put it back or give it with --held-out")
    try:
        other = dataclasses.replace(store.load(path), path=str(path))
    except BadInput as error:
        raise BadInput(f"{train.path}: what was held out of it can't be read: {error}") from error
    if other.fingerprint != saved.get("fingerprint"):
        raise BadInput(f"{path}: holds other rows than were held out of {train.path}; split again")
    return other


def join(first: Dataset, second: Dataset) -> Dataset:
    """Two parts of one dataset side by side again, with their sources; no row is copied."""
    moved = dataclasses.replace(second.episodes, arena=second.episodes.arena + len(first.arenas))
    columns = {name: np.concatenate([column, moved.columns[name]]) for name, column in first.episodes.columns.items()}
    return Dataset(first.arenas + second.arenas, Episodes(**columns), first.meta)
