"""A client goes to the address that a broker advertises, and says so where it cannot."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from millrace import Admin, Consumer, Producer, sync
from millrace.errors import ConnectionFailed
from millrace_protocol.api import ApiKey
from tests.clients.fake_broker import FakeBroker


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of 127.0.0.1 where no server listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 1}) as running:
        yield running


async def test_no_client_starts_where_the_advertised_address_cannot_be_reached(
    broker: FakeBroker, closed_port: int
) -> None:
    broker.peers[0] = ("127.0.0.1", closed_port)
    reason = (
        rf"the broker at {broker.address} advertises another address to its clients, and there is "
        rf"no broker at 127\.0\.0\.1:{closed_port}: .*\. Set its `advertise`"
    )
    for client in (Producer(broker.address), Consumer(broker.address, "t"), Admin(broker.address)):
        with pytest.raises(ConnectionFailed, match=reason):
            await client.start()

    def blocking() -> None:
        with sync.Producer(broker.address):
            raise AssertionError("it started")

    with pytest.raises(ConnectionFailed, match=reason):
        await asyncio.to_thread(blocking)
    assert broker.count(ApiKey.PRODUCE) == 0
    await broker.until_disconnected()


async def test_another_server_is_taken_where_one_advertises_a_wrong_address(
    broker: FakeBroker, closed_port: int
) -> None:
    async with FakeBroker({"t": 1}) as other:
        broker.peers[0] = ("127.0.0.1", closed_port)
        async with Producer([broker.address, other.address]) as producer:
            await producer.send("t", b"x")
        assert (broker.count(ApiKey.PRODUCE), other.count(ApiKey.PRODUCE)) == (0, 1)


async def test_requests_go_to_the_advertised_address(broker: FakeBroker) -> None:
    async with FakeBroker({"t": 1}) as door:
        # The same broker to clients: they have one node id.
        door.peers[0] = ("127.0.0.1", broker.port)
        async with Producer(door.address) as producer:
            await producer.send("t", b"x")
        assert (door.count(ApiKey.PRODUCE), broker.count(ApiKey.PRODUCE)) == (0, 1)


async def test_another_name_of_the_advertised_address_takes_one_connection(
    broker: FakeBroker,
) -> None:
    async with Producer(f"localhost:{broker.port}") as producer:
        await producer.send("t", b"x")
    assert broker.count(ApiKey.HELLO) == 1
