"""A broker that answers HTTP, for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from millrace_server.testing import Broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A running broker with a listener for metrics."""
    async with Broker(data=tmp_path / "data", metrics_listen="0") as running:
        yield running
