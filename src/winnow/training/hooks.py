"""What training tells its caller while it goes on, and how the caller stops it."""

from __future__ import annotations

import threading

from winnow.system.progress import Progress


class Hooks:
    """`train_runs` calls `on_begin`; for each pack `on_pack`, and `on_steps` after every few updates; `on_trained` when
    the last pack is trained; `on_evaluating` while policies are still played; and `on_end`, also after an error.

    This class shows a progress bar. A caller that trains several packs at once overrides what it needs.
    """

    def __init__(self, bar: Progress) -> None:
        self.bar = bar
        self._stop = threading.Event()

    def ask_to_stop(self) -> None:
        """Training stops after its next checkpoint. May be called from another thread."""
        self._stop.set()

    def should_stop(self) -> bool:
        return self._stop.is_set()

    def say(self, text: str) -> None:
        """Show a line that stays."""
        self.bar.say(text)

    def warn(self, text: str) -> None:
        """Show a warning, or why a run failed: a line that stays, also with --quiet."""
        self.bar.warn(text)

    def on_begin(self) -> None:
        self.bar.__enter__()

    def on_pack(self, title: str) -> None:
        self.bar.compiling(title)

    def on_skipped(self, run_steps: int) -> None:
        """An earlier call has made these updates already; or they won't be made, because their runs failed."""
        self.bar.skip(run_steps)

    def on_steps(self, run_steps: int) -> None:
        self.bar.count(run_steps)

    def on_trained(self) -> None:
        """The device is free from now on: only evaluation is left."""

    def on_evaluating(self, text: str) -> None:
        self.bar.describe(text)

    def on_end(self) -> None:
        self.bar.__exit__()
