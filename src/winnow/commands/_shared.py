"""What commands share: where results and words go (`--json`, `--quiet`), bars, and datasets opened, made and shown."""

from __future__ import annotations

import contextlib
import json as json_module
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from winnow.system import progress

if TYPE_CHECKING:
    from winnow.data.columns import Progress
    from winnow.data.dataset import Dataset

_stdout: TextIO | None = None
"""Where JSON goes while `quiet` keeps everything else from stdout."""


@contextlib.contextmanager
def quiet(on: bool) -> Iterator[None]:
    """With `on` (--quiet), only errors, warnings and JSON that was asked for are shown inside."""
    global _stdout
    if not on:
        yield
        return
    before = _stdout
    _stdout = before or sys.stdout
    with contextlib.ExitStack() as stack:
        stack.callback(_restore, before)
        nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        stack.enter_context(progress.quietly())
        yield


def _restore(stdout: TextIO | None) -> None:
    global _stdout
    _stdout = stdout


@contextlib.contextmanager
def answer(json: bool) -> Iterator[Callable[[Any], None]]:
    """How a command with `--json` reports: `with answer(json) as report: …; report({...})`.

    With `json`, stdout gets the reported object when the work has ended well, and nothing else: whatever is printed
    inside, also by child processes and libraries, goes to stderr. Without it `report` does nothing, and the command
    prints its words as it likes.
    """
    if not json:
        yield lambda result: None
        return
    stdout = _stdout or sys.stdout
    results: list[Any] = []
    with _descriptor_1_to_stderr(stdout), contextlib.redirect_stdout(sys.stderr):
        yield results.append
    for result in results:
        stdout.write(json_module.dumps(plain(result), indent=1, allow_nan=False) + "\n")
    stdout.flush()


@contextlib.contextmanager
def _descriptor_1_to_stderr(stdout: TextIO) -> Iterator[None]:
    """What C code and child processes write to stdout goes to stderr, where stdout is that of the process."""
    try:
        is_ours = stdout.fileno() == 1
    except (OSError, ValueError):
        is_ours = False
    if not is_ours:
        yield
        return
    stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def plain(value: Any) -> Any:
    """A value as plain JSON: paths as text, named tuples as objects, NaN and infinity as null."""
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    if hasattr(value, "item"):  # a NumPy number
        return plain(value.item())
    if isinstance(value, float):
        return value if value - value == 0 else None
    return str(value)


# ------------------------------------------------------------------------------------------------------- bars


@contextlib.contextmanager
def bar(title: str) -> Iterator[Progress]:
    """A progress bar on a terminal's stderr, gone when the work is done; a line now and then where there is none."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if progress.is_quiet():
        yield lambda done, total: None
        return
    if not console.is_terminal:
        yield _lines(title)
        return
    with Bar(console=console, transient=True) as shown:
        task = shown.add_task(title, visible=False)
        yield lambda done, total: shown.update(task, completed=done, total=total, visible=True)


def _lines(title: str) -> Progress:
    spoke = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal spoke
        if time.monotonic() - spoke > progress.QUIET_SECONDS and total > 0:
            spoke = time.monotonic()
            progress.say(f"{title}: {done / total:.0%}")

    return tell


# --------------------------------------------------------------------------------------------------- datasets


def opened(source: str) -> Dataset:
    """A dataset from whatever `winnow data import` reads, with a bar."""
    from winnow.data.sources import open_dataset

    with bar(f"reading {source}") as shown:
        return open_dataset(source, progress=shown)


def made(name: str, sources: Mapping[str, str] | None = None, processes: int | None = None) -> Dataset:
    """The dataset with this name; what is not on disk is played or fetched, by one process at a time."""
    from winnow.data.catalogue import on_disk, open_named
    from winnow.data.folder import home
    from winnow.data.names import parse
    from winnow.system.locks import in_turn

    here = sources or on_disk(parse(name)) == "ready"
    turn = in_turn(home() / "making.lock", progress.say)
    with contextlib.nullcontext() if here else turn:
        return open_named(name, make=True, sources=sources, processes=processes, watch=bar)


def _action(dataset: Dataset) -> str:
    """What its actions are: columns, or choices and their names."""
    if dataset.action_kind == "continuous":
        return f"action {dataset.action_dim}"
    logged = ", with propensities" if dataset.propensity is not None else ""
    names = f" ({', '.join(dataset.meta.choice_names)})" if dataset.meta.choice_names else ""
    return f"action one of {dataset.action_dim} choices{names}{logged}"


def summarise(dataset: Dataset, path: str) -> None:
    """Print what is in the dataset, in a few lines."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None)
    for name, value in _facts(dataset, path):
        table.add_row(Text(name, style="bold"), Text(value))
    Console().print(table)


def _facts(dataset: Dataset, path: str) -> list[tuple[str, str]]:
    meta = dataset.meta
    fragments = "episodes" if dataset.has_episodes else "fragments"
    ends = f"{dataset.episodes.terminated.sum():,} terminal"
    return [
        ("written", path),
        ("name", meta.name),
        ("rows", f"{len(dataset):,} in {len(dataset.episodes):,} {fragments}, {ends}"),
        ("kind", meta.kind),
        ("columns", f"observation {dataset.obs_dim}, {_action(dataset)}"),
        ("environment", meta.environment or "not known"),
        ("sources", ", ".join(f"{label} {rows:,}" for label, rows in source_rows(dataset).items())),
        *(("note", note) for note in meta.notes),
    ]


def source_rows(dataset: Dataset) -> dict[str, int]:
    """How many rows each source of a dataset has."""
    table = dataset.episodes
    return {label: int(table.length[table.source == number].sum()) for number, label in enumerate(dataset.meta.sources)}


def dataset_record(dataset: Dataset, path: str) -> dict[str, Any]:
    """What is in the dataset, for `--json`."""
    meta = dataset.meta
    return {
        "written": path,
        "name": meta.name,
        "kind": meta.kind,
        "rows": len(dataset),
        "episodes": len(dataset.episodes),
        "terminal": int(dataset.episodes.terminated.sum()),
        "observation": dataset.obs_dim,
        "action": dataset.action_dim,
        "environment": meta.environment,
        "sources": source_rows(dataset),
        "observation_names": list(meta.obs_names),
        "action_names": list(meta.action_names),
        "fingerprint": dataset.fingerprint,
        "notes": list(meta.notes),
    }
