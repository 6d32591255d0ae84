"""A progress bar with the rate and the time left, on a terminal; a line now and then where there is none."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

QUIET_SECONDS = 15.0
"""Seconds between two lines where there is no terminal."""
TIMED_SECONDS = 2.0
"""A rate that was measured for less time gives no estimate of the time left."""

_quiet = False
_shown: list[Progress] = []
"""Bars on the terminal, the outermost first: only the last one moves, since two would write over each other."""


@contextlib.contextmanager
def quietly(quiet: bool = True) -> Iterator[None]:
    """Inside, no bar is shown and `say` prints nothing. `warn` still does."""
    global _quiet
    before = _quiet
    _quiet = quiet or before
    try:
        yield
    finally:
        _quiet = before


def is_quiet() -> bool:
    """Whether --quiet was given."""
    return _quiet


def say(line: str) -> None:
    """Print a line on stderr, unless --quiet was given. It is written at once: two threads that print together would
    mix their words."""
    if not _quiet:
        warn(line)


def warn(line: str) -> None:
    """Print a line on stderr, also with --quiet: a warning, or why something failed."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class Progress:
    """Counts how much of a total is done: run-steps over all packs of a call, or whatever `unit` says.

    The rate leaves out the time that programs take to compile: after `compiling`, the clock starts with the next count.
    """

    def __init__(self, total: int, shown: bool, unit: str = "run-steps") -> None:
        self._total = total
        self._done = 0
        self._shown = shown and not _quiet
        self._unit = unit
        self._bar: Any = None
        self._title = ""
        self._spoke = time.monotonic()
        self._since: float | None = self._spoke
        self._timed = 0
        self._timed_seconds = 0.0

    def __enter__(self) -> Progress:
        if self._shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("[progress.description]{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:3.0f}%"),
                TextColumn("{task.fields[rate]}"),
                console=Console(stderr=True),
            )
            if _shown:
                _shown[-1]._pause()
            _shown.append(self)
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total, rate="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()
            _shown.remove(self)
            if _shown:
                _shown[-1]._resume()

    def _pause(self) -> None:
        self._bar.stop()

    def _resume(self) -> None:
        self._bar.start()

    def describe(self, title: str) -> None:
        """Show what is being done now."""
        self._title = title
        if self._bar:
            from rich.markup import escape

            self._bar.update(self._task, description=escape(title))
        elif self._is_due():
            say(title)

    def compiling(self, title: str) -> None:
        """Show what is being done now; it begins with a compilation, which is over with the next count."""
        self.describe(title)
        self._since = None
        if self._bar:
            self._bar.update(self._task, rate="compiling")

    def skip(self, steps: int) -> None:
        """Count what an earlier call has done already. It does not count for the rate."""
        self._done += steps
        self._show()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if not _quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """Print a line that stays, also with --quiet."""
        self._bar.console.print(text, markup=False) if self._bar else warn(text)

    def reach(self, done: int, total: int) -> None:
        """Count up to `done` of a new total."""
        self._total = total
        self.count(done - self._done)

    def count(self, steps: int) -> None:
        """Count so many more."""
        self._done += steps
        now = time.monotonic()
        if self._since is not None:
            self._timed += steps
            self._timed_seconds += now - self._since
        self._since = now
        self._show()

    def _show(self) -> None:
        if self._bar:
            self._bar.update(self._task, completed=self._done, total=self._total, rate=self._pace())
        elif self._shown and self._is_due():
            share = f"{self._done / self._total:.0%}" if self._total else ""
            say(", ".join(part for part in (f"{self._title}: {share}", self._pace()) if part))

    def _is_due(self) -> bool:
        """Whether it is time for another line."""
        now = time.monotonic()
        due = self._shown and now - self._spoke > QUIET_SECONDS
        self._spoke = now if due else self._spoke
        return due

    def _pace(self) -> str:
        """The rate and the time left, once there was time enough to measure them."""
        if self._timed_seconds < TIMED_SECONDS or not self._timed:
            return ""
        rate = self._timed / self._timed_seconds
        left = max(0.0, (self._total - self._done) / rate)
        return f"{rate:,.{0 if rate >= 10 else 1}f} {self._unit}/s, {duration(left)} left"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
