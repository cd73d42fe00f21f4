"""A client's connection: pipelining, deadlines, limits, and the errors of a broken broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from millrace._cluster.connection import Connection, client_error
from millrace.errors import (
    Closed,
    ConnectionFailed,
    ConnectionLost,
    InvalidRequest,
    MessageTooLarge,
    MillraceError,
    RequestTimedOut,
)
from millrace_protocol.api import ApiKey
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import HEADER, MAGIC, RESPONSE_BIT
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse
from millrace_protocol.messages.produce import ProducePartition, ProduceRequest, ProduceResponse
from millrace_wire import errors as wire
from tests.clients.fake_broker import FakeBroker, HangUp, Refuse

NO_TOPICS = MetadataRequest(())


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 1}) as broker:
        yield broker


async def connect(port: int, *, receive_bytes_max: int = 1 << 20) -> Connection:
    return await Connection.open(
        ("127.0.0.1", port),
        client_id="test",
        connect_timeout_ms=2000,
        receive_bytes_max=receive_bytes_max,
    )


async def ask(connection: Connection, timeout_ms: int = 5000) -> MetadataResponse:
    return await connection.call(NO_TOPICS, MetadataResponse, timeout_ms=timeout_ms)


async def test_requests_are_pipelined_and_responses_find_their_request(
    broker: FakeBroker,
) -> None:
    topics = ["a", "b", "c"]
    all_have_come = asyncio.Event()

    async def when_all_have_come(request: MetadataRequest, default: Any) -> Any:
        if broker.count(ApiKey.METADATA) == len(topics):
            all_have_come.set()
        await all_have_come.wait()
        return default(request)

    broker.script(ApiKey.METADATA, when_all_have_come)
    connection = await connect(broker.port)
    calls = [
        asyncio.create_task(
            connection.call(MetadataRequest((name,)), MetadataResponse, timeout_ms=5000)
        )
        for name in topics
    ]
    responses = await asyncio.gather(*calls)
    assert [response.topics[0].name for response in responses] == topics
    connection.close()


async def test_a_large_response_arrives_whole(broker: FakeBroker) -> None:
    broker.topics = {f"topic-{i}" * 10: 1 for i in range(2000)}
    connection = await connect(broker.port)
    answer = await connection.call(MetadataRequest(None), MetadataResponse, timeout_ms=5000)
    assert [topic.name for topic in answer.topics] == list(broker.topics)
    assert (await ask(connection)).cluster_id == "cluster"
    connection.close()


async def test_a_request_that_is_not_answered_in_time_ends_the_connection(
    broker: FakeBroker,
) -> None:
    broker.script(ApiKey.METADATA, lambda request, default: None)
    connection = await connect(broker.port)
    other = asyncio.create_task(ask(connection, timeout_ms=60_000))
    with pytest.raises(RequestTimedOut, match="did not respond to METADATA in time"):
        await ask(connection, timeout_ms=20)
    with pytest.raises(RequestTimedOut):
        await other
    with pytest.raises(RequestTimedOut):
        await ask(connection)


async def test_a_lost_connection_fails_every_pending_request_with_the_cause(
    broker: FakeBroker,
) -> None:
    def cut_at_the_fifth(request: Any, default: Any) -> None:
        if broker.count(ApiKey.METADATA) == 5:
            broker.cut()

    broker.script(ApiKey.METADATA, cut_at_the_fifth)
    connection = await connect(broker.port)
    calls = [asyncio.create_task(ask(connection)) for _ in range(5)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(outcome, ConnectionLost) for outcome in outcomes)
    assert len({id(outcome) for outcome in outcomes}) == 5
    assert not connection.is_open


async def test_a_cancelled_call_leaves_the_connection_as_it_was(broker: FakeBroker) -> None:
    connection = await connect(broker.port)
    for steps in range(8):
        call = asyncio.create_task(ask(connection))
        for _ in range(steps):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert (await ask(connection)).cluster_id == "cluster"
    assert connection.pending_count == 0
    connection.close()


async def test_a_refusal_is_an_error_with_the_brokers_message(broker: FakeBroker) -> None:
    def refuse(request: Any, default: Any) -> Any:
        raise Refuse(ErrorCode.INVALID_REQUEST)

    broker.script(ApiKey.METADATA, refuse)
    connection = await connect(broker.port)
    with pytest.raises(InvalidRequest, match="refused by the test"):
        await ask(connection)
    broker.script(ApiKey.METADATA, None)
    await ask(connection)
    connection.close()


async def test_a_request_larger_than_the_broker_takes_is_not_sent(broker: FakeBroker) -> None:
    connection = await connect(broker.port)
    records = memoryview(bytes(17 << 20))
    request = ProduceRequest(-1, 1000, (ProducePartition("t", 0, records),))
    with pytest.raises(MessageTooLarge, match="max_request_bytes"):
        await connection.call(request, ProduceResponse, timeout_ms=5000)
    await ask(connection)
    connection.close()


async def test_closing_fails_pending_requests(broker: FakeBroker) -> None:
    broker.script(ApiKey.METADATA, lambda request, default: None)
    connection = await connect(broker.port)
    call = asyncio.create_task(ask(connection))
    await asyncio.sleep(0)
    connection.close()
    with pytest.raises(Closed):
        await call


async def test_a_broker_that_hangs_up_on_hello_is_no_broker(broker: FakeBroker) -> None:
    def hang_up(request: Any, default: Any) -> Any:
        raise HangUp

    broker.script(ApiKey.HELLO, hang_up)
    with pytest.raises(ConnectionFailed, match="no millrace broker at"):
        await connect(broker.port)


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def talk_to(script: Script) -> BaseException:
    """What a connection to a server that runs `script` fails with."""

    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        await script(reader, writer)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        served.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        with pytest.raises(ConnectionFailed) as failed:
            await Connection.open(
                server.sockets[0].getsockname()[:2],
                client_id="test",
                connect_timeout_ms=300,
                receive_bytes_max=1 << 20,
            )
        await served.wait()
        return failed.value
    finally:
        server.close()
        await server.wait_closed()


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP"),
        (HEADER.pack(0x7FFFFFFF, MAGIC, RESPONSE_BIT | 18, 0, 1, 0), "frame length of 2147483647"),
        (HEADER.pack(12, b"XX", RESPONSE_BIT | 18, 0, 1, 0), "magic"),
        (HEADER.pack(12, MAGIC, 18, 0, 1, 0), "a response is needed"),
        (
            HEADER.pack(12, MAGIC, RESPONSE_BIT | 18, 0, 99, 0),
            "response to request 99, and the oldest in flight is 1",
        ),
        (HEADER.pack(12, MAGIC, RESPONSE_BIT | 3, 0, 1, 0), "api 3 in a response to 18"),
        (HEADER.pack(12, MAGIC, RESPONSE_BIT | 18, 0, 1, 0), "broken HelloResponse"),
        (b"", "within 300 ms"),
    ],
)
async def test_responses_that_break_the_protocol_are_refused(answer: bytes, sentence: str) -> None:
    error = await talk_to(lambda reader, writer: send(writer, answer))
    assert sentence in str(error)
    assert isinstance(error, MillraceError)


async def test_a_frame_larger_than_the_client_takes_is_refused(broker: FakeBroker) -> None:
    broker.topics = {f"topic-{i}" * 10: 1 for i in range(2000)}
    connection = await connect(broker.port, receive_bytes_max=70_000)
    with pytest.raises(MessageTooLarge, match=r"takes 70000: raise fetch_max_bytes"):
        await connection.call(MetadataRequest(None), MetadataResponse, timeout_ms=5000)
    assert not connection.is_open


async def test_a_dead_connection_has_nothing_pending(broker: FakeBroker) -> None:
    connection = await connect(broker.port)
    await ask(connection)
    connection.close()
    assert connection.pending_count == 0
    assert isinstance(connection.fault, Closed)


def test_every_error_of_a_connection_has_one_of_the_clients() -> None:
    def family(root: type[wire.RequestFailed]) -> set[type[wire.RequestFailed]]:
        return {root}.union(*map(family, root.__subclasses__()))

    roots = {wire.RequestFailed, wire.ConnectionFault}
    for kind in family(wire.RequestFailed) - roots:
        if kind is wire.RequestRefused:
            error: wire.RequestFailed = wire.RequestRefused(
                "no", error_code=42, min_version=-1, max_version=-1
            )
        else:
            error = kind("no")
        assert str(client_error(error)).startswith("no")
