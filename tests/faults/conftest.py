"""All tests of faults share what commands leave that nobody disturbs."""

from __future__ import annotations

import pytest
from helpers.faults.injector import FaultInjector


@pytest.fixture(scope="session")
def injector(tmp_path_factory: pytest.TempPathFactory) -> FaultInjector:
    return FaultInjector(tmp_path_factory.mktemp("make_cases"))
