"""A broker that answers HTTP, for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from millrace_server.monitoring import http_connection, server
from millrace_server.testing import Broker
from tests.hang_timeout import HANG_TIMEOUT_S


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need longer than a peer has. What is about a bound sets its own."""
    for name in ("REQUEST_S", "ANSWER_S", "CLOSE_S"):
        monkeypatch.setattr(http_connection, name, HANG_TIMEOUT_S)
    monkeypatch.setattr(server, "REQUEST_S", int(HANG_TIMEOUT_S))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A running broker with a listener for metrics."""
    async with Broker(data=tmp_path / "data", metrics_listen="0") as running:
        yield running
