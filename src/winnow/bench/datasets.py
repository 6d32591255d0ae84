"""The datasets of a grid: made before anything is trained, kept open while a pack uses them, with shared rows."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from winnow.bench.plan import Planned
from winnow.data.catalogue import Watch, mixture, on_disk, open_named, unwatched
from winnow.data.dataset import Dataset
from winnow.data.folder import home
from winnow.data.names import parse
from winnow.errors import BadInput
from winnow.system.locks import in_turn


def missing(runs: Sequence[Planned]) -> list[str]:
    """Pools and files that the runs need and that are not on disk."""
    sources = {source: None for run in runs for source in run.entry.name.sources or (run.entry.text,)}
    return [source for source in sources if on_disk(parse(source)) != "ready"]


def make_ready(runs: Sequence[Planned], watch: Watch = unwatched, *, say: Callable[[str], None]) -> None:
    """Make or download what is not on disk, one process at a time."""
    if not missing(runs):
        return
    with in_turn(home() / "making.lock", say):
        for source in missing(runs):
            open_named(source, make=True, watch=watch)


class OpenDatasets:
    """Open datasets by name. Those of an environment that no pack uses are closed when another one is opened."""

    def __init__(self) -> None:
        self._open: dict[str, Dataset] = {}
        self._users: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def opened(self, pack: Sequence[Planned]) -> Iterator[dict[str, Dataset]]:
        """The datasets of a pack by name."""
        environments = {run.entry.environment for run in pack}
        with self._lock:
            self._users.update(environments)
        try:
            with self._lock:
                self._open = {text: data for text, data in self._open.items() if self._users[parse(text).environment]}
                opened = {text: self._get(text) for text in dict.fromkeys(run.entry.text for run in pack)}
            for run in pack:
                _check_sizes(run, opened[run.entry.text])
            yield opened
        finally:
            with self._lock:
                self._users.subtract(environments)

    def _get(self, text: str) -> Dataset:
        if text not in self._open:
            name = parse(text)
            # Mixtures of the same sources share their rows, which go to the device once.
            sources = {source: self._get(source) for source in name.sources}
            self._open[text] = mixture(name, sources) if sources else open_named(text)
        return self._open[text]


def _check_sizes(run: Planned, data: Dataset) -> None:
    if (data.obs_dim, data.action_dim) != run.entry.sizes:
        raise BadInput(
            f"{run.entry.text}: sizes of observations and actions must be {run.entry.sizes} as in D4RL, got "
            f"{(data.obs_dim, data.action_dim)}; give D4RL's own file"
        )
