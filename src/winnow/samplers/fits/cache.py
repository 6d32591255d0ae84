"""Numbers that take long to work out and depend on a dataset and settings alone: worked out once, kept on disk.

They are in the data folder (`priorities/`), under a digest of what they depend on. A damaged file is made again.
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
"""Below this many rows a fit takes less time than a look at the disk is worth."""


def kept(
    form: str, dataset: Dataset, settings: dict[str, Any], make: Callable[[], np.ndarray], size: int
) -> np.ndarray:
    """[size] float64, as `make` gives them. `form` names the way they are made: another way, another name."""
    if len(dataset) < KEPT_ROWS:
        return make()
    facts = [form, dataset.fingerprint, settings]
    path = home() / "priorities" / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]}.npy"
    if path.exists():
        with contextlib.suppress(Exception):
            found = np.load(path, allow_pickle=False)
            if found.shape == (size,) and found.dtype == np.float64:
                return found
    found = make()
    # A data folder that can't be written costs time, not the result.
    with contextlib.suppress(BadInput), replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, found, allow_pickle=False)
    return found
