"""The shell of a connection runs on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

ON_BOTH_LOOPS = ("test_wire_connection.py", "test_wire_memory.py")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Transports end and pause in ways of their own on each."""
    loops = {"asyncio": asyncio.new_event_loop}
    if item.path.name in ON_BOTH_LOOPS:
        return {**loops, "uvloop": uvloop.new_event_loop}
    return loops
