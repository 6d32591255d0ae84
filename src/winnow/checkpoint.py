"""A pytree of arrays as one safetensors file, written so that it is whole or not there at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from winnow.errors import BadInput
from winnow.files import write_tensors


def save(path: str | Path, tree: Any, record: dict[str, Any]) -> None:
    """Write the tree's arrays under the names of their places, and a JSON record beside them."""
    write_tensors(path, flatten(tree), {"record": json.dumps(record, sort_keys=True)})


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
    """The tree again, or the part of it that `like` (arrays, or anything with their shapes) has a place for."""
    from safetensors import SafetensorError, safe_open

    places, structure = jax.tree_util.tree_flatten_with_path(like)
    leaves = []
    try:
        with safe_open(str(path), framework="np") as file:
            held = set(file.keys())
            for place, leaf in places:
                name = _name(place)
                if name not in held or file.get_slice(name).get_shape() != list(np.shape(leaf)):
                    raise BadInput(f"{path}: {name} is missing or of another size; it was made with other settings")
                leaves.append(file.get_tensor(name))
    except FileNotFoundError as error:
        raise BadInput(f"{path}: there is no such file; check the name") from error
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path}: is damaged or was not written by winnow ({error})") from error
    return jax.tree.unflatten(structure, leaves)


def flatten(tree: Any) -> dict[str, np.ndarray]:
    return {_name(place): np.asarray(leaf) for place, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def _name(place: Any) -> str:
    return jax.tree_util.keystr(place, simple=True, separator="/")
