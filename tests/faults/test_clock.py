"""A wall clock that jumps: nothing in winnow asks it, and commands end as they do with a good one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from helpers.faults.injuries import jumping_clock

import winnow

STEADY = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"}
"""What a clock that is set by nobody is asked for."""
OF_DAY = ("import datetime", "from datetime", "from time")


def test_nobody_asks_for_the_time_of_day():
    asked = []
    for path in Path(winnow.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            words = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Import | ast.ImportFrom) else ""
            module, _, name = words.partition(".")
            if words.startswith(OF_DAY) or (module == "time" and name not in STEADY):
                asked.append(f"{path.name}: {words}")
    assert asked == []


def test_a_clock_that_jumps_by_days_changes_nothing(company, tmp_path):
    library = jumping_clock(tmp_path)
    if library is None:
        pytest.skip("there is no C compiler (cc) to make the clock with")
    for name in ("data import", "train"):
        company.scene(name).run(tmp_path / name, LD_PRELOAD=library)
        company.check(name, tmp_path / name, done=True)
