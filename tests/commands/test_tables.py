"""Tables of names at 80 columns: no common prefix, no empty columns, middles elided."""

from __future__ import annotations

import io

from rich.console import Console

from winnow.commands._tables import common_prefix, elided, fitted


def shown(heads, rows, width=80, title=""):
    stream = io.StringIO()
    console = Console(file=stream, width=width)
    console.print(fitted(console, heads, rows, title))
    return stream.getvalue()


def test_a_common_prefix_ends_at_a_dot():
    assert common_prefix(["plant.iql.aw.seed0", "plant.iql.aw-b.seed0"]) == "plant.iql."
    assert common_prefix(["plant.iql.aw.seed0"]) == ""
    assert common_prefix(["a", "b"]) == ""


def test_names_are_elided_in_the_middle():
    assert elided("short", 5) == "short"
    assert elided("a-long-name.seed3", 9) == "a-lo…eed3"


def test_eight_runs_are_told_apart_at_80_columns():
    names = [
        f"plant-train-with-a-long-name.iql.{method}.seed{n}"
        for method in ("uniform", "dual-paths-aw")
        for n in range(4)
    ]
    heads = ("run", "steps", "weighted reward", "effective share", "return", "score", "state")
    rows = [[name, "1,000,000", "0.123", "0.456", "", "", ""] for name in names]
    text = shown(heads, rows, title="runs")
    lines = text.splitlines()
    assert lines[0].startswith("runs · plant-train-with-a-long-name.iql.…")
    assert all(len(line) <= 80 for line in lines)
    assert "score" not in text
    assert "state" not in text
    assert [line.split()[0] for line in lines[-8:]] == [name.split("iql.")[1] for name in names]


def test_a_narrow_terminal_keeps_both_ends_of_a_name():
    text = shown(("run", "value"), [["first-of-the-very-long-names.seed0", "1"], ["x.seed1", "2"]], width=30)
    assert "first-of-t" in text
    assert "seed0" in text
