"""The benchmark's suites as data: which datasets a word means, and what is known of each before it is opened."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.data.names import Name, is_name, level, parse, suites
from winnow.errors import BadInput

SIZES = {
    "hopper": (11, 3),
    "halfcheetah": (17, 6),
    "walker2d": (17, 6),
    "ant": (27, 8),
    "ant-v2": (111, 8),
    "antmaze": (29, 8),
    "kitchen": (60, 9),
    "pen": (45, 24),
    "hammer": (46, 26),
    "door": (39, 28),
    "relocate": (39, 30),
}
"""Numbers in an observation and in an action, by environment or by the first word of its name."""

PAPER = "paper"
"""All suites."""
ALGORITHMS = ("iql", "cql", "td3bc")
METHODS = ("uniform", "aw", "pf", "dw-aw", "dw-uniform", "dual-aw")
"""What is trained on each dataset of a suite if nothing else is said."""


@dataclass(frozen=True)
class Entry:
    """A dataset of a grid."""

    name: Name

    @property
    def text(self) -> str:
        return self.name.text

    @property
    def environment(self) -> str:
        return self.name.environment

    @property
    def family(self) -> str:
        """The first word of the environment: ant for ant-v2, antmaze for antmaze-umaze."""
        return self.environment.split("-")[0]

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers in an observation and in an action."""
        return SIZES.get(self.environment) or SIZES[self.family]

    @property
    def level(self) -> str:
        """The good policy of a mixture; else what the name says between environment and version: medium-replay."""
        if self.name.recipe:
            return level(self.name.sources[1])
        if self.name.kind == "pool":
            return level(self.text)
        return self.text.rpartition("-v")[0].partition("-")[2]

    @property
    def share(self) -> float | None:
        """σ: percent of the rows that are good, in a mixture."""
        return round(100 * self.name.recipe.share, 9) if self.name.recipe else None

    @property
    def rows(self) -> int | None:
        """Rows of regenerated data, about; what a file of D4RL holds is not known before it is opened."""
        if self.name.recipe:
            return self.name.recipe.rows
        return self.name.pool_rows if self.name.kind == "pool" else None

    def stand_in(self, rows: int = 1_000) -> Dataset:
        """A few made-up rows of the same shape: to check settings and to measure programs without the data."""
        rng, (obs_dim, action_dim) = np.random.default_rng(0), self.sizes
        return from_arrays(
            observations=rng.normal(size=(rows, obs_dim)).astype(np.float32),
            actions=rng.uniform(-1, 1, (rows, action_dim)).astype(np.float32),
            rewards=rng.random(rows).astype(np.float32),
            terminals=np.arange(rows) % 20 == 19,
            timeouts=np.arange(rows) == rows - 1,
            action_bounds=(-1, 1),
            name=f"stand-in for {self.environment}",
        )


def entries(words: Iterable[str], *, rows: int | None = None, version: str = "") -> list[Entry]:
    """The datasets that these words mean: suites, `paper` for all of them, or names, each once.

    rows: trials with as many rows, from pools of as many rows; a set that has as many is itself
    version: mixtures of D4RL's files of this version (v2) instead of regenerated ones
    """
    if version not in ("", "v2"):
        raise BadInput(f"--version is {version!r}; it is v2, for mixtures of D4RL's files; leave it out for our own")
    if rows is not None and rows < 1:
        raise BadInput(f"--rows is {rows}; it must be at least 1")
    known = suites(version)
    known[PAPER] = [name for names in known.values() for name in names]
    found: dict[str, Entry] = {}
    for word in words:
        for text in known[word] if word in known else [_name(word, known)]:
            whole = text if rows in (None, Entry(parse(text)).rows) else f"{text}@{rows}"
            if not is_name(whole) and is_name(text):
                raise BadInput(f"{text}: can't be cut to {rows} rows; only regenerated data has trials")
            found[whole] = Entry(parse(whole))
    if not found:
        raise BadInput(f"name a suite ({', '.join(known)}) or a dataset")
    return list(found.values())


def _name(word: str, known: Iterable[str]) -> str:
    if not is_name(word) and (near := difflib.get_close_matches(word, known, n=1)):
        raise BadInput(f"there is no suite or dataset {word!r}; did you mean {near[0]!r}? ({', '.join(known)})")
    return parse(word).text


def chosen(
    found: Sequence[Entry],
    environments: Sequence[str] = (),
    levels: Sequence[str] = (),
    shares: Sequence[float] = (),
) -> list[Entry]:
    """Those of some environments, levels and σ; an empty filter lets all through."""
    filters = {
        "--environments": (environments, lambda one: {one.environment, one.family}),
        "--levels": (levels, lambda one: {one.level}),
        "--shares": (shares, lambda one: {one.share} - {None}),
    }
    for option, (wanted, of) in filters.items():
        there = set().union(*map(of, found)) if found else set()
        if wrong := [word for word in wanted if word not in there]:
            choices = ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in sorted(there))
            raise BadInput(f"{option} {wrong[0]}: no dataset here is like that; there are {choices or 'none with one'}")
    kept = [one for one in found if all(not want or of(one) & set(want) for want, of in filters.values())]
    if not kept:
        raise BadInput("the filters leave no dataset; leave one of --environments, --levels and --shares out")
    return kept
