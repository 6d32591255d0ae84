"""All tests of faults share what commands leave that nobody disturbs."""

from __future__ import annotations

import pytest
from helpers.faults.company import Company


@pytest.fixture(scope="session")
def company(tmp_path_factory: pytest.TempPathFactory) -> Company:
    return Company(tmp_path_factory.mktemp("stage"))
