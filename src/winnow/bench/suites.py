"""The benchmark's suites as data: which datasets a name stands for, and what is known of each before it is opened."""

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
"""Sizes of observations and actions, by environment or by the first part of its name."""

PAPER = "paper"
"""All suites."""
ALGORITHMS = ("iql", "cql", "td3bc")
METHODS = ("uniform", "aw", "pf", "dw-aw", "dw-uniform", "dual-aw")
"""Methods that are trained on each dataset of a suite by default."""


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
        """The first part of the environment's name: ant for ant-v2, antmaze for antmaze-umaze."""
        return self.environment.split("-")[0]

    @property
    def sizes(self) -> tuple[int, int]:
        """Sizes of an observation and of an action."""
        return SIZES.get(self.environment) or SIZES[self.family]

    @property
    def level(self) -> str:
        """The good policy of a mixture; otherwise the part of the name between environment and version:
        medium-replay."""
        if self.name.recipe:
            return level(self.name.sources[1])
        if self.name.kind == "pool":
            return level(self.text)
        return self.text.rpartition("-v")[0].partition("-")[2]

    @property
    def share(self) -> float | None:
        """σ: percentage of good rows in a mixture."""
        return round(100 * self.name.recipe.share, 9) if self.name.recipe else None

    @property
    def rows(self) -> int | None:
        """Approximate number of rows of regenerated data; None for a D4RL file, which must be opened to know."""
        if self.name.recipe:
            return self.name.recipe.rows
        return self.name.pool_rows if self.name.kind == "pool" else None

    def stand_in(self, rows: int = 1_000) -> Dataset:
        """A few made-up rows of the same shape: to check settings and to measure programs without the data."""
        rng = np.random.default_rng(0)
        obs_dim, action_dim = self.sizes
        return from_arrays(
            observations=rng.normal(size=(rows, obs_dim)).astype(np.float32),
            actions=rng.uniform(-1, 1, (rows, action_dim)).astype(np.float32),
            rewards=rng.random(rows).astype(np.float32),
            terminals=np.arange(rows) % 20 == 19,
            timeouts=np.arange(rows) == rows - 1,
            action_bounds=(-1, 1),
            name=f"stand-in for {self.environment}",
        )


def entries(names: Iterable[str], *, rows: int | None = None, version: str = "") -> list[Entry]:
    """The datasets of these names, each once: suites, `paper` for all suites, or datasets.

    rows: trials with so many rows, from pools of so many rows; a set that has this size already is not changed
    version: mixtures of D4RL's files of this version (v2) instead of regenerated ones
    """
    if version not in ("", "v2"):
        raise BadInput(
            f"--version must be v2, for mixtures of D4RL's files, got {version!r}; leave it out for regenerated data"
        )
    if rows is not None and rows < 1:
        raise BadInput(f"--rows must be at least 1, got {rows}")
    known = suites(version)
    known[PAPER] = [text for suite in known.values() for text in suite]
    chosen_entries: dict[str, Entry] = {}
    for name in names:
        for text in known[name] if name in known else [_name(name, known)]:
            whole = text if rows in (None, Entry(parse(text)).rows) else f"{text}@{rows}"
            if not is_name(whole) and is_name(text):
                raise BadInput(
                    f"{text}: can't be reduced to {rows} rows; only regenerated data has trials, leave out --rows"
                )
            chosen_entries[whole] = Entry(parse(whole))
    if not chosen_entries:
        raise BadInput(f"name a suite ({', '.join(known)}) or a dataset")
    return list(chosen_entries.values())


def _name(text: str, known: Iterable[str]) -> str:
    if not is_name(text) and (near := difflib.get_close_matches(text, known, n=1)):
        raise BadInput(f"there is no suite or dataset {text!r}; did you mean {near[0]!r}? ({', '.join(known)})")
    return parse(text).text


def chosen(
    candidates: Sequence[Entry],
    environments: Sequence[str] = (),
    levels: Sequence[str] = (),
    shares: Sequence[float] = (),
) -> list[Entry]:
    """The entries of these environments, levels and σ; an empty filter keeps all."""
    filters = {
        "--environments": (environments, lambda entry: {entry.environment, entry.family}),
        "--levels": (levels, lambda entry: {entry.level}),
        "--shares": (shares, lambda entry: {entry.share} - {None}),
    }
    for option, (wanted, of) in filters.items():
        known = set().union(*map(of, candidates)) if candidates else set()
        if wrong := [value for value in wanted if value not in known]:
            choices = ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in sorted(known))
            raise BadInput(f"{option} {wrong[0]}: matches none of these datasets; choose from {choices or 'none'}")
    kept = [entry for entry in candidates if all(not want or of(entry) & set(want) for want, of in filters.values())]
    if not kept:
        raise BadInput("the filters leave no dataset; drop one of --environments, --levels and --shares")
    return kept
