"""Imbalanced datasets from labelled sources: `mixed`, `diverse` and `small`, seeded and rebuilt from a recipe alone.

A recipe is a small JSON record. What it builds is a table over its sources' arenas: no row is copied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from winnow.data.dataset import UNKNOWN_ROW, Dataset, Episodes, check_alike, combine
from winnow.errors import BadInput

Shape = Literal["episodes", "segments"]
MOST_EPISODES = 20_000_000
"""Episodes or segments of a mixture: of many more, the table alone would fill a machine's memory."""
SEGMENT = (10, 49)
"""Least and greatest number of steps of a segment in a `diverse` set."""


@dataclass(frozen=True)
class Recipe:
    """How to mix a few good episodes into many bad ones."""

    share: float
    """Part of the rows that comes from the good source, between 0 and 1."""
    rows: int = 1_000_000
    """Rows to reach. Episodes stay whole, so the set ends with the first episode that reaches it."""
    shape: Shape = "episodes"
    """episodes: whole ones (`mixed`); segments: 10 to 49 steps from anywhere in them (`diverse`)."""
    seed: int = 0
    """Another seed chooses other episodes."""

    def check(self) -> None:
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 <= self.share <= 1:
            raise BadInput(f"share must be between 0 and 1, got {self.share}; give a part of the rows (5 % is 0.05)")
        for name, low in (("rows", 1), ("seed", 0)):
            value = getattr(self, name)
            if type(value) is not int or not low <= value < 2**31:  # rows are counted in 32 bits
                raise BadInput(
                    f"{name} must be a whole number from {low} to 2³¹, got {str(value)[:30]}; choose another"
                )
        if self.shape not in get_args(Shape):
            raise BadInput(f"shape must be one of {', '.join(get_args(Shape))}, got {self.shape!r}; choose one")


def mixed(low: Dataset, high: Dataset, share: float, rows: int = 1_000_000, seed: int = 0, **labels: str) -> Dataset:
    """`share` of the rows from whole episodes of `high`, the rest from whole episodes of `low`.

    Examples:
        >>> from winnow import toy
        >>> low, high = toy.make(toy.random, 300, seed=0), toy.make(toy.expert, 300, seed=1)
        >>> data = mixed(low, high, share=0.2, rows=1_000)
        >>> print(len(data), (data.source == 1).mean().round(2), data.episodes.length.max())  # 3rd: longest episode
        1005 0.2 200
    """
    return build(Recipe(share, rows, "episodes", seed), low, high, **labels)


def diverse(low: Dataset, high: Dataset, share: float, rows: int = 1_000_000, seed: int = 0, **labels: str) -> Dataset:
    """As `mixed`, from segments of 10 to 49 steps: they start anywhere and mostly end in an artificial timeout.

    Examples:
        >>> from winnow import toy
        >>> low, high = toy.make(toy.random, 300, seed=0), toy.make(toy.expert, 300, seed=1)
        >>> data = diverse(low, high, share=0.2, rows=1_000)
        >>> print(len(data), (data.source == 1).mean().round(2), data.episodes.length.max())  # 3rd: longest episode
        1027 0.21 49
    """
    return build(Recipe(share, rows, "segments", seed), low, high, **labels)


def small(low: Dataset, high: Dataset, share: float = 0.1, rows: int = 50_000, seed: int = 0, **labels: str) -> Dataset:
    """As `mixed`, with 50,000 rows of which a tenth is good.

    Examples:
        >>> from winnow import toy
        >>> low, high = toy.make(toy.random, 300, seed=0), toy.make(toy.expert, 300, seed=1)
        >>> data = small(low, high)
        >>> print(len(data), (data.source == 1).mean().round(2), data.episodes.length.max())  # 3rd: longest episode
        50005 0.1 200
    """
    return build(Recipe(share, rows, "episodes", seed), low, high, **labels)


