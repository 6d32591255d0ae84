"""Result files: whole or set aside, never trusted for being there."""

from __future__ import annotations

import dataclasses
import json

import pytest

from winnow.bench.plan import How, digest, grid
from winnow.bench.results import Result, collect, file_of, load, thinned
from winnow.bench.suites import entries
from winnow.errors import BadInput


@pytest.fixture
def result() -> Result:
    (run,) = grid(entries(["hopper-random-expert-5%"]), ["iql"], ["dw-aw"], 1, How())
    return Result(
        id=run.id,
        name=run.name,
        method=run.method,
        swept={},
        config=json.loads(json.dumps(run.config)),
        dataset={"rows": 3, "episodes": 1, "fingerprint": "f"},
        made_with={"winnow": "0", "jax": "0", "device": "cpu", "physics": "p"},
        steps=10,
        failure=None,
        rounds=[{"step": 10, "round": 1, "returns": [1.5, 2.25], "lengths": [3, 4], "score": 0.1}],
        score=0.1,
        metrics={"step": [5, 10], "q": [0.1, 1e-17]},
        shares={"random": 0.25, "expert": 0.75},
        seconds=1.5,
    )


def test_a_result_is_the_same_after_a_file_and_the_file_is_the_same_every_time(result, tmp_path):
    path = result.save(tmp_path)
    assert path == file_of(tmp_path, result.id)
    assert load(path) == result
    before = path.read_bytes()
    load(path).save(tmp_path)
    assert path.read_bytes() == before


def change(path, **changes):
    """A file with other content and a checksum that is right for it."""
    path.write_text(dataclasses.replace(load(path), **changes).text())


WRONG = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "empty": lambda path: path.write_bytes(b""),
    "one digit is another": lambda path: path.write_text(path.read_text().replace("2.25", "2.75")),
    "settings of another run": lambda path: change(path, config={}),
    "id of another run": lambda path: change(path, id="0" * 24),
    "name of another run": lambda path: path.rename(path.with_name(f"{'0' * 24}.json")),
    "not JSON": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "not a result": lambda path: path.write_text("[1, 2]"),
    "another format": lambda path: path.write_text(path.read_text().replace("winnow-result-1", "winnow-result-0")),
    "a field is missing": lambda path: path.write_text('{"format": "winnow-result-1", "id": "x"}'),
    "not a number": lambda path: path.write_text(path.read_text().replace("2.25", "NaN")),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_whole_result_is_named_set_aside_and_kept(result, tmp_path, kind):
    good = dataclasses.replace(result, config=result.config | {"seed": 7})
    good = dataclasses.replace(good, id=digest(good.config))
    good.save(tmp_path)
    path = result.save(tmp_path)
    WRONG[kind](path)
    (bad,) = set((tmp_path / "results").iterdir()) - {file_of(tmp_path, good.id)}
    content, lines = bad.read_bytes(), []
    with pytest.raises(BadInput, match=bad.name):
        load(bad)
    assert list(collect(tmp_path, lines.append, move=False)) == [good]
    assert bad.exists()
    lines.clear()
    assert list(collect(tmp_path, lines.append)) == [good]
    assert len(lines) == 1
    assert str(bad) in lines[0]
    assert (tmp_path / "set-aside" / bad.name).read_bytes() == content
    assert not bad.exists()


def test_what_is_set_aside_never_replaces_another_file(tmp_path):
    for content in ("a", "b", "c"):
        path = file_of(tmp_path, "x")
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        assert list(collect(tmp_path, lambda line: None)) == []
    assert sorted(path.read_text() for path in (tmp_path / "set-aside").iterdir()) == ["a", "b", "c"]


def test_a_file_that_is_being_written_is_left_alone(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / ".x.json.abc.winnow-tmp.json").write_text("{")
    assert list(collect(tmp_path, pytest.fail)) == []


@pytest.mark.parametrize(("count", "steps"), [(0, []), (1, [1]), (20, range(1, 21)), (100, range(5, 101, 5))])
def test_metrics_are_thinned_evenly_and_keep_the_last(count, steps):
    lines = [{"run": "r", "step": step, "q": step / 2} for step in range(1, count + 1)]
    found = thinned([*lines, {"run": "r", "step": count + 1, "failed": "q was nan"}])
    assert found["step"] == list(steps)
    assert found.get("q", []) == [step / 2 for step in steps]


def test_at_most_20_points_are_kept():
    assert len(thinned([{"run": "r", "step": step} for step in range(33)])["step"]) == 20
