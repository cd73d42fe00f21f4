"""The fixtures every pytest run gets from an installed millrace.

    def test_my_service(millrace_broker):
        run_service(servers=millrace_broker.servers)

    def test_my_service_survives_a_broker(millrace_cluster):
        with run_service(servers=millrace_cluster.servers):
            millrace_cluster.kill(millrace_cluster.leader_of("flights", 0))

Real brokers in a thread, on temporary directories, new for each test that asks for them; they serve
synchronous tests and tests of any event loop alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from millrace_server.testing import BrokerThread, ClusterThread

# Imported in the fixtures: the plugin is loaded in every pytest run, the brokers are not wanted in
# each.


@pytest.fixture
def millrace_broker() -> Iterator[BrokerThread]:
    """A broker with nothing in it; `millrace_broker.servers` is its HOST:PORT."""
    from millrace_server.testing import BrokerThread

    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def millrace_cluster() -> Iterator[ClusterThread]:
    """Three brokers with nothing in them; `millrace_cluster.servers` is HOST:PORT of each."""
    from millrace_server.testing import ClusterThread

    with ClusterThread() as cluster:
        yield cluster
