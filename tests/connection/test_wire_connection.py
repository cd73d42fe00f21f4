"""A connection on a real socket: its order, its back-pressure, and its ends."""

from __future__ import annotations

import asyncio
import socket
import uuid
from dataclasses import replace
from typing import Any

import pytest

from millrace_protocol.codec import encode
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import error_frame, response_header
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.messages.hello import HelloResponse
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse, TopicMetadata
from millrace_protocol.messages.produce import ProducePartition, ProduceRequest
from millrace_wire.connection import SCRATCH_BYTES, Connection
from millrace_wire.errors import (
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    NotSentInTime,
    ProtocolViolation,
    RequestRefused,
    RequestTimedOut,
)
from millrace_wire.frame_reader import Scratch
from millrace_wire.socket_options import KEEPALIVE_S, WAKE_BYTES
from tests.connection.peer import CONFIG, HELLO, METADATA, TIMEOUT_MS, Peer, connected, listening

ASK = MetadataRequest(())
NO_ID = uuid.UUID(int=0)


async def ask(connection: Connection, timeout_ms: int = TIMEOUT_MS) -> MetadataResponse:
    return await connection.call(ASK, MetadataResponse, timeout_ms=timeout_ms)


def asking(connection: Connection, count: int) -> list[asyncio.Task[MetadataResponse]]:
    return [asyncio.create_task(ask(connection)) for _ in range(count)]


async def test_hello_names_the_peer() -> None:
    async def script(peer: Peer) -> None:
        await peer.hello()
        await peer.serve()

    async with listening(script) as address:
        connection = await connected(address)
        assert (connection.node_id, connection.cluster_id) == (7, "cluster")
        assert str(connection) == f"127.0.0.1:{address[1]}"
        assert await ask(connection) == METADATA
        connection.close()


async def test_requests_are_pipelined_up_to_the_limit_of_the_peer() -> None:
    seen: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.hello(replace(HELLO, inflight_requests_max=4))
        held = [await peer.next() for _ in range(4)]
        seen.extend(header.correlation_id for header in held)
        for header in held:
            peer.respond(header, METADATA)
        await peer.serve()

    async with listening(script) as address:
        connection = await connected(address)
        calls = asking(connection, 10)
        await asyncio.sleep(0)
        assert len(connection._pipeline._in_flight) == 4
        assert await asyncio.gather(*calls) == [METADATA] * 10
        assert seen == [2, 3, 4, 5]
        assert connection.pending_count == 0
        connection.close()


async def test_a_peer_that_does_not_read_is_sent_no_further_requests() -> None:
    may_read = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.hello()
        await may_read.wait()
        for _ in range(40):
            await peer.next()

    async with listening(script) as address:
        connection = await connected(address)
        records = memoryview(bytes(1 << 20))
        request = ProduceRequest(0, 1000, (ProducePartition("t", 0, records),))
        posts = [
            asyncio.create_task(connection.post(request, timeout_ms=TIMEOUT_MS)) for _ in range(40)
        ]
        # The kernel takes some of them, the transport a little more than its limit.
        await asyncio.sleep(0)
        assert connection._transport is not None
        waiting = connection.pending_count
        assert 0 < waiting < 40
        assert connection._transport.get_write_buffer_size() < 3 << 20
        may_read.set()
        await asyncio.gather(*posts)
        assert connection.pending_count == 0
        connection.close()


async def test_a_request_that_cannot_be_sent_in_time_fails_alone() -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.hello(replace(HELLO, inflight_requests_max=1))
        header = await peer.next()
        await release.wait()
        peer.respond(header, METADATA)
        await peer.serve()

    async with listening(script) as address:
        connection = await connected(address)
        (first,) = asking(connection, 1)
        await asyncio.sleep(0)
        with pytest.raises(NotSentInTime, match="METADATA was not sent"):
            await ask(connection, timeout_ms=20)
        release.set()
        assert await first == METADATA
        assert await ask(connection) == METADATA
        connection.close()


async def test_a_cancelled_request_that_waits_is_never_sent() -> None:
    release, count = asyncio.Event(), 0

    async def script(peer: Peer) -> None:
        nonlocal count
        await peer.hello(replace(HELLO, inflight_requests_max=1))
        header = await peer.next()
        await release.wait()
        peer.respond(header, METADATA)
        peer.respond(await peer.next(), METADATA)
        count += 1

    async with listening(script) as address:
        connection = await connected(address)
        first, second, third = asking(connection, 3)
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        release.set()
        assert [await first, await third] == [METADATA, METADATA]
        assert connection.pending_count == 0
        connection.close()


async def test_a_cancelled_request_in_flight_has_its_response_dropped() -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.hello()
        header = await peer.next()
        await release.wait()
        peer.respond(header, METADATA)
        await peer.serve()

    async with listening(script) as address:
        connection = await connected(address)
        (call,) = asking(connection, 1)
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        release.set()
        assert await ask(connection) == METADATA
        connection.close()


async def test_a_response_that_is_overdue_ends_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.hello()
        await peer.next()
        await peer.next()
        await peer.next()

    async with listening(script) as address:
        connection = await connected(address)
        (other,) = asking(connection, 1)
        with pytest.raises(RequestTimedOut, match="did not respond to METADATA in time"):
            await ask(connection, timeout_ms=20)
        with pytest.raises(RequestTimedOut):
            await other
        with pytest.raises(RequestTimedOut):
            await ask(connection)
        assert isinstance(connection.fault, RequestTimedOut)


