"""How the whole suite is run."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.quick_spark import environment

# The suite tries the same inputs every time, so that it fails for who has changed something.
# `pytest --hypothesis-profile explore` tries other ones each time. How long an input takes depends
# on what else the machine does.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile("same")


@pytest.fixture(scope="session")
def quick_spark(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of processes that start Spark."""
    return environment(tmp_path_factory.mktemp("spark"))
