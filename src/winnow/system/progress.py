"""A bar with the rate and the time left, on a terminal; a line now and then where there is none."""

from __future__ import annotations

import sys
import time
from typing import Any

QUIET_SECONDS = 15.0
"""Seconds between two lines where there is no terminal."""


def say(line: str) -> None:
    """A line for whoever watches, in one piece: two threads that print at once mix their words."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class Progress:
    """Counts what is done of a total: run-steps over all packs of a call, or whatever `unit` says."""

    def __init__(self, total: int, shown: bool, unit: str = "run-steps") -> None:
        self._total, self._done, self._skipped = total, 0, 0
        self._shown, self._unit = shown, unit
        self._bar: Any = None
        self._title = ""
        self._began = self._spoke = time.monotonic()

    def __enter__(self) -> Progress:
        if self._shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = ("[progress.description]{task.description}", "{task.percentage:3.0f}%", "{task.fields[rate]}")
            self._bar = Progress(
                TextColumn(columns[0]),
                BarColumn(),
                TextColumn(columns[1]),
                TextColumn(columns[2]),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total, rate="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def describe(self, title: str) -> None:
        self._title = title
        if self._bar:
            self._bar.update(self._task, description=title)
        elif self._shown and time.monotonic() - self._spoke > QUIET_SECONDS:
            self._spoke = time.monotonic()
            say(title)

    def skip(self, steps: int) -> None:
        """Steps that an earlier call has done already."""
        self._skipped += steps
        self.count(steps)

    def say(self, text: str) -> None:
        """A line that stays."""
        say(text) if not self._bar else self._bar.console.print(text, markup=False)

    def reach(self, done: int, total: int) -> None:
        """So many of so many are done."""
        self._total = total
        self.count(done - self._done)

    def count(self, steps: int) -> None:
        """So many more are done."""
        self._done += steps
        now = time.monotonic()
        rate = (self._done - self._skipped) / max(now - self._began, 1e-6)
        if self._bar:
            self._bar.update(self._task, completed=self._done, total=self._total, rate=f"{rate:,.0f} {self._unit}/s")
        elif self._shown and now - self._spoke > QUIET_SECONDS:
            self._spoke = now
            words = f"{self._title}: {self._done / self._total:.0%}"
            if rate > 0:
                words += f", {rate:,.0f} {self._unit}/s, {(self._total - self._done) / rate:,.0f} s left"
            say(words)
