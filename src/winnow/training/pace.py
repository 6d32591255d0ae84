"""How many updates to make before looking up: often enough to hear Ctrl-C, seldom enough to cost nothing."""

from __future__ import annotations

import time

import jax

from winnow.packs.pack import Pack
from winnow.training.hooks import Hooks

LOOK_SECONDS = 0.5
"""About how long a CPU trains between two looks at the clock."""
ACCELERATOR_STEPS = 1_000
"""Updates between two looks on an accelerator, where every other number is another program to compile."""


class Pace:
    """Advances packs piece by piece. On a CPU the pieces grow until one takes `LOOK_SECONDS`."""

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
        if seconds >= LOOK_SECONDS:
            self._size = max(1, size // 2)
        elif size == self._size:  # a piece that was cut short says nothing
            self._size = min(2 * size, int(size * LOOK_SECONDS / seconds) + 1)
