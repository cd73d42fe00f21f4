"""A broker with users, on listeners with and without SASL and TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from millrace import Admin, sync
from millrace_server.testing import Broker, BrokerThread
from tests.tls.conftest import Certificates
from tests.tls.conftest import certificates as certificates

LISTEN = "127.0.0.1:0, sasl://127.0.0.1:0, sasl+tls://127.0.0.1:0"
MECHANISMS = "SCRAM-SHA-256, SCRAM-SHA-512, PLAIN"
USER, PASSWORD = "ada, =1", "pencil, =é"
"""A name and a password with what the mechanisms must escape."""
SIMPLE_USER, SIMPLE_PASSWORD = "loader", "secret"
"""For clients that do not escape names as RFC 5802 asks for."""


@pytest.fixture
async def broker(certificates: Certificates) -> AsyncIterator[Broker]:
    """A broker with one user; a failed login is not delayed."""
    async with Broker(
        listen=LISTEN,
        tls_certificate=certificates.broker,
        sasl_mechanisms=MECHANISMS,
        failed_authentication_delay_ms=0,
        authorization="off",
    ) as running:
        async with Admin(running.servers) as admin:
            await admin.set_password(USER, PASSWORD)
        yield running


@pytest.fixture(scope="module")
def broker_thread(certificates: Certificates) -> Iterator[BrokerThread]:
    """The same in a thread, for clients that block."""
    with BrokerThread(
        listen=LISTEN,
        tls_certificate=certificates.broker,
        sasl_mechanisms=MECHANISMS,
        failed_authentication_delay_ms=0,
        authorization="off",
        auto_create_topics=True,
    ) as running:
        with sync.Admin(running.servers) as admin:
            admin.set_password(USER, PASSWORD)
            admin.set_password(SIMPLE_USER, SIMPLE_PASSWORD)
        yield running


def port_of(broker: Broker | BrokerThread, listener: str) -> int:
    """The port of a listener."""
    return int(broker.servers_of(listener).rpartition(":")[2])
