"""A connection that has ended is freed by the broker at once: it is in no reference cycle."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest

from millrace_server.environment.seams import Environment
from millrace_server.net.connection import Connection
from millrace_server.testing import Broker
from millrace_wire.errors import RequestFailed
from millrace_wire.frame_reader import FrameReader
from tests.broker.wire import until
from tests.connection.broker_calls import (
    append_pipelined,
    call_broker,
    create_topic,
    metadata,
    read,
)
from tests.living_objects import living

Use = Callable[[Environment, Broker], Awaitable[None]]
NEVER_MS = 600_000
COUNTED = (Connection, FrameReader)


@pytest.fixture
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def ask(env: Environment, broker: Broker) -> None:
    connection = await call_broker(env, ("127.0.0.1", broker.port))
    await metadata(connection)
    await append_pipelined(connection)
    connection.close()


async def leave_a_long_poll(env: Environment, broker: Broker) -> None:
    connection = await call_broker(env, ("127.0.0.1", broker.port))
    waiting = asyncio.create_task(
        read(connection, 1 << 20, max_wait_ms=NEVER_MS, timeout_ms=NEVER_MS)
    )
    connections = broker.node.server.connections
    await until(lambda: any(accepted._input.requests == 2 for accepted in connections))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    connection.close()


async def type_lines(env: Environment, broker: Broker) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(b"TOPICS\nFETCH copied 0 0\n")
    await reader.readline()
    writer.close()
    await writer.wait_closed()


async def break_the_framing(env: Environment, broker: Broker) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(b"\xff" * 100)
    await reader.read()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.usefixtures("collector_off")
@pytest.mark.parametrize("use", [ask, leave_a_long_poll, type_lines, break_the_framing])
async def test_a_broker_keeps_nothing_of_a_connection_that_has_ended(
    broker: Broker, use: Use
) -> None:
    env, others = broker.node.broker.env, living(COUNTED)
    first = await call_broker(env, ("127.0.0.1", broker.port))
    await create_topic(first)
    first.close()
    del first
    for _ in range(5):
        with suppress(RequestFailed):
            await use(env, broker)
    await until(lambda: not broker.node.server.connections)
    # What a connection held is released in later passes of the loop.
    await until(lambda: not living(COUNTED, others))
