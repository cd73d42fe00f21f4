"""The fixture every pytest run gets from an installed millrace: `millrace_broker`.

    def test_my_service(millrace_broker):
        run_service(servers=millrace_broker.servers)

A real broker in a thread, on a temporary directory, one for each test that asks for it; it
serves synchronous tests and tests of any event loop alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from millrace_server.testing import BrokerThread


@pytest.fixture
def millrace_broker() -> Iterator[BrokerThread]:
    """A broker with nothing in it; `millrace_broker.servers` is its HOST:PORT."""
    # Imported here: the plugin is loaded in every pytest run, the broker is not wanted in each.
    from millrace_server.testing import BrokerThread

    with BrokerThread() as broker:
        yield broker
