"""The consumer against a fake broker: every record once, in order, despite failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, assert_type

import pytest

from millrace import Consumer, Record, RecordBatch, State, TopicPartition
from millrace.errors import (
    ClientFailed,
    Closed,
    ConfigError,
    CorruptMessage,
    DeserializationFailed,
    NoPartitions,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from millrace.events import EventKind
from millrace_protocol.api import ApiKey
from millrace_protocol.messages.fetch import FetchRequest, FetchResponse
from millrace_protocol.schema import Message
from tests.clients.fake_broker import FakeBroker, HangUp
from tests.hang_timeout import HANG_TIMEOUT_S

ONE = TopicPartition("one", 0)


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker({"t": 3, "one": 1}) as broker:
        yield broker


def fill(broker: FakeBroker, count: int, *, topic: str = "one", per_batch: int = 10) -> None:
    """Records with their own offset as the value, spread evenly over the partitions."""
    for partition in range(broker.topics[topic]):
        start = broker.logs[topic, partition].end
        for first in range(start, start + count, per_batch):
            values = [b"%d" % i for i in range(first, min(first + per_batch, start + count))]
            broker.fill(topic, partition, values)


async def take(consumer: Consumer, count: int) -> list[Record]:
    return [await consumer.getone() for _ in range(count)]


async def test_reads_every_record_of_every_partition_once_and_in_order(broker: FakeBroker) -> None:
    fill(broker, 1000, topic="t")
    seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
    async with Consumer(broker.address, "t", max_partition_bytes=2000) as consumer:
        async for record in consumer:
            assert record.value == b"%d" % record.offset
            seen[record.partition].append(record.offset)
            if sum(map(len, seen.values())) == 3000:
                break
        assert await consumer.lag() == {TopicPartition("t", p): 0 for p in range(3)}
    assert seen == {p: list(range(1000)) for p in range(3)}


async def test_no_partition_waits_for_another_to_be_read_to_its_end(broker: FakeBroker) -> None:
    fill(broker, 1000, topic="t")
    async with Consumer(broker.address, "t", max_partition_bytes=2000) as consumer:
        first = await take(consumer, 900)
        assert {record.partition for record in first} == {0, 1, 2}


async def test_leaving_a_loop_loses_nothing(broker: FakeBroker) -> None:
    fill(broker, 30)
    async with Consumer(broker.address, "one") as consumer:
        async for record in consumer:
            if record.offset == 4:
                break
        assert await consumer.position(ONE) == 5
        assert (await consumer.getone()).offset == 5
        assert [r.offset for r in await consumer.getmany(3)] == [6, 7, 8]
        async for batch in consumer.batches():
            assert [r.offset for r in batch] == list(range(9, 30))
            assert (len(batch), batch.base_offset, batch.last_offset) == (21, 9, 29)
            break
        assert await consumer.position(ONE) == 30


async def test_position_is_exact_to_the_record(broker: FakeBroker) -> None:
    fill(broker, 25)
    async with Consumer(broker.address, "one") as consumer:
        for offset in range(25):
            assert await consumer.position(ONE) == offset
            assert (await consumer.getone()).offset == offset
        assert await consumer.position(ONE) == 25


async def test_seek_goes_anywhere_even_in_the_middle_of_a_batch(broker: FakeBroker) -> None:
    fill(broker, 100)
    async with Consumer(broker.address, "one") as consumer:
        await take(consumer, 15)
        for offset in (3, 97, 0, 55):
            consumer.seek(ONE, offset)
            assert await consumer.position(ONE) == offset
            assert (await consumer.getone()).offset == offset
        consumer.seek_to_beginning(ONE)
        assert (await consumer.getone()).offset == 0
        consumer.seek_to_end()
        assert await consumer.position(ONE) == 100
        fill(broker, 1)
        assert (await consumer.getone()).offset == 100
        with pytest.raises(ValueError, match="offset"):
            consumer.seek(ONE, -1)


async def test_a_seek_inside_a_loop_takes_effect_with_the_next_record(broker: FakeBroker) -> None:
    fill(broker, 100)
    offsets = []
    async with Consumer(broker.address, "one") as consumer:
        async for record in consumer:
            offsets.append(record.offset)
            if len(offsets) == 3:
                consumer.seek(ONE, 50)
            if len(offsets) == 5:
                break
    assert offsets == [0, 1, 2, 50, 51]


async def test_starts_where_it_is_told_to(broker: FakeBroker) -> None:
    for i in range(10):
        broker.fill("one", 0, [b"%d" % i], timestamps_ms=1000 * i)
    for start, offset in (
        ("earliest", 0),
        (4500, 5),
        (datetime.fromtimestamp(7, UTC), 7),
        ("latest", 10),
        (99_000, 10),
    ):
        at: Any = start
        async with Consumer(broker.address, "one", start=at) as consumer:
            assert await consumer.position(ONE) == offset
            if offset < 10:
                assert (await consumer.getone()).offset == offset


async def test_offsets_can_be_asked_for(broker: FakeBroker) -> None:
    for i in range(10):
        broker.fill("one", 0, [b"x"], timestamps_ms=1000 * i)
    broker.logs["one", 0].start = 2
    async with Consumer(broker.address, "one") as consumer:
        assert await consumer.beginning_offsets() == {ONE: 2}
        assert await consumer.end_offsets(ONE) == {ONE: 10}
        assert await consumer.offsets_for_times({ONE: 4500}) == {ONE: (5, 5000)}
        assert await consumer.offsets_for_times({ONE: 1 << 50}) == {ONE: None}
        with pytest.raises(UnknownTopicOrPartition, match="one has 1"):
            await consumer.end_offsets(("one", 5))


async def test_assign_reads_the_named_partitions_and_keeps_positions(broker: FakeBroker) -> None:
    fill(broker, 10, topic="t")
    async with Consumer(broker.address) as consumer:
        with pytest.raises(NoPartitions, match="assign"):
            await consumer.getone()
        consumer.assign([("t", 1)])
        assert [r.offset for r in await take(consumer, 4)] == [0, 1, 2, 3]
        consumer.assign([("t", 1), ("t", 2)])
        rest = await take(consumer, 16)
        assert [r.offset for r in rest if r.partition == 1] == [4, 5, 6, 7, 8, 9]
        assert consumer.assignment() == [TopicPartition("t", 1), TopicPartition("t", 2)]
        with pytest.raises(NoPartitions, match="t-0"):
            consumer.seek(("t", 0), 1)


async def test_a_paused_partition_is_not_handed_out_until_it_is_resumed(
    broker: FakeBroker,
) -> None:
    fill(broker, 50, topic="t")
    paused = TopicPartition("t", 1)
    async with Consumer(broker.address, "t") as consumer:
        await take(consumer, 5)
        consumer.pause(paused)
        assert consumer.paused() == [paused]
        before = await consumer.position(paused)
        others = 100 + before - 5
        assert {r.partition for r in await take(consumer, others)} == {0, 2}
        assert await consumer.getmany(timeout_ms=20) == []
        consumer.resume()
        assert [r.offset for r in await take(consumer, 50 - before)] == list(range(before, 50))


async def test_getmany_takes_buffered_records_and_waits_up_to_its_timeout(
    broker: FakeBroker,
) -> None:
    fill(broker, 7)
    async with Consumer(broker.address, "one", fetch_max_wait_ms=10) as consumer:
        assert len(await consumer.getmany(100)) == 7
        assert await consumer.getmany(100, timeout_ms=5) == []
        assert await consumer.getmany(100, timeout_ms=0) == []
        fill(broker, 3)
        assert [r.offset for r in await consumer.getmany(2)] == [7, 8]
        assert [r.offset for r in await consumer.getmany(2, timeout_ms=0)] == [9]


async def test_an_idle_consumer_waits_in_one_long_poll(broker: FakeBroker) -> None:
    """A long poll that lasts longer than the test: a second one would be seen."""
    longest_ms = int(HANG_TIMEOUT_S * 2_000)
    async with Consumer(
        broker.address, "t", fetch_max_wait_ms=longest_ms, request_timeout_ms=2 * longest_ms
    ) as consumer:
        async with asyncio.timeout(HANG_TIMEOUT_S):
            # One fetch to see that there is nothing, and the long poll.
            while broker.count(ApiKey.FETCH) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
        for _ in range(3):
            assert await consumer.getmany(timeout_ms=20) == []
        assert broker.count(ApiKey.FETCH) == 2
        assert broker.inflight_fetches == 1


async def test_the_read_ahead_is_bounded(broker: FakeBroker) -> None:
    for partition in range(3):
        for _ in range(60):
            broker.fill("t", partition, [bytes(1000)])
    async with Consumer(
        broker.address,
        "t",
        max_partition_bytes=4000,
        fetch_max_bytes=8000,
        buffer_bytes=20_000,
        fetch_max_wait_ms=5,
    ) as consumer:
        await consumer.getone()
        for _ in range(50):
            before = broker.count(ApiKey.FETCH)
            await asyncio.sleep(0.002)
            assert consumer.health().buffered_bytes <= 20_000
            if broker.count(ApiKey.FETCH) == before:
                break
        await take(consumer, 179)


async def test_a_corrupt_batch_is_an_error_and_the_position_stays(broker: FakeBroker) -> None:
    fill(broker, 30)
    good = broker.logs["one", 0].batches[1]
    broker.logs["one", 0].batches[1] = good[:-1] + bytes([good[-1] ^ 1])
    async with Consumer(broker.address, "one", retry_backoff_ms=1) as consumer:
        assert [r.offset for r in await take(consumer, 10)] == list(range(10))
        for _ in range(2):
            with pytest.raises(CorruptMessage, match="from offset 10 on is corrupt: CRC"):
                await consumer.getone()
            assert await consumer.position(ONE) == 10
        with pytest.raises(CorruptMessage):
            await consumer.getmany()
        with pytest.raises(CorruptMessage):
            await anext(consumer.batches())
        broker.logs["one", 0].batches[1] = good
        assert [r.offset for r in await take(consumer, 20)] == list(range(10, 30))


async def test_batches_return_sound_records_before_the_error(broker: FakeBroker) -> None:
    fill(broker, 30)
    bad = broker.logs["one", 0].batches[2]
    broker.logs["one", 0].batches[2] = bad[:-1] + bytes([bad[-1] ^ 1])
    async with Consumer(broker.address, "one") as consumer:
        batch = await anext(consumer.batches())
        assert (batch.base_offset, batch.next_offset, len(batch)) == (0, 20, 20)
        with pytest.raises(CorruptMessage):
            await anext(consumer.batches())


async def test_an_answer_without_a_whole_batch_is_an_error_and_no_busy_loop(
    broker: FakeBroker,
) -> None:
    fill(broker, 10)

    async def cut_short(request: FetchRequest, default: Any) -> FetchResponse:
        answer: FetchResponse = await default(request)
        return FetchResponse(
            tuple(replace(p, records=bytes(p.records)[:50]) for p in answer.partitions)
        )

    broker.script(ApiKey.FETCH, cut_short)
    async with Consumer(broker.address, "one") as consumer:
        with pytest.raises(CorruptMessage, match="no whole batch of that offset"):
            await consumer.getone()
        broker.script(ApiKey.FETCH, None)
        assert (await consumer.getone()).offset == 0


@pytest.mark.parametrize(("policy", "offset"), [("earliest", 20), ("latest", 40)])
async def test_out_of_range_goes_on_where_the_policy_says(
    broker: FakeBroker, policy: Any, offset: int
) -> None:
    fill(broker, 40)
    broker.logs["one", 0].start = 20
    async with Consumer(broker.address, "one", on_out_of_range=policy) as consumer:
        events = consumer.events()
        consumer.seek(ONE, 5)
        waiting = asyncio.create_task(consumer.getone())
        async for event in events:
            if event.kind is EventKind.OFFSET_RESET:
                assert "offset 5 is out of range, the log holds [20, 40)" in event.sentence
                break
        assert await consumer.position(ONE) == offset
        fill(broker, 1)
        assert (await waiting).offset == offset


async def test_out_of_range_is_an_error_unless_told_otherwise(broker: FakeBroker) -> None:
    fill(broker, 40)
    broker.logs["one", 0].start = 20
    async with Consumer(broker.address, "one", retry_backoff_ms=1) as consumer:
        consumer.seek(ONE, 5)
        with pytest.raises(OffsetOutOfRange, match=r"the log holds \[20, 40\)"):
            await consumer.getone()
        assert await consumer.position(ONE) == 5
        consumer.seek(ONE, 20)
        assert (await consumer.getone()).offset == 20


async def test_cancelling_getone_at_any_point_loses_nothing(broker: FakeBroker) -> None:
    fill(broker, 2000)
    got: list[int] = []
    async with Consumer(broker.address, "one", max_partition_bytes=1000) as consumer:
        steps = 0
        while len(got) < 2000:
            task = asyncio.create_task(consumer.getone())
            for _ in range(steps % 7):
                await asyncio.sleep(0)
            steps += 1
            task.cancel()
            (outcome,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(outcome, Record):
                got.append(outcome.offset)
            else:
                assert isinstance(outcome, asyncio.CancelledError)
                got += [record.offset for record in await consumer.getmany(5)]
    assert got == list(range(2000))


async def test_nothing_is_lost_or_doubled_when_the_broker_dies_and_returns(
    broker: FakeBroker,
) -> None:
    fill(broker, 2000)
    fetched = 0

    def die_now_and_then(request: Message, default: Any) -> Any:
        nonlocal fetched
        fetched += 1
        if fetched % 3 == 0:
            raise HangUp
        return default(request)

    broker.script(ApiKey.FETCH, die_now_and_then)
    async with Consumer(
        broker.address, "one", max_partition_bytes=5000, retry_backoff_ms=1
    ) as consumer:
        got = await take(consumer, 1000)
        await broker.stop()
        await broker.start()
        got += await take(consumer, 1000)
        assert fetched > 5
    assert [record.offset for record in got] == list(range(2000))


async def test_a_partition_that_moves_is_followed(broker: FakeBroker) -> None:
    fill(broker, 100)
    async with FakeBroker({"one": 1}, node_id=1) as other:
        leader = 0
        for each, peer in ((broker, other), (other, broker)):
            each.leader_of = lambda topic, partition: leader
            each.peers = {peer.node_id: (peer.host, peer.port)}
        other.logs = broker.logs
        async with Consumer(
            broker.address,
            "one",
            retry_backoff_ms=1,
            fetch_max_wait_ms=20,
            max_partition_bytes=1000,
        ) as consumer:
            got = await take(consumer, 10)
            leader = 1
            got += await take(consumer, 90)
        assert other.count(ApiKey.FETCH) > 0
    assert [record.offset for record in got] == list(range(100))


async def test_partitions_that_are_added_are_read_from_their_beginning(
    broker: FakeBroker,
) -> None:
    fill(broker, 1)
    async with Consumer(
        broker.address, "one", start="latest", metadata_max_age_ms=20, fetch_max_wait_ms=20
    ) as consumer:
        await consumer.position(ONE)
        broker.topics["one"] = 2
        broker.fill("one", 1, [b"new"])
        record = await consumer.getone()
        assert (record.partition, record.offset) == (1, 0)


async def test_deserializers_are_typed_and_their_failure_names_the_record(
    broker: FakeBroker,
) -> None:
    broker.fill("one", 0, [b"1", b"2", b"x", b"4"], keys=[b"a", None, b"c", b"d"])
    async with Consumer(
        broker.address, "one", key_deserializer=bytes.decode, value_deserializer=int
    ) as consumer:
        assert_type(consumer, Consumer[str, int])
        record = await consumer.getone()
        assert_type(record, Record[str, int])
        assert_type(record.value, int | None)
        assert (record.key, record.value) == ("a", 1)
        assert (await consumer.getone()).key is None
        for _ in range(2):
            with pytest.raises(DeserializationFailed, match="offset 2") as failed:
                await consumer.getone()
            assert failed.value.offset == 2
            assert await consumer.position(ONE) == 2
        consumer.seek(ONE, 3)
        assert (await consumer.getone()).value == 4
    plain = Consumer(broker.address)
    assert_type(plain, Consumer[bytes, bytes])
    assert_type(plain.batches(), AsyncIterator[RecordBatch[bytes, bytes]])


async def test_a_batch_becomes_arrow_columns(broker: FakeBroker) -> None:
    pytest.importorskip("pyarrow")
    fill(broker, 30)
    async with Consumer(broker.address, "one") as consumer:
        await take(consumer, 5)
        batch = await anext(consumer.batches())
        table = batch.to_arrow()
        assert table.column("value").to_pylist() == [b"%d" % i for i in range(5, 30)]
        assert table.column("offset").to_pylist() == list(range(5, 30))


async def test_a_topic_that_is_not_there_is_an_error_at_the_start(broker: FakeBroker) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="nope"):
        await Consumer(broker.address, "nope", retry_backoff_ms=1).start()


async def test_a_topic_that_is_deleted_is_an_error(broker: FakeBroker) -> None:
    async with Consumer(
        broker.address, "one", retry_backoff_ms=1, fetch_max_wait_ms=20
    ) as consumer:
        await consumer.position(ONE)
        del broker.topics["one"]
        with pytest.raises(UnknownTopicOrPartition):
            await consumer.getone()


async def test_a_waiting_call_raises_when_the_consumer_is_closed(broker: FakeBroker) -> None:
    consumer = Consumer(broker.address, "one")
    with pytest.raises(Closed, match="async with"):
        await consumer.getone()
    await consumer.start()
    waiting = asyncio.create_task(consumer.getone())
    await asyncio.sleep(0)
    await consumer.close()
    with pytest.raises(Closed):
        await waiting
    assert consumer.state is State.CLOSED


async def test_a_waiting_call_raises_when_the_task_fails(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Consumer(broker.address, "one", fetch_max_wait_ms=20) as consumer:
        await consumer.position(ONE)

        def broken(*_: object) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(consumer._positions, "plan", broken)
        with pytest.raises(ClientFailed, match="a bug"):
            await consumer.getone()
        assert consumer.health().state is State.FAILED


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"start": "middle"}, "start"),
        ({"start": datetime(2020, 1, 1)}, "time zone"),
        ({"on_out_of_range": "skip"}, "on_out_of_range"),
        ({"fetch_max_wait_ms": 60_000}, "fetch_max_wait_ms"),
        ({"max_partition_bytes": 1 << 30}, "max_partition_bytes"),
        ({"fetch_max_bytes": 1 << 30}, "fetch_max_bytes"),
        ({"auto_offset_reset": "newest"}, "auto_offset_reset"),
        ({"on_overdue": "panic"}, "on_overdue"),
        ({"heartbeat_interval_ms": 60_000}, "heartbeat_interval_ms"),
        ({"drain_timeout_ms": 300_000}, "drain_timeout_ms"),
        ({"group": ""}, "group"),
        ({"group_instance_id": "a"}, "group_instance_id"),
        ({"group": "g", "assignors": []}, "assignors"),
        ({"group": "g", "assignors": ["best"]}, "assignors"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Consumer("localhost", "t", **options)
