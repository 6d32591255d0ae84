"""A pytree of arrays as one safetensors file, written so that it is whole or not there at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from winnow.errors import BadInput
from winnow.files import replacing


def save(path: str | Path, tree: Any, record: dict[str, Any]) -> None:
    """Write the tree's arrays under the names of their places, and a JSON record beside them."""
    from safetensors.numpy import save_file

    with replacing(path) as temporary:
        save_file(flatten(tree), temporary, metadata={"record": json.dumps(record, sort_keys=True)})


def read_record(path: str | Path) -> dict[str, Any]:
    """The JSON record of a file, without its arrays."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="np") as file:
            return json.loads((file.metadata() or {})["record"])
    except FileNotFoundError as error:
        raise BadInput(f"{path}: there is no such file; check the name") from error
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise BadInput(f"{path}: is damaged or was not written by winnow ({error})") from error


def load(path: str | Path, like: Any) -> Any:
    """The tree again, in the shape of `like` (arrays, or anything with their shape and dtype)."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays = load_file(path)
    except FileNotFoundError as error:
        raise BadInput(f"{path}: there is no such file; check the name") from error
    except (OSError, SafetensorError, ValueError) as error:
        raise BadInput(f"{path}: is damaged or was not written by winnow ({error})") from error
    places, structure = jax.tree_util.tree_flatten_with_path(like)
    names = [_name(place) for place, _ in places]
    if set(names) != set(arrays):
        odd = sorted(set(names) ^ set(arrays))[0]
        raise BadInput(f"{path}: holds another kind of state ({odd} does not fit); it was made with other settings")
    for name, (_, leaf) in zip(names, places, strict=True):
        if arrays[name].shape != np.shape(leaf):
            raise BadInput(f"{path}: {name} has shape {arrays[name].shape}, expected {np.shape(leaf)}")
    return jax.tree.unflatten(structure, [arrays[name] for name in names])


def flatten(tree: Any) -> dict[str, np.ndarray]:
    return {_name(place): np.asarray(leaf) for place, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def _name(place: Any) -> str:
    return jax.tree_util.keystr(place, simple=True, separator="/")
