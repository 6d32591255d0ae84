"""kill -9 at any moment of a command: the same command ends as if nothing had happened.

Grids are killed in tests/bench; the long version of all this is soak.py.
"""

from __future__ import annotations

import random

import pytest
from helpers.faults.injuries import Target

BLOWS: dict[str, tuple[Target, ...]] = {
    "data import": ("command", "command", "command"),
    "data make": ("family", "command", "child"),
    "train": ("family", "child"),
    "evaluate": ("command",),
    "tune": ("command", "command"),
    "report": ("command",),
}


@pytest.mark.parametrize("name", BLOWS)
def test_killed_at_random_moments_it_ends_with_the_same_bits(name, company, tmp_path):
    rng = random.Random(name)
    for target in BLOWS[name]:
        company.injure(name, tmp_path / "out", target, rng)
    company.finish(name, tmp_path / "out")
