"""The examples in docstrings: every sampler, weighter, recipe and statistic has one, and they print what they say."""

from __future__ import annotations

import doctest
import inspect
import sys
from typing import Any

import pytest

from winnow import stats
from winnow.data import recipes
from winnow.samplers import SAMPLERS
from winnow.weighters import WEIGHTERS

INNER = {"winnow.data.recipes.build", "winnow.data.recipes.rebuild", "winnow.stats.pool"}
"""What recipes and statistics are made with."""


def functions(module: Any) -> dict[str, Any]:
    """Public functions that a module defines itself."""
    return {
        f"{module.__name__}.{name}": thing
        for name, thing in inspect.getmembers(module, inspect.isfunction)
        if not name.startswith("_") and f"{module.__name__}.{name}" not in INNER and thing.__module__ == module.__name__
    }


SHOWN: dict[str, Any] = {
    **{f"sampler {name}": kind for name, kind in SAMPLERS.items()},
    **{f"weighter {name}": kind for name, kind in WEIGHTERS.items()},
    **functions(recipes),
    **functions(stats),
}


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_prints_what_it_says(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    thing = SHOWN[name]
    test = doctest.DocTestFinder(recurse=False).find(thing, name, globs=dict(vars(sys.modules[thing.__module__])))[0]
    assert test.examples, f"{name}: ends its docstring with a section `Examples:` of two or three lines"
    assert doctest.DocTestRunner().run(test).failed == 0, capsys.readouterr().out


def test_examples_are_not_in_the_help(capsys):
    from winnow.cli import main

    with pytest.raises(SystemExit):
        main(["train", "--help", "--method", "dual-aw"])
    shown = capsys.readouterr().out
    assert "did better than their start promised" in " ".join(shown.split())
    assert ">>>" not in shown
    assert "Examples" not in shown
