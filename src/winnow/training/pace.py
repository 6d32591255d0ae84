"""How many updates to make in one call: few enough to notice Ctrl-C soon, many enough to cost no time."""

from __future__ import annotations

import time

import jax

from winnow.packs.pack import Pack
from winnow.training.hooks import Hooks

CALL_SECONDS = 0.5
"""About how long one call on a CPU takes."""
ACCELERATOR_STEPS = 1_000
"""Updates in one call on an accelerator, where every other number is another program to compile."""


class Pace:
    """Advances packs in several calls. On a CPU, calls grow until one takes `CALL_SECONDS`."""

    def __init__(self) -> None:
        self._size = 1

    def advance(self, pack: Pack, steps: int, hooks: Hooks) -> None:
        """Make so many updates, or fewer if asked to stop."""
        on_cpu = jax.default_backend() == "cpu"
        while steps > 0 and not hooks.should_stop():
            size = min(steps, self._size if on_cpu else ACCELERATOR_STEPS)
            before = time.monotonic()
            pack.advance(size)
            pack.wait()
            hooks.on_steps(size * len(pack.runs))
            steps -= size
            self._adapt(size, max(time.monotonic() - before, 1e-6))

    def _adapt(self, size: int, seconds: float) -> None:
        if seconds >= CALL_SECONDS:
            self._size = max(1, size // 2)
        elif size == self._size:  # the last call before a pause is shorter, and says nothing
            self._size = min(2 * size, int(size * CALL_SECONDS / seconds) + 1)
