"""Checkpoints: a pytree of arrays and a JSON record as one safetensors file, written atomically."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winnow.errors import BadInput
from winnow.system.files import parse_json, write_tensors


def save(path: str | Path, tree: Any, record: dict[str, Any]) -> None:
    """Write the tree's arrays, each named by its path in the tree, with a JSON record in the file's metadata."""
    write_tensors(path, flatten(tree), {"record": json.dumps(record, sort_keys=True)})


class Writer:
    """Saves in a background thread, one file at a time. A call of `save` waits for the file before it, and raises the
    error that writing that file caused."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def save(self, path: str | Path, tree: Any, record: dict[str, Any]) -> None:
        """As the function `save`. The arrays are copied first, so the caller may donate them."""
        self.wait()
        self._last = self._thread.submit(save, path, jax.tree.map(jnp.copy, tree), record)

    def wait(self) -> None:
        """Return when everything is on disk."""
        last = self._last
        self._last = None
        if last:
            last.result()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with contextlib.suppress(Exception) if kind else contextlib.nullcontext():
            self.wait()
        self._thread.shutdown()


def read_record(path: str | Path) -> dict[str, Any]:
    """The JSON record of a file, without its arrays."""
    from safetensors import SafetensorError, safe_open

    try:
        _check_regular_file(path)
        with safe_open(str(path), framework="np") as file:
            record = parse_json((file.metadata() or {})["record"])
        _check_record(record)
        return record
    except FileNotFoundError as error:
        raise BadInput(f"{path}: there is no such file; check the name") from error
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise BadInput(f"{path}: is damaged or was not written by winnow ({error})") from error


def _check_regular_file(path: str | Path) -> None:
    if Path(path).exists() and not Path(path).is_file():  # opening a pipe would block
        raise ValueError("it is not a regular file")


REQUIRED_WITH = {
    "sampler": ("name", "seed", "dataset", "algorithm", "weighter", "spec", "steps", "failure"),  # a finished run
    "since": ("step", "failures"),  # a pack that is not finished
    "plays": ("name", "seed", "environment", "algorithm"),  # a run in a snapshot of policies
}
"""Fields that a record must have if it has the field on the left."""
DATASET_FIELDS = ("name", "path", "fingerprint", "environment")
"""Fields that a record's `dataset` must have."""
PRINTED = ("name", "environment")
"""Fields that messages and reports show, so they must be printable."""
FIELD_TYPES: dict[str, tuple[type, ...]] = {
    name: kind
    for kind, names in {
        (str,): "name fingerprint precision format",
        (str, type(None)): "failure environment path",
        (int,): "seed steps step since first",
        (int, type(None)): "round",
        (bool,): "plays",
        (dict,): "dataset algorithm sampler weighter failures",
        (list,): "runs spec hidden warnings",
    }.items()
    for name in names.split()
}
MAX_NUMBER = 2**31 - 1
"""Largest number in a record: numbers are kept in 32 bits."""
MAX_WIDTH = 1_000_000
"""Largest width of a layer."""
MAX_LAYERS = 100


def _check_record(record: Any) -> None:
    """Refuse a record whose known fields have invalid values. Fields that winnow does not know are ignored."""
    if not isinstance(record, dict):
        raise ValueError("its record is not a JSON object")
    for field, required in REQUIRED_WITH.items():
        if field in record and (missing := [name for name in required if name not in record]):
            raise ValueError(f"its record has the field {field} but not {missing[0]}")
    for name, value in record.items():
        types = FIELD_TYPES.get(name)
        if not types:
            continue
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ValueError(f"its {name} is {str(value)[:60]!r}, which is of the wrong type")
        if isinstance(value, int) and not 0 <= value <= MAX_NUMBER:
            raise ValueError(f"its {name} is {value}; it must be at least 0 and below 2^31")
        if isinstance(value, str) and ("\0" in value or (name in PRINTED and not value.isprintable())):
            raise ValueError(f"its {name} is {value[:60]!r}, which holds unprintable characters")
    spec = record.get("spec", [])
    widths = [*spec[:2], *record.get("hidden", [])]
    if len(widths) > MAX_LAYERS or not all(type(width) is int and 1 <= width <= MAX_WIDTH for width in widths):
        raise ValueError("its layer sizes are invalid")
    if spec[2:]:
        valid_rows = type(spec[2]) is int and 1 <= spec[2] <= MAX_NUMBER
        if not valid_rows or spec[3:] not in ([], ["continuous"], ["discrete"]):
            raise ValueError(f"its number of rows or its kind of actions is invalid: {str(spec[2:])[:60]}")
    if "dataset" in record and not all(name in record["dataset"] for name in DATASET_FIELDS):
        raise ValueError("its record does not name the dataset")
    for nested in [record.get("dataset"), *record.get("runs", [])]:
        if isinstance(nested, dict):
            _check_record(nested)


def load(path: str | Path, like: Any) -> Any:
    """The saved arrays in the structure of `like` (arrays, or anything with their shapes), which may be a part of the
    saved tree."""
    from safetensors import SafetensorError, safe_open

    leaves_with_path, structure = jax.tree_util.tree_flatten_with_path(like)
    leaves = []
    try:
        _check_regular_file(path)
        with safe_open(str(path), framework="np") as file:
            saved_names = set(file.keys())
            for tree_path, leaf in leaves_with_path:
                name = _array_name(tree_path)
                if name not in saved_names or file.get_slice(name).get_shape() != list(np.shape(leaf)):
                    raise BadInput(f"{path}: {name} is missing or of another size; it was made with other settings")
                array = file.get_tensor(name)
                if np.dtype(leaf.dtype).kind == "f" != array.dtype.kind:
                    raise BadInput(f"{path}: {name} holds {array.dtype}; it was made with other settings")
                leaves.append(array)
    except FileNotFoundError as error:
        raise BadInput(f"{path}: there is no such file; check the name") from error
    except BadInput:
        raise
    except (OSError, SafetensorError, ValueError, TypeError, AttributeError) as error:
        raise BadInput(f"{path}: is damaged or was not written by winnow ({error})") from error
    return jax.tree.unflatten(structure, leaves)


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """The tree's arrays, each named by its path in the tree."""
    leaves_with_path = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_array_name(tree_path): np.asarray(leaf) for tree_path, leaf in leaves_with_path}


def _array_name(tree_path: Any) -> str:
    return jax.tree_util.keystr(tree_path, simple=True, separator="/")
