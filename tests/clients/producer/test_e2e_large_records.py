"""Records as large as their topic allows, through clients with their default settings."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from millrace import Admin, Consumer, Producer
from millrace.config import ProducerConfig
from millrace.errors import BufferFull, MessageTooLarge
from millrace_protocol.records import HEADER_SIZE
from millrace_server.limits import Limits
from millrace_server.testing import Broker

LARGE = 10_000_000


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as running, Admin(running.servers) as admin:
        await admin.create_topic("large", configs={"max.message.bytes": 12_000_000})
        await admin.create_topic("t")
        yield running


async def test_a_topic_that_allows_a_size_is_enough_to_send_and_read_it(broker: Broker) -> None:
    values = [bytes([number]) * LARGE for number in range(3)]
    async with Producer(broker.servers) as producer:
        for value in values:
            await producer.room()
            producer.send("large", value)
        await producer.flush()
        await producer.send_many("large", [b"small", values[0], b"small"])
        assert producer.health().buffered_bytes == 0
    async with Consumer(broker.servers, "large") as consumer:
        found = [(await consumer.getone()).value for _ in range(6)]
    assert found == [*values, b"small", values[0], b"small"]


async def test_after_room_a_record_of_any_size_is_taken(broker: Broker) -> None:
    async with Producer(broker.servers, buffer_bytes=2 << 20, linger_ms=60_000) as producer:
        taken = 0
        with pytest.raises(BufferFull):
            while True:
                producer.send("large", b"x" * 100_000)
                taken += 1
        assert taken >= 19
        await producer.room()
        await producer.send("large", b"y" * 2_000_000)


async def test_a_topic_that_does_not_allow_a_size_is_named_in_the_error(broker: Broker) -> None:
    async with Producer(broker.servers) as producer:
        with pytest.raises(MessageTooLarge, match=r"max\.message\.bytes of .t. is 1048588"):
            await producer.send("t", b"x" * 2_000_000)


async def test_a_record_that_no_broker_takes_by_default_names_every_setting(
    broker: Broker,
) -> None:
    async with Producer(broker.servers) as producer:
        with pytest.raises(MessageTooLarge) as caught:
            producer.send("large", b"x" * 20_000_000)
    for setting in (
        "max_request_bytes=",
        "buffer_bytes=",
        "max.message.bytes=",
        "frame_bytes_max=",
        "fetch_max_bytes=",
    ):
        assert setting in str(caught.value)


async def test_the_settings_that_the_error_names_are_enough() -> None:
    size = 20_000_000
    limits = Limits(frame_bytes_max=21_000_000)
    async with Broker(limits=limits) as broker, Admin(broker.servers) as admin:
        await admin.create_topic("large", configs={"max.message.bytes": 20_001_000})
        async with Producer(
            broker.servers, max_request_bytes=20_001_000, buffer_bytes=40_002_000
        ) as producer:
            await producer.send("large", b"x" * size)
        async with Consumer(broker.servers, "large") as consumer:
            with pytest.raises(MessageTooLarge, match="raise fetch_max_bytes"):
                await consumer.getone()
        async with Consumer(broker.servers, "large", fetch_max_bytes=20_001_000) as consumer:
            assert len((await consumer.getone()).value or b"") == size


def test_requests_are_filled_up_to_a_mebibyte_by_default() -> None:
    assert ProducerConfig().request_bytes == 1 << 20
    assert ProducerConfig(batch_bytes=4 << 20).request_bytes == 4 << 20
    assert ProducerConfig(max_request_bytes=300_000).request_bytes == 300_000
    assert ProducerConfig(max_request_bytes=300_000).record_bytes_max < 300_000


def test_batches_have_a_megabyte_by_default_or_what_a_request_leaves() -> None:
    assert ProducerConfig().filled_batch_bytes == 1_000_000
    assert ProducerConfig(max_request_bytes=4 << 20).filled_batch_bytes == 1_000_000
    assert ProducerConfig(max_request_bytes=300_000).filled_batch_bytes == 300_000 - HEADER_SIZE
    assert ProducerConfig(max_request_bytes=300_000, batch_bytes=7).filled_batch_bytes == 7
    assert ProducerConfig(max_request_bytes=1).filled_batch_bytes == 1
