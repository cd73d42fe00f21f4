"""Partitions that cannot be read: the consumer reads the others, and reports the reason."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from millrace import Admin, Consumer, Producer, TopicPartition
from millrace.errors import StorageFailed, UnknownTopicOrPartition
from millrace.events import EventKind
from millrace_protocol.api import ApiKey
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
)
from millrace_server.testing import Broker
from tests.broker.wire import until
from tests.clients.fake_broker import FakeBroker, Handler

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FOREVER_MS = 3_600_000
"""A time limit that no test reaches: a test that waits for it fails."""
QUICK: dict[str, Any] = {
    "request_timeout_ms": FOREVER_MS,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
}
REASON = "the disk is gone"


@pytest.fixture
async def fake() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 2}) as broker:
        for partition in range(2):
            broker.fill("t", partition, [b"%d" % partition])
        yield broker


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """The directory of a stopped broker: topic `t`, whose partition 0 has lost its directory."""
    directory = tmp_path / "data"
    async with Broker(data=directory) as broker, Admin(broker.servers) as admin:
        await admin.create_topic("t", partitions=2)
        async with Producer(broker.servers) as producer:
            for partition in range(2):
                await producer.send("t", b"%d" % partition, partition=partition)
    shutil.rmtree(directory / "t-0")
    return directory


def refuse_lookups_of(broker: FakeBroker, partition: int, code: ErrorCode) -> None:
    def refuse(request: ListOffsetsRequest, handler: Handler) -> ListOffsetsResponse:
        answer = handler(request)
        assert isinstance(answer, ListOffsetsResponse)
        return ListOffsetsResponse(
            tuple(
                ListOffsetsResult(r.topic, r.partition, code, REASON, -1, -1, -1)
                if r.partition == partition
                else r
                for r in answer.partitions
            )
        )

    broker.script(ApiKey.LIST_OFFSETS, refuse)


async def test_a_partition_is_read_while_the_start_of_another_cannot_be_looked_up(
    fake: FakeBroker,
) -> None:
    refuse_lookups_of(fake, 0, ErrorCode.KAFKA_STORAGE_ERROR)
    async with Consumer(fake.address, "t", **QUICK) as consumer:
        assert (await consumer.getone()).partition == 1
        waiting = consumer.health().waiting
        assert waiting.keys() == {T0}
        assert isinstance(waiting[T0], StorageFailed)
        assert REASON in str(waiting[T0])


async def test_a_partition_is_read_once_its_start_can_be_looked_up(fake: FakeBroker) -> None:
    refuse_lookups_of(fake, 0, ErrorCode.KAFKA_STORAGE_ERROR)
    async with Consumer(fake.address, "t", **QUICK) as consumer:
        assert (await consumer.getone()).partition == 1
        fake.script(ApiKey.LIST_OFFSETS, None)
        assert (await consumer.getone()).partition == 0
        assert consumer.health().waiting == {}


async def test_why_a_partition_waits_is_told_once(fake: FakeBroker) -> None:
    refuse_lookups_of(fake, 0, ErrorCode.KAFKA_STORAGE_ERROR)
    consumer = Consumer(fake.address, "t", **QUICK)
    events = consumer.events()
    async with consumer:
        await consumer.getone()
        before = fake.count(ApiKey.LIST_OFFSETS)
        await until(lambda: fake.count(ApiKey.LIST_OFFSETS) > before + 5)
    told = [e async for e in events if e.kind is EventKind.FETCH_FAILED]
    assert [event.sentence for event in told] == [f"t-0: {REASON}"]


async def test_a_partition_is_read_while_another_has_no_leader(fake: FakeBroker) -> None:
    fake.leader_of = lambda topic, partition: -1 if partition == 0 else 0
    async with Consumer(fake.address, "t", **QUICK) as consumer:
        assert (await consumer.getone()).partition == 1


async def test_a_partition_that_is_not_there_is_an_error_for_the_user(fake: FakeBroker) -> None:
    async with Consumer(fake.address, **QUICK) as consumer:
        consumer.assign([("t", 1), ("t", 2)])
        assert (await consumer.getone()).partition == 1
        with pytest.raises(UnknownTopicOrPartition, match="t has 2"):
            await consumer.getone()


@pytest.mark.parametrize("group", [None, "g"])
async def test_an_offline_partition_does_not_delay_the_others(
    data: Path, group: str | None
) -> None:
    async with (
        Broker(data=data) as broker,
        Consumer(broker.servers, "t", group=group, **QUICK) as consumer,
    ):
        assert (await consumer.getone()).value == b"1"
        await until(lambda: bool(consumer.health().waiting))
        ((where, reason),) = consumer.health().waiting.items()
        assert where == T0
        assert "its directory" in str(reason), "the broker's own reason"
