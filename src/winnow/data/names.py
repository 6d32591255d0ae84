"""The datasets of the benchmark by name: what each is made of, and which suite it belongs to.

    hopper-random-expert-5%             95 % from a random policy, 5 % from an expert, whole episodes (mixed)
    hopper-random-expert-diverse-5%     the same in fragments of 10 to 49 steps (diverse)
    hopper-random-expert-10%-small      50,000 rows instead of a million (small)
    hopper-expert                       one policy's episodes: a pool, what the others are mixed from
    hopper-random-expert-5%@20000       as many rows, from pools of as many rows
    hopper-medium-v2, hopper-random-expert-5%-v2      D4RL's own data, and a mixture of it

A name without D4RL's version means regenerated data, a name with it means D4RL's files: neither ever stands in for the
other.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

from winnow.data.recipes import Recipe
from winnow.errors import BadInput

ENVIRONMENTS = ("hopper", "halfcheetah", "walker2d", "ant")
CHOOSING = ("cartpole", "acrobot")
"""Environments with discrete actions. Their datasets have names, and are not of the benchmark."""
LEVELS = ("random", "medium", "expert")
SHARES = (1, 5, 10, 50)
ROWS = 1_000_000
SMALL_ROWS = 50_000

LONGEST = 100
"""Letters of a name."""
VERSION = "v2"
"""D4RL's version of the locomotion data that mixtures are made from."""

_NAMED = "|".join((*ENVIRONMENTS, *CHOOSING))
_POOL = re.compile(rf"({_NAMED})-({'|'.join(LEVELS)})(?:@(\d+))?")
_MIXTURE = re.compile(
    rf"({_NAMED})-({'|'.join(LEVELS)})-({'|'.join(LEVELS)})(-diverse)?-(\d+(?:\.\d+)?)%(-small)?(-{VERSION})?"
    r"(?:@(\d+))?"
)


@dataclass(frozen=True)
class Name:
    """A dataset's name, taken apart."""

    text: str
    kind: Literal["pool", "mixture", "d4rl"]
    environment: str
    sources: tuple[str, ...]
    """Names of what it is made of: nothing for a pool or a file of D4RL, the bad and the good source for a mixture."""
    suite: str
    recipe: Recipe | None = None
    pool_rows: int = ROWS

    @property
    def is_d4rl(self) -> bool:
        """Whether it means D4RL's files."""
        return self.kind == "d4rl" or any(source.endswith(f"-{VERSION}") for source in self.sources)


def level(source: str) -> str:
    """The policy that a source's name says: expert, for hopper-expert, hopper-expert@2000 and hopper-expert-v2."""
    return source.split("@")[0].removesuffix(f"-{VERSION}").rpartition("-")[2]


def is_name(text: str) -> bool:
    return _parsed(text) is not None


def parse(text: str) -> Name:
    """The name taken apart; an error with the nearest names if there is none like it."""
    name = _parsed(text)
    if name is None:
        near = difflib.get_close_matches(text, [*all_names(), *pools()], n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else "`winnow data list` shows the names there are"
        raise BadInput(f"there is no dataset called {text!r}; {hint}")
    return name


def _parsed(text: str) -> Name | None:
    if len(text) > LONGEST:  # and no number in it is beyond reason
        return None
    if match := _POOL.fullmatch(text):
        environment, _, rows = match.groups()
        return Name(text, "pool", environment, (), "pool", pool_rows=int(rows or ROWS)) if rows != "0" else None
    if match := _MIXTURE.fullmatch(text):
        environment, low, high, diverse, percent, small, version, rows = match.groups()
        share = float(percent) / 100
        if version and environment in CHOOSING:
            return None
        if low == high or not 0 <= share <= 1 or (rows and int(rows) < 1):
            return None
        full = SMALL_ROWS if small else ROWS
        # Fewer rows than the name says come from smaller pools: a trial, not the benchmark's set.
        pool_rows = int(rows) if rows else ROWS
        if version:
            sources = tuple(f"{environment}-{policy}-{VERSION}" for policy in (low, high))
        else:
            cut = f"@{pool_rows}" if rows else ""
            sources = tuple(f"{environment}-{policy}{cut}" for policy in (low, high))
        recipe = Recipe(share, int(rows) if rows else full, "segments" if diverse else "episodes")
        suite = "diverse" if diverse else "small" if small else "mixed"
        return Name(text, "mixture", environment, sources, suite, recipe, pool_rows)
    from winnow.data import d4rl

    if text in d4rl.FILES:
        return Name(text, "d4rl", d4rl.environment(text), (), _d4rl_suite(text))
    return None


def _d4rl_suite(text: str) -> str:
    word = text.split("-")[0]
    return {"antmaze": "d4rl-antmaze", "kitchen": "d4rl-kitchen"}.get(
        word, "d4rl-mujoco" if word in ENVIRONMENTS else "d4rl-adroit"
    )


# --------------------------------------------------------------------------------------------------- suites


def pools() -> list[str]:
    """What regenerated mixtures are made from."""
    return [f"{environment}-{policy}" for environment in ENVIRONMENTS for policy in LEVELS]


def suites(version: str = "") -> dict[str, list[str]]:
    """The benchmark's 113 datasets by suite; with D4RL's version, mixtures of D4RL's files instead of regenerated
    ones."""
    from winnow.data import d4rl

    tail = f"-{version}" if version else ""
    pairs = [f"{environment}-random-{good}" for environment in ENVIRONMENTS for good in ("medium", "expert")]
    made = {
        "mixed": [f"{pair}-{share}%{tail}" for pair in pairs for share in SHARES],
        "diverse": [f"{pair}-diverse-{share}%{tail}" for pair in pairs for share in SHARES],
        "small": [f"{pair}-10%-small{tail}" for pair in pairs],
    }
    for name in d4rl.FILES:
        made.setdefault(_d4rl_suite(name), []).append(name)
    return made


def all_names(version: str = "") -> list[str]:
    return [name for names in suites(version).values() for name in names]
