"""Discrete actions as they come in: asked for, counted, checked, kept in files and mixtures."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.datasets import columns

from winnow import mixed
from winnow.data import store
from winnow.data.arrays import from_arrays
from winnow.data.choices import Actions
from winnow.data.dataset import Dataset, Meta
from winnow.data.export import export
from winnow.data.scaling import action_transform, unit_actions
from winnow.data.sources import open_dataset
from winnow.errors import BadInput

NUMBERS = np.array([0, 2, 1, 0, 0, 1, 2, 1])


def choosing(**more: Any) -> Dataset:
    options: dict[str, Any] = {"choice_names": ("left", "stay", "right"), "propensities": np.linspace(0.2, 0.9, 8)}
    arrays: dict[str, Any] = columns() | {"actions": NUMBERS}
    return from_arrays(**arrays | options | more)


def refused(*parts: str, **more: Any) -> None:
    with pytest.raises(BadInput) as error:
        choosing(**{"choice_names": (), "propensities": None} | more)
    for part in parts:
        assert part in str(error.value)


def test_a_column_of_choices_becomes_one_hot_for_learners() -> None:
    data = choosing()
    assert (data.action_kind, data.action_dim, data.meta.action_low) == ("discrete", 3, ())
    assert data.rows().action.dtype == np.int32
    unit = unit_actions(data.rows().action, *action_transform(data))
    np.testing.assert_array_equal(unit, np.eye(3)[NUMBERS])
    assert data.propensity is not None
    np.testing.assert_allclose(data.propensity, np.linspace(0.2, 0.9, 8), rtol=1e-6)


def test_whole_numbers_that_may_be_choices_or_amounts_are_asked_about() -> None:
    refused("actions is one column of whole numbers (0, 1, 2)", "--action-kind discrete", "--action-kind continuous")
    amounts = choosing(choice_names=(), propensities=None, action_kind="continuous")
    assert (amounts.action_kind, amounts.action_dim) == ("continuous", 1)
    assert choosing(choice_names=(), propensities=None, action_bounds=(0, 2)).action_kind == "continuous"
    guessed = choosing(choice_names=(), action_kind="discrete")
    assert guessed.action_dim == 3
    assert "number of choices not given: taken as 3" in guessed.meta.notes[0]


def test_truth_values_are_choices_and_words_are_when_that_is_said() -> None:
    assert choosing(choice_names=(), actions=NUMBERS > 0).action_dim == 2
    words = np.array(["a", "c", "b"])[NUMBERS]
    refused("actions holds words (a, b, c)", "--action-kind discrete", actions=words)
    data = choosing(choice_names=(), actions=words, action_kind="discrete")
    assert data.meta.choice_names == ("a", "b", "c")
    assert data.rows().action[:3, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("parts", "more"),
    [
        (("row 1", "whole number", "0.5"), {"actions": np.where(NUMBERS == 2, 0.5, 0), "action_kind": "discrete"}),
        (("row 1", "-1"), {"actions": np.where(NUMBERS == 2, -1, 0), "action_kind": "discrete"}),
        (("row 1", "must be below 2", "got 2"), {"action_choices": 2}),
        (("all 0", "--action-choices"), {"actions": 0 * NUMBERS, "action_kind": "discrete"}),
        (("one column of choices",), {"actions": np.eye(3)[NUMBERS], "action_kind": "discrete"}),
        (("no bounds",), {"action_kind": "discrete", "action_bounds": (0, 2)}),
        (("no choices",), {"action_kind": "continuous", "action_choices": 3}),
        (("3 different names", "a, a, b"), {"choice_names": ("a", "a", "b")}),
        (
            ("propensity, row 2", "above 0 and at most 1", "0.0"),
            {"action_choices": 3, "propensities": np.float64(NUMBERS != 1)},
        ),
    ],
)
def test_what_can_not_be_is_refused(parts: tuple[str, ...], more: dict[str, Any]) -> None:
    refused(*parts, **more)


def test_a_choice_that_never_occurs_is_noted() -> None:
    assert "2 of 5 choices never occur: 3, 4" in choosing(choice_names=(), action_choices=5).meta.notes


@pytest.mark.parametrize("ending", ["safetensors", "npz", "parquet", "hdf5"])
def test_a_file_keeps_choices_names_and_propensities(ending: str, tmp_path: Path) -> None:
    data, path = choosing(), tmp_path / f"x.{ending}"
    (store.save if ending == "safetensors" else export)(data, path)
    again = open_dataset(path)
    assert again.fingerprint == data.fingerprint
    assert (again.meta.action_choices, again.meta.choice_names) == (3, ("left", "stay", "right"))


def test_minari_keeps_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(BadInput, match="propensities"):
        export(choosing(), "minari:choices-v0")
    export(choosing(propensities=None), "minari:choices-v0")
    again = open_dataset("minari:choices-v0")
    assert again.fingerprint == choosing(propensities=None).fingerprint


def test_a_foreign_file_is_read_as_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, **columns() | {"actions": NUMBERS, "action_prob": np.full(8, 0.5)})  # pyright: ignore
    with pytest.raises(BadInput, match=r"x\.npz: actions is one column of whole numbers"):
        open_dataset(path)
    data = open_dataset(path, actions=Actions("discrete", 4))
    assert data.action_dim == 4
    assert data.propensity is not None
    assert (data.propensity == 0.5).all()
    assert open_dataset(path, actions=Actions("continuous")).action_kind == "continuous"


def test_a_file_of_continuous_actions_says_nothing_of_choices() -> None:
    """So that files stay as they were, byte for byte."""
    assert "choices" not in Meta(action_low=(-1.0,), action_high=(1.0,)).to_json()


def test_a_damaged_file_of_choices_is_refused(tmp_path: Path) -> None:
    data, path = choosing(), tmp_path / "x.safetensors"
    beyond = dataclasses.replace(data.arenas[0], action=data.arenas[0].action + 1)
    store.save(dataclasses.replace(data, arenas=(beyond,)), path)
    with pytest.raises(BadInput, match="must be below 3, the number of choices"):
        open_dataset(path)


def test_sources_are_mixed_only_where_actions_agree() -> None:
    data = choosing()
    both = mixed(data, data, 0.5, rows=8, low_label="a", high_label="b")
    assert both.action_dim == 3
    assert both.propensity is not None
    for other in (choosing(action_choices=3, choice_names=()), choosing(propensities=None)):
        with pytest.raises(BadInput, match="mix what is alike"):
            mixed(data, other, 0.5, rows=8)
    with pytest.raises(BadInput, match="action_kind is continuous"):
        mixed(data, from_arrays(**columns()), 0.5, rows=8)
