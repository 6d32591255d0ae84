"""A wall clock that jumps: no code of winnow reads it, and commands end as with a good clock."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from helpers.faults.kills import jumping_clock

import winnow

STEADY = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"}
"""Functions of `time` that do not read the wall clock."""
OF_DAY = ("import datetime", "from datetime", "from time")


def test_source_never_reads_the_time_of_day():
    asked = []
    for path in Path(winnow.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            code = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Import | ast.ImportFrom) else ""
            module, _, name = code.partition(".")
            if code.startswith(OF_DAY) or (module == "time" and name not in STEADY):
                asked.append(f"{path.name}: {code}")
    assert asked == []


def test_commands_ignore_a_clock_that_jumps_by_days(injector, tmp_path):
    library = jumping_clock(tmp_path)
    if library is None:
        pytest.skip("there is no C compiler (cc) to make the clock with")
    for name in ("data import", "train"):
        injector.case(name).run(tmp_path / name, LD_PRELOAD=library)
        injector.check(name, tmp_path / name, done=True)
