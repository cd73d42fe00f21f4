"""A broker beside the three of a cluster, which does not vote in the metadata quorum."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from millrace_server.testing import Broker, Cluster
from millrace_server.testing.reserved_ports import HOST, ReservedPorts
from tests.cluster.settings import SETTINGS

OBSERVER = 4


@asynccontextmanager
async def observing(cluster: Cluster, **settings: Any) -> AsyncIterator[Broker]:
    """Broker 4, which is in service; stopped on leaving, if it runs then."""
    reserved = ReservedPorts(2)
    port, broker_port = reserved.ports
    broker = Broker(
        node_id=OBSERVER,
        port=port,
        quorum=cluster.brokers[1].config.quorum,
        broker_listen=f"{HOST}:{broker_port}",
        **{**SETTINGS, **settings},
    )
    try:
        async with broker:
            yield broker
    finally:
        reserved.release()
