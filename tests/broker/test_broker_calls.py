"""A broker calls another broker, on a real network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from millrace_server.environment.seams import Environment
from millrace_server.testing import Broker
from millrace_wire.connection import Address
from millrace_wire.errors import ConnectFailed, ConnectionLost, RequestTimedOut
from tests.connection.broker_calls import (
    CONFIG,
    PIPELINED,
    TOPIC,
    append_pipelined,
    call_broker,
    create_topic,
    metadata,
    read,
)

NEVER_MS = 600_000


@pytest.fixture
async def other() -> AsyncIterator[Broker]:
    async with Broker(topic={"durability": "os"}) as running:
        yield running


@pytest.fixture
def env(broker: Broker) -> Environment:
    """The seams of the broker that calls."""
    return broker.node.broker.env


def address(broker: Broker) -> Address:
    return ("127.0.0.1", broker.port)


async def test_a_broker_says_hello_and_reads_the_metadata_of_another(
    env: Environment, other: Broker
) -> None:
    connection = await call_broker(env, address(other))
    await create_topic(connection)
    response = await metadata(connection)
    assert connection.cluster_id == response.cluster_id != ""
    (topic,) = response.topics
    assert (topic.name, len(topic.partitions)) == (TOPIC, 1)
    connection.close()


async def test_a_broker_pipelines_requests_and_reads_its_own_records(
    env: Environment, other: Broker
) -> None:
    connection = await call_broker(env, address(other))
    await create_topic(connection)
    assert await append_pipelined(connection) == list(range(PIPELINED))
    assert await read(connection, 0) == [b"%d" % number for number in range(PIPELINED)]
    connection.close()


async def test_a_response_that_is_overdue_ends_the_call_and_a_new_connection_works(
    env: Environment, other: Broker
) -> None:
    connection = await call_broker(env, address(other))
    await create_topic(connection)
    with pytest.raises(RequestTimedOut, match="did not respond to FETCH in time"):
        await read(connection, 0, max_wait_ms=NEVER_MS, timeout_ms=20)
    with pytest.raises(RequestTimedOut):
        await metadata(connection)
    again = await call_broker(env, address(other))
    assert (await metadata(again)).topics[0].error_code == 0
    again.close()


async def test_a_broker_that_is_down_refuses_the_connection(
    env: Environment, other: Broker
) -> None:
    await other.stop()
    with pytest.raises(ConnectFailed, match="no broker at"):
        await call_broker(env, address(other))
    await other.start()
    (await call_broker(env, address(other))).close()


async def test_a_peer_that_dies_fails_every_request_that_waits(
    env: Environment, other: Broker
) -> None:
    connection = await call_broker(env, address(other), replace(CONFIG, client_id="dying"))
    await create_topic(connection)
    waiting = [
        asyncio.create_task(read(connection, 0, max_wait_ms=NEVER_MS, timeout_ms=NEVER_MS))
        for _ in range(3)
    ]
    await asyncio.sleep(0)
    for accepted in list(other.node.server.connections):
        accepted.abort("the test ends it")
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 3


async def test_a_broker_that_stops_lets_its_responses_out_first(
    env: Environment, other: Broker
) -> None:
    connection = await call_broker(env, address(other))
    await create_topic(connection)
    waiting = asyncio.create_task(read(connection, 0, max_wait_ms=NEVER_MS, timeout_ms=NEVER_MS))
    await append_pipelined(second := await call_broker(env, address(other)))
    assert await waiting
    await other.stop()
    with pytest.raises(ConnectionLost):
        await metadata(connection)
    second.close()
