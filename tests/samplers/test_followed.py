"""What belongs to good pieces: on a hill with an edge, where it is known which begin or end among good ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.problems import quick_compiles, toy_dataset

from winnow.data.arrays import from_arrays
from winnow.data.dataset import Dataset
from winnow.errors import BadInput
from winnow.samplers import Continued, Followed
from winnow.samplers.fits import cache

QUICK = Followed(discount=0.9, rounds=30, steps=300, hidden=(32,))
START, WAY, HILL, EDGE, DOWN, FALL, MUD = range(7)
KINDS = {
    "entry": (20, ((START, WAY), (WAY, HILL))),
    "top": (300, ((HILL, HILL),) * 2),
    "end": (30, ((HILL, EDGE), (EDGE, DOWN))),
    "after": (10, ((EDGE, DOWN), (DOWN, FALL))),
    "muddy": (5, ((MUD, HILL), (HILL, EDGE))),
    "bad": (400, ((START, FALL), (FALL, FALL))),
}


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    with quick_compiles():
        yield


@pytest.fixture(scope="module")
def hill() -> Dataset:
    """Pieces of two moves. From the start a way leads up a hill, where every move pays 1, and some go over its edge and
    fall; most fall at the start. Only the last of a fall is a terminal. A few come out of the mud."""
    moves = np.array([piece for count, piece in KINDS.values() for _ in range(count)]).reshape(-1, 2)
    end = np.arange(len(moves)) % 2 == 1
    terminal = end & (moves[:, 1] == FALL)
    obs, following = np.eye(7)[moves[:, 0]], np.eye(7)[moves[:, 1]]
    reward = (moves[:, 0] == HILL).astype(float)
    return from_arrays(obs, np.zeros((len(moves), 1)), reward, terminal, end & ~terminal, following)


def drawn(data: Dataset, sampler: Continued) -> dict[str, float]:
    """How likely a row of each kind is drawn, in units of the top's."""
    found = sampler.probabilities(data)[::2]
    kind = np.repeat(list(KINDS), [count for count, _ in KINDS.values()])
    each = {name: found[kind == name].mean() for name in KINDS}
    return {name: value / each["top"] for name, value in each.items()}


def test_continued_leaves_out_how_good_pieces_end(hill: Dataset) -> None:
    settings = {field.name: getattr(QUICK, field.name) for field in dataclasses.fields(Continued)}
    found = drawn(hill, Continued(**settings))
    assert found["entry"] == pytest.approx(1, rel=0.05)
    assert max(found[name] for name in ("end", "after", "muddy", "bad")) < 1e-3


def test_what_follows_good_pieces_is_drawn_with_them_to_the_last_fall(hill: Dataset) -> None:
    found = drawn(hill, QUICK)
    for name in ("entry", "end", "after", "muddy"):
        assert found[name] == pytest.approx(1, rel=0.05), name
    assert found["bad"] < 1e-3


def test_a_pass_goes_on_by_one_piece(hill: Dataset) -> None:
    """What begins at the edge begins among good pieces only when those that lead there are."""
    found = drawn(hill, dataclasses.replace(QUICK, passes=1))
    assert found["end"] == pytest.approx(1, rel=0.05)
    assert found["after"] < 0.01


def test_a_majority_must_be_drawn_where_a_piece_begins(hill: Dataset) -> None:
    """On the hill 20 of 21 rows are the top's, and at the start one in 21 leads up."""
    assert drawn(hill, dataclasses.replace(QUICK, begins=0.995, passes=1))["end"] < 0.3
    assert drawn(hill, dataclasses.replace(QUICK, begins=0.01, passes=1))["bad"] > 0.5


def test_nearly_all_must_be_drawn_where_a_piece_ends(hill: Dataset) -> None:
    """What comes out of the mud ends on the hill and goes over the edge: no good by where it leads or begins."""
    assert drawn(hill, dataclasses.replace(QUICK, passes=1))["muddy"] == pytest.approx(1, rel=0.05)
    assert drawn(hill, dataclasses.replace(QUICK, passes=1, ends=0.999))["muddy"] < 0.3


def test_it_is_kept_for_each_setting(hill: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WINNOW_DATA", str(tmp_path))
    monkeypatch.setattr(cache, "KEPT_ROWS", 10)
    first = QUICK.probabilities(hill)
    assert len(list((tmp_path / "priorities").iterdir())) == 2
    np.testing.assert_array_equal(QUICK.probabilities(hill), first)
    dataclasses.replace(QUICK, begins=0.9).probabilities(hill)
    assert len(list((tmp_path / "priorities").iterdir())) == 3


@pytest.mark.parametrize(
    ("name", "value"), [("passes", 0), ("begins", 1.0), ("ends", -0.1), ("rounds", 0), ("temperature", 0.0)]
)
def test_settings_that_mean_nothing_are_refused(name: str, value: float) -> None:
    with pytest.raises(BadInput, match=rf"sampler\.{name} is {value}"):
        dataclasses.replace(QUICK, **{name: value}).probabilities(toy_dataset())


def test_messages_call_it_by_its_own_name() -> None:
    with pytest.raises(BadInput, match="and followed needs the returns"):
        QUICK.probabilities(toy_dataset(kind="bag"))
