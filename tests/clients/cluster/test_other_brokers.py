"""A client asks another broker where one cannot say, or does not know what has changed."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from millrace import Admin, Consumer, Producer
from millrace.errors import ConnectionFailed, NotController
from millrace_protocol.api import ApiKey
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.admin import CreatedTopic, CreateTopicsResponse
from millrace_protocol.messages.produce import ProducePartitionResult, ProduceResponse
from tests.clients.fake_broker import FakeBroker, Handler, HangUp, Refuse
from tests.hang_timeout import HANG_TIMEOUT_S


async def test_a_request_for_any_broker_goes_to_another_one_after_a_refusal() -> None:
    asked: list[int] = []
    async with FakeBroker({"t": 1}) as first, FakeBroker({"t": 1}, node_id=1) as second:
        brokers = (first, second)
        for broker in brokers:
            broker.peers = {each.node_id: (each.host, each.port) for each in brokers}
            broker.leader_of = lambda topic, partition: 1

            def knows_no_controller(
                request: Any, default: Handler, node_id: int = broker.node_id
            ) -> Any:
                asked.append(node_id)
                if node_id == asked[0]:
                    raise Refuse(ErrorCode.NOT_CONTROLLER)
                return default(request)

            broker.script(ApiKey.INIT_PRODUCER_ID, knows_no_controller)
        async with Producer([first.address, second.address], retry_backoff_ms=1) as producer:
            await producer.send("t", b"x")
    assert sorted(asked) == [0, 1]


@pytest.fixture
async def brokers() -> AsyncIterator[tuple[FakeBroker, FakeBroker]]:
    """Two brokers that know each other; both say that the first one leads."""
    async with FakeBroker({"t": 1}) as first, FakeBroker({"t": 1}, node_id=1) as second:
        for broker in (first, second):
            broker.peers = {each.node_id: (each.host, each.port) for each in (first, second)}
            broker.leader_of = lambda topic, partition: 0
        yield first, second


def cut_off(first: FakeBroker, second: FakeBroker, api: ApiKey) -> None:
    """The first broker serves `api` no more, and does not know that the second leads from then on.

    Its requests are counted from the first one that it does not serve.
    """

    def hang_up(request: Any, default: Handler) -> Any:
        if second.leader_of("t", 0) == 0:
            second.leader_of = lambda topic, partition: 1
            first.requests.clear()
        raise HangUp

    first.script(api, hang_up)


async def test_a_consumer_asks_another_broker_for_the_leader_after_a_failed_fetch(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    first, second = brokers
    second.fill("t", 0, [b"x"])
    cut_off(first, second, ApiKey.FETCH)
    async with Consumer(first.address, "t", start="earliest", retry_backoff_ms=1) as consumer:
        record = await asyncio.wait_for(consumer.getone(), HANG_TIMEOUT_S)
    assert record.value == b"x"
    assert first.count(ApiKey.METADATA) == 0


async def test_a_producer_asks_another_broker_for_the_leader_after_a_failed_send(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    first, second = brokers
    cut_off(first, second, ApiKey.PRODUCE)
    async with Producer(first.address, idempotent=False, retry_backoff_ms=1) as producer:
        await producer.send("t", b"x")
    assert first.count(ApiKey.METADATA) == 0
    assert [record[3] for record in second.logs["t", 0].records()] == [b"x"]


async def test_a_producer_looks_for_another_leader_where_the_disk_is_full(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    first, second = brokers

    def has_no_room(request: Any, default: Handler) -> ProduceResponse:
        second.leader_of = lambda topic, partition: 1
        code = ErrorCode.DISK_FULL
        return ProduceResponse((ProducePartitionResult("t", 0, code, None, -1, -1, -1),))

    first.script(ApiKey.PRODUCE, has_no_room)
    async with Producer(first.address, idempotent=False, retry_backoff_ms=1) as producer:
        await producer.send("t", b"x")
    assert [record[3] for record in second.logs["t", 0].records()] == [b"x"]


def no_controller(request: Any, default: Handler) -> CreateTopicsResponse:
    code = ErrorCode.NOT_CONTROLLER
    return CreateTopicsResponse(
        tuple(
            CreatedTopic(each.name, code, None, uuid.UUID(int=0), 0, 0) for each in request.topics
        )
    )


async def test_a_change_goes_to_another_broker_after_a_response_of_not_controller(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    first, second = brokers
    first.script(ApiKey.CREATE_TOPICS, no_controller)
    async with Admin(first.address, retry_backoff_ms=1) as admin:
        assert await admin.create_topic("made", partitions=2) == 2
    assert second.topics["made"] == 2
    assert first.count(ApiKey.CREATE_TOPICS) <= 1


async def test_a_change_that_no_broker_takes_says_so_when_its_time_is_over(
    brokers: tuple[FakeBroker, FakeBroker],
) -> None:
    for broker in brokers:
        broker.script(ApiKey.CREATE_TOPICS, no_controller)
    address = brokers[0].address
    async with Admin(address, retry_backoff_ms=1, request_timeout_ms=300) as admin:
        with pytest.raises((NotController, ConnectionFailed)):
            await admin.create_topic("made")
