"""A cluster of three brokers in one event loop for each test that asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from millrace_server.testing import Cluster
from tests.cluster.settings import SETTINGS


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three running brokers with nothing in them."""
    async with Cluster(3, **SETTINGS) as running:
        yield running
