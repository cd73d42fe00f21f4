"""A broker for each test, on a real socket and a real disk, and a connection to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from millrace_server.testing import Broker
from tests.broker.wire import Wire, connect

ON_BOTH_LOOPS = ("test_broker_fetch.py", "test_broker_races.py", "test_broker_text.py")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Where connections end and files are sent, the two event loops differ most."""
    loops = {"asyncio": asyncio.new_event_loop}
    if item.path.name in ON_BOTH_LOOPS:
        return {**loops, "uvloop": uvloop.new_event_loop}
    return loops


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A running broker whose data outlives a restart."""
    # The records of these tests are of 1970: housekeeping would remove them from under a slow one.
    async with Broker(data=tmp_path / "data", housekeeping_interval_ms=86_400_000) as running:
        yield running


@pytest.fixture
async def wire(broker: Broker) -> AsyncIterator[Wire]:
    """A connection that has sent Hello."""
    async with connect(broker.port) as connected:
        yield connected
