"""Fixtures for all tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("winnow", deadline=None)  # a busy machine is no failure
settings.load_profile("winnow")


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_are_dropped() -> Iterator[None]:
    """A process that keeps thousands of compiled programs runs out of memory maps, and XLA then crashes."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


@pytest.fixture
def minari_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for Minari's datasets."""
    home = tmp_path / "minari"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(home))
    return home
