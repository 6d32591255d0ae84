"""A pytree of arrays as one safetensors file, written so that it is whole or not there at all."""

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
    """Write the tree's arrays under the names of their places, and a JSON record beside them."""
    write_tensors(path, flatten(tree), {"record": json.dumps(record, sort_keys=True)})


class Writer:
    """Saves beside what its caller goes on to do, one file after another: of a file that is being written, the next
    version waits until it is whole. What goes wrong is raised by the next call."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def save(self, path: str | Path, tree: Any, record: dict[str, Any]) -> None:
        """As `save`, of the arrays as they are now: their caller may give them away."""
        self.wait()
        self._last = self._thread.submit(save, path, jax.tree.map(jnp.copy, tree), record)

    def wait(self) -> None:
        """Return when everything is on disk."""
        last, self._last = self._last, None
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
        _check_file(path)
        with safe_open(str(path), framework="np") as file:
            record = parse_json((file.metadata() or {})["record"])
        _check(record)
        return record
    except FileNotFoundError as error:
        raise BadInput(f"{path}: there is no such file; check the name") from error
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise BadInput(f"{path}: is damaged or was not written by winnow ({error})") from error


def _check_file(path: str | Path) -> None:
    if Path(path).exists() and not Path(path).is_file():  # a pipe would have to be waited for
        raise ValueError("it is no file")


TOGETHER = {
    "sampler": ("name", "seed", "dataset", "algorithm", "weighter", "spec", "steps", "failure"),  # a finished run
    "since": ("step", "failures"),  # a pack that is not finished
    "plays": ("name", "seed", "environment", "algorithm"),  # a run in a snapshot of policies
}
"""Fields of a record that come together: where the first is, the others are."""
DATASET = ("name", "path", "fingerprint", "environment")
"""What a record says of a dataset."""
SHOWN = ("name", "environment")
KINDS: dict[str, tuple[type, ...]] = {
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
LARGEST, WIDEST = 2**31, 1_000_000
"""Numbers of a record are smaller than the first, for they are kept in 32 bits; no layer is wider than the second."""


def _check(record: Any) -> None:
    """Refuse a record in which what winnow looks for is something else. What it does not know it leaves alone."""
    if not isinstance(record, dict):
        raise ValueError("its record is none")
    for first, others in TOGETHER.items():
        if first in record and (lacking := [name for name in others if name not in record]):
            raise ValueError(f"its record has {first} and lacks {lacking[0]}")
    for name, value in record.items():
        kinds = KINDS.get(name)
        if kinds and not (isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))):
            raise ValueError(f"its {name} is {str(value)[:60]!r}")
        if isinstance(value, int) and kinds and not 0 <= value < LARGEST:
            raise ValueError(f"its {name} is {value}")
        if isinstance(value, str) and kinds and ("\0" in value or (name in SHOWN and not value.isprintable())):
            raise ValueError(f"its {name} is {value[:60]!r}")
    spec = record.get("spec", [])
    sizes = [*spec[:2], *record.get("hidden", [])]
    if len(sizes) > 100 or not all(type(size) is int and 1 <= size <= WIDEST for size in sizes):
        raise ValueError("its sizes are none")
    if spec[2:] and (
        type(spec[2]) is not int or not 1 <= spec[2] < LARGEST or spec[3:] not in ([], ["continuous"], ["discrete"])
    ):
        raise ValueError(f"its rows and actions are {str(spec[2:])[:60]}")
    if "dataset" in record and not all(name in record["dataset"] for name in DATASET):
        raise ValueError("it does not say which dataset it is of")
    for inside in [record.get("dataset"), *record.get("runs", [])]:
        if isinstance(inside, dict):
            _check(inside)


def load(path: str | Path, like: Any) -> Any:
    """The tree again, or the part of it that `like` (arrays, or anything with their shapes) has a place for."""
    from safetensors import SafetensorError, safe_open

    places, structure = jax.tree_util.tree_flatten_with_path(like)
    leaves = []
    try:
        _check_file(path)
        with safe_open(str(path), framework="np") as file:
            held = set(file.keys())
            for place, leaf in places:
                name = _name(place)
                if name not in held or file.get_slice(name).get_shape() != list(np.shape(leaf)):
                    raise BadInput(f"{path}: {name} is missing or of another size; it was made with other settings")
                leaves.append(file.get_tensor(name))
                if np.dtype(leaf.dtype).kind == "f" != leaves[-1].dtype.kind:
                    raise BadInput(f"{path}: {name} holds {leaves[-1].dtype}; it was made with other settings")
    except FileNotFoundError as error:
        raise BadInput(f"{path}: there is no such file; check the name") from error
    except BadInput:
        raise
    except (OSError, SafetensorError, ValueError, TypeError, AttributeError) as error:
        raise BadInput(f"{path}: is damaged or was not written by winnow ({error})") from error
    return jax.tree.unflatten(structure, leaves)


def flatten(tree: Any) -> dict[str, np.ndarray]:
    return {_name(place): np.asarray(leaf) for place, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def _name(place: Any) -> str:
    return jax.tree_util.keystr(place, simple=True, separator="/")
