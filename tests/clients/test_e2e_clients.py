"""The clients and a real broker."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from operator import itemgetter

import pytest

from millrace import Admin, Consumer, Producer, Record, TopicPartition
from millrace.admin import NewTopic
from millrace.config import Acks
from millrace.errors import (
    CorruptMessage,
    InvalidConfig,
    InvalidTopic,
    MessageTooLarge,
    MillraceError,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from millrace_server.testing import Broker
from tests.hang_timeout import HANG_TIMEOUT_S


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as broker:
        async with Admin(broker.servers) as admin:
            await admin.create_topic("t", partitions=3)
            await admin.create_topic("one", partitions=1)
        yield broker


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_consumed_records_equal_the_produced_ones(broker: Broker, compression: str) -> None:
    values = [b"value %d " % i * 5 for i in range(3000)]
    keys = [b"key %d" % (i % 100) for i in range(3000)]
    async with Producer(broker.servers, compression=compression) as producer:  # type: ignore[call-overload]
        receipts = await producer.send_many("t", values, keys=keys, timestamps_ms=range(3000))
        sent = {(r.partition, r.offset): i for i, r in enumerate(receipts)}
    assert len(sent) == 3000
    async with Consumer(broker.servers, "t") as consumer:
        for _ in range(3000):
            record = await consumer.getone()
            i = sent.pop((record.partition, record.offset))
            assert (record.key, record.value, record.timestamp_ms) == (keys[i], values[i], i)
    assert not sent


async def test_nulls_and_headers_survive(broker: Broker) -> None:
    headers = (("a", b"1"), ("a", None), ("é", b""))
    async with Producer(broker.servers) as producer, Consumer(broker.servers, "one") as consumer:
        await producer.send("one", None, key=None, headers=headers)
        record = await consumer.getone()
        assert (record.key, record.value, record.headers) == (None, None, headers)


async def test_a_consumer_that_waits_gets_a_record_as_it_is_written(broker: Broker) -> None:
    async with (
        Producer(broker.servers) as producer,
        Consumer(broker.servers, "t", start="latest", fetch_max_wait_ms=20_000) as consumer,
    ):
        await asyncio.gather(*(consumer.position(("t", p)) for p in range(3)))
        async with asyncio.timeout(HANG_TIMEOUT_S):
            for i in range(20):
                await producer.send("t", b"%d" % i)
                assert (await consumer.getone()).value == b"%d" % i


async def test_nothing_is_lost_or_doubled_over_restarts_of_the_broker(broker: Broker) -> None:
    values = [b"%06d" % i for i in range(3000)]
    async with Producer(broker.servers, batch_bytes=2000, retry_backoff_ms=5) as producer:
        deliveries = []
        for i, value in enumerate(values):
            deliveries.append(producer.send("one", value))
            if i % 1000 == 700:
                await deliveries[-500]
                await broker.stop()
                await broker.start()
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(3000))
    async with Consumer(broker.servers, "one", retry_backoff_ms=5) as consumer:
        got = [await consumer.getone() for _ in range(1000)]
        await broker.stop()
        await broker.start()
        got += [await consumer.getone() for _ in range(2000)]
    assert [record.value for record in got] == values


async def test_the_broker_refuses_and_the_client_says_why(broker: Broker) -> None:
    async with Admin(broker.servers) as admin:
        await admin.create_topic("small", partitions=1, configs={"max.message.bytes": 1000})
    async with Producer(broker.servers) as producer:
        with pytest.raises(MessageTooLarge, match="1000"):
            await producer.send("small", bytes(5000))
        assert (await producer.send("small", b"x")).offset == 0
    async with Consumer(broker.servers, "small") as consumer:
        consumer.seek(("small", 0), 99)
        with pytest.raises(OffsetOutOfRange, match=r"\[0, 1\)"):
            await consumer.getone()


@pytest.mark.parametrize(("acks", "is_idempotent"), [("all", True), (1, True), (1, False)])
@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_batches_that_are_too_large_for_their_topic_go_in_parts(
    broker: Broker, compression: str, acks: Acks, is_idempotent: bool
) -> None:
    async with Admin(broker.servers) as admin:
        await admin.create_topic("small", partitions=2, configs={"max.message.bytes": 3000})
    noise = random.Random(1)
    values = [b"%05d " % i + noise.randbytes(noise.randrange(200)) for i in range(3000)]
    keys = [b"%d" % noise.randrange(9) if i % 3 else None for i in range(3000)]
    headers = [(("number", b"%d" % i),) if i % 5 else () for i in range(3000)]
    expected = list(zip(values, keys, headers, range(3000), strict=True))
    too_large = values[1700] = noise.randbytes(5000)
    async with Producer(  # type: ignore[call-overload]
        broker.servers,
        compression=compression,
        acks=acks,
        idempotent=is_idempotent,
        linger_ms=5,
    ) as producer:
        alone = producer.send("small", values[0], key=keys[0], headers=headers[0], timestamp_ms=0)
        many = producer.send_many(
            "small",
            values[1:],
            keys=keys[1:],
            headers=headers[1:],
            timestamps_ms=range(1, 3000),
        )
        with pytest.raises(MessageTooLarge, match=r"max\.message\.bytes"):
            await many
        await producer.flush()
        first = await alone
    del expected[1700]
    found: defaultdict[int, list[Record]] = defaultdict(list)
    async with Consumer(broker.servers, "small") as consumer:
        for _ in expected:
            record = await consumer.getone()
            assert record.offset == len(found[record.partition])
            found[record.partition].append(record)
    records = [record for of in found.values() for record in of]
    assert (
        sorted(((r.value, r.key, r.headers, r.timestamp_ms) for r in records), key=itemgetter(3))
        == expected
    )
    times: defaultdict[tuple[int, bytes | None], list[int]] = defaultdict(list)
    for record in records:
        times[record.partition, record.key].append(record.timestamp_ms)
    assert all(of == sorted(of) for of in times.values())
    assert found[first.partition][first.offset].value == values[0]
    assert too_large not in [record.value for record in records]


async def test_offsets_by_time(broker: Broker) -> None:
    one = TopicPartition("one", 0)
    async with Producer(broker.servers) as producer:
        for i in range(10):
            await producer.send("one", b"", timestamp_ms=1000 * i + 1000)
    async with Consumer(broker.servers, "one", start=4500) as consumer:
        assert (await consumer.getone()).offset == 4
        assert await consumer.offsets_for_times({one: 7000}) == {one: (6, 7000)}
        consumer.seek_to_timestamp(9001)
        assert (await consumer.getone()).offset == 9
        assert await consumer.lag() == {one: 0}


async def test_topics_are_made_described_changed_and_deleted(broker: Broker) -> None:
    async with Admin(broker.servers) as admin:
        outcomes = await admin.create_topics(
            [NewTopic("new", 2), NewTopic("one", 2), NewTopic("bad name", 2)]
        )
        assert [type(outcome.error) for outcome in outcomes] == [
            type(None),
            TopicAlreadyExists,
            InvalidTopic,
        ]
        assert outcomes[0].value == 2
        assert await admin.list_topics() == ["new", "one", "t"]
        await admin.create_partitions("new", 4)
        assert len((await admin.describe_topic("new")).partitions) == 4
        await admin.alter_configs("new", {"retention.ms": 1000})
        setting = (await admin.describe_configs("new"))["retention.ms"]
        assert (setting.value, setting.is_default) == ("1000", False)
        with pytest.raises(InvalidConfig):
            await admin.alter_configs("new", {"no.such.key": 1})
        latest = await admin.list_offsets({("one", 0): "latest"})
        assert latest[TopicPartition("one", 0)].offset == 0
        cluster = await admin.describe_cluster()
        assert [b.node_id for b in cluster.brokers] == [cluster.controller]
        await admin.delete_topic("new")
        with pytest.raises(UnknownTopicOrPartition):
            await admin.describe_topic("new")


async def test_a_segment_that_changes_on_disk_is_an_error_and_not_a_record(broker: Broker) -> None:
    async with Producer(broker.servers) as producer:
        for i in range(3):
            await producer.send("one", b"value-%d" % i)
    await broker.stop()
    (segment,) = broker.data.rglob("*one*/*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(b"value-1")] ^= 1
    with segment.open("r+b") as file:
        file.write(data)
    await broker.start()
    async with Consumer(broker.servers, "one", retry_backoff_ms=1) as consumer:
        # The answer that holds all three is cut off; what comes next ends before the rot.
        assert (await consumer.getone()).offset == 0
        for _ in range(2):
            with pytest.raises(CorruptMessage) as refused:
                await consumer.getone()
            for words in ("one-0", segment.name, "offsets 1 to 1", "seek to offset 2"):
                assert words in str(refused.value)
            assert await consumer.position(("one", 0)) == 1
        consumer.seek(("one", 0), 2)
        assert (await consumer.getone()).value == b"value-2"
    assert segment.read_bytes()[: len(data)] == data


async def test_bytes_that_change_in_memory_are_refused_by_the_consumer(broker: Broker) -> None:
    async with Producer(broker.servers) as producer:
        for i in range(3):
            await producer.send("one", b"value-%d" % i)
    # The broker has checked them when they came, and the page cache is what it sends from.
    (segment,) = broker.data.rglob("*one*/*.log")
    data = bytearray(segment.read_bytes())
    data[data.index(b"value-1")] ^= 1
    with segment.open("r+b") as file:
        file.write(data)
    async with Consumer(broker.servers, "one", retry_backoff_ms=1) as consumer:
        assert (await consumer.getone()).offset == 0
        with pytest.raises(CorruptMessage):
            await consumer.getone()
        assert await consumer.position(("one", 0)) == 1
        consumer.seek(("one", 0), 2)
        assert (await consumer.getone()).value == b"value-2"


async def test_many_tasks_share_one_producer(broker: Broker) -> None:
    async def worker(producer: Producer, number: int) -> list[int]:
        return [(await producer.send("one", b"%d" % number)).offset for _ in range(20)]

    async with Producer(broker.servers) as producer:
        offsets = await asyncio.gather(*(worker(producer, n) for n in range(50)))
    assert sorted(offset for each in offsets for offset in each) == list(range(1000))
    assert all(each == sorted(each) for each in offsets)


async def test_a_stopped_broker_is_a_typed_error(broker: Broker) -> None:
    async with Producer(
        broker.servers, delivery_timeout_ms=500, retry_backoff_ms=5, retry_backoff_max_ms=5
    ) as producer:
        await producer.send("one", b"")
        await broker.stop()
        with pytest.raises(MillraceError, match="delivery_timeout_ms=500"):
            await producer.send("one", b"")
        await broker.start()
        assert (await producer.send("one", b"")).offset >= 1
