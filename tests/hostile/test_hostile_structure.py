"""Files of good form that say odd things: hypothesis makes up what they hold."""

from __future__ import annotations

import contextlib
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from helpers.datasets import columns
from helpers.hostile.corpus import KINDS, Messages, use
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from winnow.data.columns import ALIASES
from winnow.data.dataset import Meta
from winnow.errors import BadInput
from winnow.system.files import parse_json

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
BRIEF = settings(max_examples=30, derandomize=True, database=None, suppress_health_check=SLOW)
NAMES = st.sampled_from([*sum(ALIASES.values(), ()), "obs_0", "obs_1", "obs_7", "winnow", "seed", "infos", "x"])
KINDS_OF_NUMBER = st.sampled_from(
    ["?", "i1", "u1", "<i4", ">i8", "<u8", "<f2", "<f4", ">f8", "<c8", "S3", "U2", "M8[s]"]
)
ARRAYS = KINDS_OF_NUMBER.flatmap(
    lambda kind: arrays.arrays(np.dtype(kind), arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9))
)
COLUMNS = st.dictionaries(NAMES, ARRAYS, max_size=6)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.text("\0\x1b\ud800/.", max_size=4)
)
TREES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)


@contextlib.contextmanager
def refusing(path: Path | str) -> Iterator[None]:
    """What is inside may refuse the file, in words that name it. Odd numbers may well overflow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except BadInput as error:
            if str(path) not in str(error):
                raise AssertionError(f"the refusal does not name the file: {error}") from error


@BRIEF
@given(COLUMNS, st.booleans(), st.sampled_from([None, "bag", "continuing"]))
def test_an_npz_of_any_arrays(found, whole, kind):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npz"
        np.savez(path, **(columns() if whole else {}) | found)
        with refusing(path):
            use(path, kind=kind)


@BRIEF
@given(COLUMNS, st.booleans(), st.sampled_from(["", "infos", "deeper/still"]))
def test_an_hdf5_file_of_any_arrays(found, whole, group):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.hdf5"
        with h5py.File(path, "w") as file:
            for name, array in ((columns() if whole else {}) | found).items():
                if array.dtype.kind not in "UM":
                    file[f"{group}/{name}" if whole and name in found else name] = array
        with refusing(path):
            use(path)


def a_place(tree: Any) -> st.SearchStrategy[tuple[Any, ...]]:
    """A place in a JSON tree, as the keys that lead to it."""
    inside = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)) if isinstance(tree, list) else []
    if not inside:
        return st.just(())
    return st.just(()) | st.sampled_from(inside).flatmap(lambda one: a_place(one[1]).map(lambda rest: (one[0], *rest)))


def changed(tree: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    key, *rest = place
    copied = dict(tree) if isinstance(tree, dict) else list(tree)
    copied[key] = changed(tree[key], tuple(rest), value)
    return copied


WHOLE = Meta("a", environment="e", action_low=(-1.0,), action_high=(1.0,), return_range=(0, 1), recipe={"rows": 1})
META: dict[str, Any] = json.loads(WHOLE.to_json())


@BRIEF
@given(a_place(META), TREES)
def test_a_description_is_whole_or_refused(place, value):
    text = json.dumps(changed(META, place, value))
    try:
        made = Meta.from_json(text)
    except (ValueError, TypeError):  # its callers say which file it was in
        return
    assert Meta.from_json(made.to_json()) == made
    "".join([made.name, made.environment or "", *made.sources]).encode()


@pytest.mark.parametrize("kind", ["recipe", "config.json", "metrics.jsonl", "lock", "pack of a grid"])
def test_json_that_says_something_else(kind, tmp_path):
    (path,) = KINDS[kind].make(tmp_path)
    good, read = path.read_bytes(), KINDS[kind].read
    first, rest = good.splitlines()[0], good.splitlines()[1:]
    says_something_else(path, json.loads(first), rest, read)


def says_something_else(path: Path, tree: Any, rest: list[bytes], read: Callable[[Path], Messages]) -> None:
    @BRIEF
    @given(a_place(tree), TREES)
    def tried(place: tuple[Any, ...], value: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)  # a pack that can't go on is swept away
        path.write_bytes(b"\n".join([json.dumps(changed(tree, place, value)).encode(), *rest]) + b"\n")
        with refusing(path.parent):
            read(path)

    tried()


@BRIEF
@given(st.binary(max_size=40) | TREES.map(lambda tree: json.dumps(tree).encode()), st.integers(0, 200_000))
def test_whatever_is_wrong_with_json_is_a_value_error(text, depth):
    for raw in (text, b"[" * depth + text):
        with contextlib.suppress(ValueError):
            parse_json(raw)
