"""A connection that has ended is freed at once: nothing of it is in a reference cycle."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import error_frame, response_header
from millrace_protocol.messages.error_response import ErrorResponse
from millrace_protocol.messages.metadata import MetadataRequest, MetadataResponse
from millrace_wire.connection import Connection
from millrace_wire.errors import RequestFailed
from millrace_wire.frame_reader import FrameReader
from millrace_wire.request_pipeline import Request, RequestPipeline
from tests.connection.peer import CONFIG, METADATA, TIMEOUT_MS, Peer, connected, listening
from tests.living_objects import living

ASK = MetadataRequest(())
COUNTED = (Connection, FrameReader, RequestPipeline, Request, RequestFailed)


@pytest.fixture
async def collector_off() -> AsyncIterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def try_to_ask(connection: Connection, timeout_ms: int = TIMEOUT_MS) -> None:
    with suppress(RequestFailed):
        await connection.call(ASK, MetadataResponse, timeout_ms=timeout_ms)


async def ask_several(connection: Connection, timeout_ms: int = TIMEOUT_MS) -> None:
    await asyncio.gather(*(try_to_ask(connection, timeout_ms) for _ in range(4)))


async def respond_then_close(peer: Peer) -> None:
    await peer.hello()
    for _ in range(3):
        peer.respond(await peer.next(), METADATA)


async def die(peer: Peer) -> None:
    await peer.hello()
    await peer.next()
    peer.writer.transport.abort()


async def refuse(peer: Peer) -> None:
    await peer.hello()
    header = await peer.next()
    refusal, code = ErrorResponse("no"), ErrorCode.INVALID_REQUEST
    peer.writer.write(
        error_frame(
            api=3,
            version=0,
            correlation_id=header.correlation_id,
            error_code=code,
            response=refusal,
        )
    )
    await peer.serve()


async def break_the_protocol(peer: Peer) -> None:
    await peer.hello()
    await peer.next()
    peer.writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await peer.serve()


async def break_the_order(peer: Peer) -> None:
    await peer.hello()
    await peer.next()
    peer.writer.write(response_header(api=3, version=0, correlation_id=99, body_size=0))
    await peer.serve()


async def break_a_body(peer: Peer) -> None:
    await peer.hello()
    header = await peer.next()
    correlation_id = header.correlation_id
    peer.writer.write(
        response_header(api=3, version=0, correlation_id=correlation_id, body_size=1) + b"?"
    )
    await peer.serve()


async def stop_in_a_large_frame(peer: Peer) -> None:
    await peer.hello()
    header = await peer.next()
    correlation_id = header.correlation_id
    peer.writer.write(
        response_header(api=3, version=0, correlation_id=correlation_id, body_size=9 << 20)
        + bytes(200_000)
    )
    await peer.writer.drain()


async def say_nothing(peer: Peer) -> None:
    await peer.hello()
    await peer.read_on()


async def say_no_hello(peer: Peer) -> None:
    await peer.next()
    peer.writer.write(b"\x00\x00\x00\x00")
    await peer.read_on()


async def close(connection: Connection) -> None:
    connection.close()


async def close_with_pending(connection: Connection) -> None:
    calls = [asyncio.create_task(try_to_ask(connection)) for _ in range(4)]
    await asyncio.sleep(0)
    connection.close()
    await asyncio.gather(*calls)


async def cancel_pending(connection: Connection) -> None:
    calls = [asyncio.create_task(try_to_ask(connection)) for _ in range(4)]
    await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    connection.close()


async def time_out(connection: Connection) -> None:
    await ask_several(connection, timeout_ms=5)


@pytest.mark.usefixtures("collector_off")
@pytest.mark.parametrize(
    ("script", "use"),
    [
        (respond_then_close, ask_several),
        (die, ask_several),
        (refuse, ask_several),
        (break_the_protocol, ask_several),
        (break_the_order, ask_several),
        (break_a_body, ask_several),
        (stop_in_a_large_frame, ask_several),
        (say_nothing, time_out),
        (say_nothing, close_with_pending),
        (say_nothing, cancel_pending),
        (say_no_hello, ask_several),
        (respond_then_close, close),
    ],
)
async def test_a_connection_that_has_ended_leaves_no_object_behind(
    script: Callable[[Peer], Awaitable[None]], use: Callable[[Connection], Awaitable[None]]
) -> None:
    others = living(COUNTED)
    async with listening(script) as address:
        for _ in range(3):
            with suppress(RequestFailed):
                connection = await connected(address, replace(CONFIG, client_id="counted"))
                await use(connection)
                connection.close()
                del connection
        # The transport tells its protocol of the end in a later pass of the loop.
        for _ in range(20):
            await asyncio.sleep(0)
            if not living(COUNTED, others):
                break
        assert living(COUNTED, others) == []
