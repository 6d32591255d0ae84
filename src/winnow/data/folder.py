"""Where data lies that winnow made or fetched and can open by name."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The data folder: $WINNOW_DATA, or `winnow` in the user's cache folder."""
    if given := os.environ.get("WINNOW_DATA"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "winnow"
