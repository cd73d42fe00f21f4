"""A broker for each test, on a real socket and a real disk, and a connection to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from millrace_server.testing import Broker
from tests.broker.wire import Wire, connect


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A running broker whose data outlives a restart."""
    async with Broker(data=tmp_path / "data") as running:
        yield running


@pytest.fixture
async def wire(broker: Broker) -> AsyncIterator[Wire]:
    """A connection that has said Hello."""
    async with connect(broker.port) as connected:
        yield connected
