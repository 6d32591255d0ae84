"""`winnow demo`: everything it promises, at a size that shows nothing but that it works."""

from __future__ import annotations

import json

from winnow.cli import main
from winnow.commands.demo import METHODS


def test_the_demo_goes_from_nothing_to_a_page_with_all_methods(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path / "data"))
    words = ["demo", "--out", str(tmp_path / "demo"), "--steps", "20", "--seeds", "1", "--rows", "1500"]
    assert main(words) == 0
    said = capsys.readouterr().out
    page = (tmp_path / "demo" / "index.html").read_text()
    rounds = json.loads((tmp_path / "demo" / "returns.json").read_text())["rounds"]
    assert len(rounds) == len(METHODS)
    for method in METHODS:
        assert method in said
        assert f"<td>{method}</td>" in page
    assert all(len(one["returns"]) == 10 for run in rounds.values() for one in run)
    before = page
    assert main(words) == 0  # what is there is kept
    assert (tmp_path / "demo" / "index.html").read_text() == before
