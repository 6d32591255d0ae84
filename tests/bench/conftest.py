"""All tests of grids share the pools that are played and the programs that are compiled, and so do their processes."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache


@pytest.fixture(scope="module", autouse=True)
def shared_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    base = tmp_path_factory.getbasetemp()
    options = {"jax_compilation_cache_dir": str(base / "compiled"), "jax_persistent_cache_min_compile_time_secs": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WINNOW_DATA", str(base / "pools-of-grids"))
        for name, value in options.items():
            patch.setenv(name.upper(), str(value))
        before = {name: getattr(jax.config, name) for name in options}
        for name, value in options.items():
            jax.config.update(name, value)
        yield
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
