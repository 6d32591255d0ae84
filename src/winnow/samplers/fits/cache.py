"""A cache on disk for arrays that are slow to compute and depend only on a dataset and settings.

Its files are in the data folder (`priorities/`), named after a digest of what they depend on. A damaged file is
computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from winnow.data.dataset import Dataset
from winnow.data.folder import home
from winnow.errors import BadInput
from winnow.system.files import replacing

KEPT_ROWS = 20_000
"""Datasets smaller than this are refitted every time; caching would not pay off."""


def kept(
    form: str, dataset: Dataset, settings: dict[str, Any], make: Callable[[], np.ndarray], size: int
) -> np.ndarray:
    """[size] float64: the cached array, or what `make` returns. `form` names the algorithm: change it with the
    algorithm."""
    if len(dataset) < KEPT_ROWS:
        return make()
    facts = [form, dataset.fingerprint, settings]
    path = home() / "priorities" / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]}.npy"
    if path.exists():
        with contextlib.suppress(Exception):
            array = np.load(path, allow_pickle=False)
            if array.shape == (size,) and array.dtype == np.float64:
                return array
    array = make()
    # A data folder that can't be written costs time, not the result.
    with contextlib.suppress(BadInput), replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)
    return array