def build(
    recipe: Recipe, low: Dataset, high: Dataset, low_label: str = "low", high_label: str = "high", name: str = ""
) -> Dataset:
    """The dataset that the recipe describes, as a view of its two sources."""
    recipe.check()
    check_alike(low, high, high_label)
    for label, source in ((low_label, low), (high_label, high)):
        if not source.has_episodes:
            raise BadInput(f"source {label!r}: must have episodes, got {source.meta.kind} data; mix other sources")
    if low_label == high_label:
        raise BadInput(f"the sources' labels must differ, got {low_label!r} twice; rename one")
    good = round(recipe.share * recipe.rows)
    # A stream for each source: the episodes of one do not depend on the share or the size of the other.
    streams = [np.random.default_rng([recipe.seed, number]) for number in range(2)]
    for label, source, rows in ((low_label, low, recipe.rows - good), (high_label, high, good)):
        mean = len(source) / len(source.episodes)
        if rows / (mean if recipe.shape == "episodes" else min(mean, SEGMENT[1])) > MOST_EPISODES:
            raise BadInput(
                f"rows must take at most {MOST_EPISODES:,} episodes of source {label!r}, got {recipe.rows:,} rows; use "
                "fewer"
            )
    draw = _whole if recipe.shape == "episodes" else _segments
    drawn = {
        low_label: draw(low, recipe.rows - good, streams[0]),
        high_label: draw(high, good, streams[1]),
    }
    title = name or f"{low_label}-{high_label}{'-diverse' if recipe.shape == 'segments' else ''}-{recipe.share:.3g}"
    record = dataclasses.asdict(recipe) | {
        "name": title,
        "sources": [
            {
                "label": label,
                "name": source.meta.name,
                "file": source.path,
                "fingerprint": source.fingerprint,
                "mean_return": float(source.returns.mean()),
            }
            for label, source in ((low_label, low), (high_label, high))
        ],
    }
    ranges = [low.return_range, high.return_range]
    span = (min(r[0] for r in ranges), max(r[1] for r in ranges))
    mixture = combine(drawn, name=title, return_range=span, notes=())
    order = np.random.default_rng([recipe.seed, 2]).permutation(len(mixture.episodes))
    made = mixture.select(order).describe(recipe=record)
    made.meta.check("the mixture")
    return made


def rebuild(record: Mapping[str, Any], sources: Mapping[str, Dataset]) -> Dataset:
    """The same dataset again, bit for bit, from its recipe and the sources it names."""
    try:
        recipe = Recipe(**{field.name: record[field.name] for field in dataclasses.fields(Recipe)})
        low, high = record["sources"]
        labels = [str(low["label"]), str(high["label"])]
        prints = [low["fingerprint"], high["fingerprint"]]
        name = str(record.get("name", ""))
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"recipe: {error} is missing or invalid; use a recipe that winnow wrote") from error
    for label, fingerprint in zip(labels, prints, strict=True):
        if label not in sources:
            raise BadInput(f"recipe: source {label!r} is missing; add --source {label}=FILE")
        if sources[label].fingerprint != fingerprint:
            raise BadInput(f"recipe: source {label!r} holds other rows than those it was made with; give the same file")
    pair = [sources[label] for label in labels]
    return build(recipe, *pair, low_label=labels[0], high_label=labels[1], name=name)


def _whole(source: Dataset, rows: int, rng: np.random.Generator) -> Dataset:
    """Whole episodes without replacement, the pool over again when it is used up, until `rows` are reached."""
    chosen: list[np.ndarray] = []
    while rows > 0:
        order = rng.permutation(len(source.episodes))
        reached = np.cumsum(source.episodes.length[order])
        order = order[: int(np.searchsorted(reached, rows)) + 1]
        chosen.append(order)
        rows -= int(source.episodes.length[order].sum())
    return source.select(np.concatenate(chosen) if chosen else np.zeros(0, int))


def _segments(source: Dataset, rows: int, rng: np.random.Generator) -> Dataset:
    """One segment from each episode in random order, over and over, until `rows` are reached."""
    table = source.episodes
    chosen: list[Episodes] = []
    while rows > 0:
        order = rng.permutation(len(table))
        whole = table.take(order)
        length = np.minimum(rng.integers(SEGMENT[0], SEGMENT[1] + 1, len(order)), whole.length)
        offset = (rng.random(len(order)) * (whole.length - length + 1)).astype(np.int64)
        segment = dataclasses.replace(
            whole,
            slot=whole.slot + offset,
            length=length,
            terminated=whole.terminated & (offset + length == whole.length),
            offset=whole.offset + offset,
            row=np.where(whole.row == UNKNOWN_ROW, UNKNOWN_ROW, whole.row + offset),
        )
        segment = segment.take(np.arange(min(int(np.searchsorted(np.cumsum(length), rows)) + 1, len(order))))
        chosen.append(segment)
        rows -= int(segment.length.sum())
    if not chosen:
        return source.select(np.zeros(0, int))
    columns = {n: np.concatenate([segment.columns[n] for segment in chosen]) for n in chosen[0].columns}
    return dataclasses.replace(source, episodes=Episodes(**columns))
