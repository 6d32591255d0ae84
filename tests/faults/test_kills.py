"""kill -9 at any moment of a command: run again, the command ends as if nothing had happened.

Grids are killed in tests/bench; the long version of all this is soak.py.
"""

from __future__ import annotations

import random

import pytest
from helpers.faults.kills import Target

KILLS: dict[str, tuple[Target, ...]] = {
    "data import": ("command", "command", "command"),
    "data make": ("family", "command", "child"),
    "train": ("family", "child"),
    "evaluate": ("command",),
    "tune": ("command", "command"),
    "report": ("command",),
}


@pytest.mark.parametrize("name", KILLS)
def test_commands_killed_at_random_moments_end_with_the_same_bits(name, injector, tmp_path):
    rng = random.Random(name)
    for target in KILLS[name]:
        injector.kill_once(name, tmp_path / "out", target, rng)
    injector.finish(name, tmp_path / "out")