async def test_a_peer_that_dies_fails_every_pending_request_with_an_error_of_its_own() -> None:
    async def script(peer: Peer) -> None:
        await peer.hello()
        for _ in range(5):
            await peer.next()
        peer.writer.transport.abort()

    async with listening(script) as address:
        connection = await connected(address)
        outcomes = await asyncio.gather(*asking(connection, 5), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 5
        assert len(set(map(id, outcomes))) == 5
        assert isinstance(connection.fault, ConnectionLost)


async def test_closing_fails_pending_requests() -> None:
    async def script(peer: Peer) -> None:
        await peer.hello()
        await peer.serve()

    async with listening(script) as address:
        connection = await connected(address)
        calls = asking(connection, 3)
        await asyncio.sleep(0)
        connection.close()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionClosed] * 3


async def test_a_refusal_fails_one_request() -> None:
    async def script(peer: Peer) -> None:
        await peer.hello()
        header = await peer.next()
        peer.writer.write(
            error_frame(
                api=header.api,
                version=0,
                correlation_id=header.correlation_id,
                error_code=ErrorCode.INVALID_REQUEST,
                response=ErrorResponse("refused by the test"),
            )
        )
        await peer.serve()

    async with listening(script) as address:
        connection = await connected(address)
        with pytest.raises(RequestRefused, match="refused by the test") as refused:
            await ask(connection)
        assert refused.value.error_code == ErrorCode.INVALID_REQUEST
        assert await ask(connection) == METADATA
        connection.close()


@pytest.mark.parametrize("size", [SCRATCH_BYTES - 16, SCRATCH_BYTES, 300_000, 20 << 20])
async def test_a_response_of_any_size_arrives_whole(size: int) -> None:
    named = replace(METADATA, topics=(TopicMetadata(0, None, "x" * 15_000, NO_ID, False, ()),))
    empty_size = len(encode(METADATA, 0))
    topic_count = (size - empty_size) // (len(encode(named, 0)) - empty_size)
    filled = replace(named, topics=named.topics * topic_count)
    filled = replace(filled, cluster_id="c" * (size - len(encode(filled, 0)) + len("cluster")))
    assert len(encode(filled, 0)) == size

    async def script(peer: Peer) -> None:
        await peer.hello()
        await peer.serve(filled)

    async with listening(script) as address:
        connection = await connected(address)
        for _ in range(3):
            assert await ask(connection) == filled
        connection.close()


async def test_a_response_that_cannot_be_decoded_ends_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.hello()
        header = await peer.next()
        ids: dict[str, Any] = {"version": 0, "correlation_id": header.correlation_id}
        peer.writer.write(response_header(api=header.api, body_size=1, **ids) + b"?")
        await peer.next()

    async with listening(script) as address:
        connection = await connected(address)
        with pytest.raises(ProtocolViolation, match="a broken MetadataResponse"):
            await ask(connection)
        assert isinstance(connection.fault, ProtocolViolation)


@pytest.mark.parametrize(
    ("hello", "message"),
    [
        (replace(HELLO, inflight_requests_max=0), "limits that allow no request"),
        (replace(HELLO, apis=HELLO.apis[:1] * 100_000), "a frame length of"),
    ],
)
async def test_a_hello_that_breaks_the_protocol_makes_no_connection(
    hello: HelloResponse, message: str
) -> None:
    async def script(peer: Peer) -> None:
        await peer.hello(hello)

    async with listening(script) as address:
        with pytest.raises(ConnectFailed, match=message):
            await connected(address)


async def test_a_refused_connection_is_no_broker() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectFailed, match=r"no broker at 127.0.0.1:\d+: "):
            await connected(bound.getsockname())


async def test_a_peer_that_is_silent_makes_no_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        await peer.next()

    async with listening(script) as address:
        with pytest.raises(ConnectFailed, match=r"no response from .* within 20 ms"):
            await connected(address, replace(CONFIG, connect_timeout_ms=20))


def test_no_more_of_a_large_frame_is_waited_for_than_it_lacks() -> None:
    async def receive_in_parts() -> None:
        left, right = socket.socketpair()
        with left, right:
            connection = Connection(("test", 1), CONFIG, Scratch(SCRATCH_BYTES))
            connection.connection_made(SocketHolder(left))
            connection._reader.frame_bytes_max = 8 << 20

            def receive(data: bytes) -> int:
                while data:
                    room = connection.get_buffer(-1)
                    count = min(len(room), len(data))
                    room[:count] = data[:count]
                    connection.buffer_updated(count)
                    data = data[count:]
                return left.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

            size = 2 * WAKE_BYTES + 1000
            assert receive((size - 4).to_bytes(4, "big") + bytes(96)) == WAKE_BYTES
            assert receive(bytes(WAKE_BYTES)) == WAKE_BYTES
            assert receive(bytes(WAKE_BYTES)) == 900
            assert receive(bytes(899)) == 1
            assert connection.fault is None
            assert receive(bytes(1)) == 1
            assert size > SCRATCH_BYTES

    asyncio.run(receive_in_parts())


class SocketHolder(asyncio.Transport):
    """A transport that has a socket, and is told to abort at most."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__({"socket": sock})

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is written."""

    def abort(self) -> None:
        """Nothing is under way."""


async def test_the_kernel_asks_for_a_broker_that_is_silent() -> None:
    async def script(peer: Peer) -> None:
        await peer.hello()
        await peer.serve()

    async with listening(script) as address:
        connection = await connected(address)
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_S
        connection.close()
