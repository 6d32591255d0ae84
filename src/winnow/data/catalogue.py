"""Opening a dataset by its name: regenerated pools, mixtures of them, and D4RL's files."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Literal

from winnow.data import d4rl, pools
from winnow.data.columns import Progress
from winnow.data.dataset import Dataset
from winnow.data.names import Name, level, parse
from winnow.data.recipes import build
from winnow.errors import BadInput

Watch = Callable[[str], AbstractContextManager[Progress]]
"""Opens a progress bar with a title."""


@contextlib.contextmanager
def unwatched(title: str) -> Iterator[Progress]:
    yield lambda done, total: None


def open_named(
    text: str,
    *,
    make: bool = False,
    sources: Mapping[str, str] | None = None,
    processes: int | None = None,
    watch: Watch = unwatched,
) -> Dataset:
    """The dataset with this name.

    make: play or download what is not on disk; without it an error says how to get it
    sources: where a D4RL file lies, by its name (`{"hopper-expert-v2": "expert.hdf5"}`)
    processes: how many play at a time; one for each core without it
    """
    name = parse(text)
    sources = dict(sources or {})
    unused = set(sources) - {text, *name.sources} if name.is_d4rl else set(sources)
    if unused:
        wanted = f"it is made of {', '.join(name.sources or (text,))}" if name.is_d4rl else "it is not made of files"
        raise BadInput(f"{text}: has no source {sorted(unused)[0]!r}; {wanted}")
    if name.kind == "pool":
        with watch(f"playing {text}") as progress:
            return pools.pool(
                name.environment, level(text), name.pool_rows, make=make, processes=processes, progress=progress
            )
    if name.kind == "d4rl":
        with watch(f"reading {text}") as progress:
            return d4rl.open_named(text, sources.get(text), download=make, progress=progress)
    lacking = [] if make or name.is_d4rl else [part for part in name.sources if on_disk(parse(part)) != "ready"]
    if lacking:
        these = f"{' and '.join(lacking)}, which {'is' if len(lacking) == 1 else 'are'} not made yet"
        raise BadInput(f"{text}: needs {these}; make all of it with `winnow data make '{text}'`")
    opened: dict[str, Dataset] = {}
    for source in name.sources:
        own = {source: sources[source]} if source in sources else {}
        try:
            opened[source] = open_named(source, make=make, sources=own, processes=processes, watch=watch)
        except BadInput as error:
            raise BadInput(f"{text}: needs {error}") from error
    made = mixture(name, opened)
    # Sources that were given by hand can't be found again by the mixture's name alone.
    return dataclasses.replace(made, path=None) if sources else made


def mixture(name: Name, opened: Mapping[str, Dataset]) -> Dataset:
    """A mixture of its opened sources, which opens again by its name."""
    assert name.recipe is not None
    low, high = name.sources
    made = build(name.recipe, opened[low], opened[high], level(low), level(high), name.text)
    return dataclasses.replace(made, path=name.text)


State = Literal["ready", "in part", "not here"]


def on_disk(name: Name) -> State:
    """How much of a dataset is here: all of it, some of its sources or episodes, or nothing."""
    if name.kind == "pool":
        job = pools.Job(name.environment, level(name.text))
        return "ready" if job.on_disk(name.pool_rows) else "in part" if job.parts.exists() or job.made() else "not here"
    if name.kind == "d4rl":
        return "ready" if d4rl.locate(name.text) else "not here"
    parts = [on_disk(parse(source)) for source in name.sources]
    if all(part == "ready" for part in parts):
        return "ready"
    return "not here" if all(part == "not here" for part in parts) else "in part"
