"""The process of a broker ends: the others notice it without waiting for a timeout."""

from __future__ import annotations

import pytest

from millrace_server.controller import cluster_metadata
from millrace_server.raft.config import RaftConfig
from millrace_server.testing import Cluster
from tests.cluster.settings import SETTINGS

NEVER_MS = 3_600_000


async def test_a_controller_whose_process_ends_is_replaced_before_the_fetch_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patient = RaftConfig(fetch_timeout_ms=NEVER_MS)
    monkeypatch.setattr(cluster_metadata, "RaftConfig", lambda: patient)
    async with Cluster(3, **SETTINGS) as cluster:
        controller = await cluster.controller()
        await cluster.kill(controller)
        assert await cluster.controller() != controller
