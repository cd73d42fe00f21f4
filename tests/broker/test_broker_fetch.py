"""Fetch and ListOffsets: readable records, long polls, offsets (W-4.4, W-4.5)."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from millrace_protocol.metadata_records import (
    ClusterRecord,
    LeaderChangeRecord,
    TopicRecord,
    decode_metadata_record,
)
from millrace_protocol.records import encode_batch, read_header, seal
from millrace_server.testing import Broker
from tests.broker.wire import (
    Wire,
    batch,
    connect,
    fetch_request,
    open_files,
    records_of,
    until,
    values_of,
)
from tests.hang_timeout import HANG_TIMEOUT_S

LONG_MS = 120_000


def waiting_fetches(broker: Broker) -> int:
    """Fetches that wait, counted where they are kept and where they watch."""
    inside = broker.node.broker
    watchers = {id(w._fetch) for partition in inside.partitions for w in partition.watchers}  # type: ignore[attr-defined]
    parked = len(inside._fetch_purgatory)
    assert len(watchers) == parked
    return parked


async def test_several_partitions_come_in_one_answer_in_the_order_asked(wire: Wire) -> None:
    """W-4.4.2"""
    await wire.create("t", partitions=3)
    await wire.create("u")
    await wire.produce_all([("t", 0, batch(b"t0")), ("t", 2, batch(b"t2")), ("u", 0, batch(b"u"))])
    wanted = [("u", 0, 0), ("t", 2, 0), ("t", 1, 0), ("t", 0, 0)]
    response = await wire.ask(fetch_request(wanted), FetchResponse)
    assert [(p.topic, p.partition, values_of(p)) for p in response.partitions] == [
        ("u", 0, [b"u"]),
        ("t", 2, [b"t2"]),
        ("t", 1, []),
        ("t", 0, [b"t0"]),
    ]
    assert [p.high_watermark for p in response.partitions] == [1, 1, 0, 1]


async def test_the_first_batch_may_begin_before_the_offset_asked_for(wire: Wire) -> None:
    """W-4.4.1, W-4.4.3"""
    await wire.create("t")
    for number in range(3):
        await wire.produce("t", batch(*(b"%d" % n for n in range(3 * number, 3 * number + 3))))
    fetched = await wire.fetch("t", 4)
    assert [record[0] for record in records_of(fetched)] == [3, 4, 5, 6, 7, 8]
    assert values_of(fetched, offset=4) == [b"4", b"5", b"6", b"7", b"8"]


async def test_one_batch_is_given_whole_even_above_both_bounds(wire: Wire) -> None:
    """W-4.4.2"""
    await wire.create("t")
    for letter in (b"a", b"b"):
        await wire.produce("t", batch(letter * 5_000))
    for max_bytes, partition_bytes in ((10, 1 << 20), (1 << 20, 10), (1, 1), (1 << 20, 0)):
        request = fetch_request([("t", 0, 0)], max_bytes=max_bytes, partition_bytes=partition_bytes)
        (result,) = (await wire.ask(request, FetchResponse)).partitions
        assert values_of(result) == [b"a" * 5_000]


async def test_a_negative_bound_of_a_partition_gives_one_batch_and_no_error(wire: Wire) -> None:
    await wire.create("t")
    for letter in (b"a", b"b"):
        await wire.produce("t", batch(letter))
    request = fetch_request([("t", 0, 0)], partition_bytes=-(2**31))
    (result,) = (await wire.ask(request, FetchResponse)).partitions
    assert values_of(result) == [b"a"]


async def test_the_bytes_are_shared_in_the_order_of_the_request(wire: Wire) -> None:
    """W-4.4.2"""
    await wire.create("t", partitions=3)
    made = batch(b"x" * 1_000)
    for partition in range(3):
        for _ in range(3):
            await wire.produce("t", made, partition=partition)
    size = len(made)
    wanted = [("t", 2, 0), ("t", 0, 0), ("t", 1, 0)]
    for max_bytes, shares in (
        (3 * size, [3, 0, 0]),
        (3 * size + 1, [3, 1, 0]),
        (5 * size, [3, 2, 0]),
        (9 * size, [3, 3, 3]),
        (0, [0, 0, 0]),
        (-5, [0, 0, 0]),
    ):
        response = await wire.ask(fetch_request(wanted, max_bytes=max_bytes), FetchResponse)
        assert [len(p.records) // size for p in response.partitions] == shares
        assert all(len(p.records) % size == 0 for p in response.partitions)
    one_each = fetch_request(wanted, partition_bytes=size)
    response = await wire.ask(one_each, FetchResponse)
    assert [len(p.records) // size for p in response.partitions] == [1, 1, 1]


async def test_offsets_outside_are_refused_with_the_valid_range(wire: Wire) -> None:
    """W-4.4.5"""
    await wire.create("t")
    await wire.produce("t", batch(b"a", b"b"))
    for offset in (-1, 3, -(2**63), 2**63 - 1):
        outside = await wire.fetch("t", offset)
        assert outside.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (outside.log_start_offset, outside.high_watermark) == (0, 2)
        assert len(outside.records) == 0
        assert "0 to 2" in (outside.error_message or "")
    end = await wire.fetch("t", 2)
    assert (end.error_code, len(end.records), end.high_watermark) == (0, 0, 2)


async def test_leader_epochs_are_compared(wire: Wire) -> None:
    """W-4.4.6"""
    await wire.create("t")
    await wire.produce("t", batch(b"a"))
    assert values_of(await wire.fetch("t", 0, leader_epoch=0)) == [b"a"]
    older = await wire.fetch("t", 0, leader_epoch=-2)
    newer = await wire.fetch("t", 0, leader_epoch=1)
    assert older.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (newer.high_watermark, newer.log_start_offset) == (-1, -1)


async def test_an_error_of_one_partition_leaves_the_others_alone_and_ends_the_wait(
    wire: Wire,
) -> None:
    """W-4.4.4"""
    await wire.create("t")
    await wire.produce("t", batch(b"a"))
    wanted = [("nope", 0, 0), ("t", 7, 0), ("t", 0, 0)]
    request = fetch_request(wanted, max_wait_ms=LONG_MS, min_bytes=1 << 20)
    nope, seven, found = (await wire.ask(request, FetchResponse)).partitions
    assert nope.error_code == seven.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert values_of(found) == [b"a"]


async def test_a_long_poll_ends_with_the_append_that_makes_enough(
    broker: Broker, wire: Wire
) -> None:
    """W-4.4.4"""
    await wire.create("t", partitions=2)
    made = batch(b"x" * 100)
    request = fetch_request(
        [("t", 0, 0), ("t", 1, 0)], max_wait_ms=LONG_MS, min_bytes=3 * len(made)
    )
    sent = wire.send(request)
    await until(lambda: waiting_fetches(broker) == 1)
    async with connect(broker.port) as other:
        await other.produce("t", made)
        await other.produce("t", made, partition=1)
        assert waiting_fetches(broker) == 1
        await other.produce("t", made)
    response = await wire.answer(FetchResponse, sent=sent)
    assert [len(p.records) // len(made) for p in response.partitions] == [2, 1]
    assert waiting_fetches(broker) == 0


async def test_a_long_poll_ends_when_its_time_has_passed(broker: Broker, wire: Wire) -> None:
    """W-4.4.4"""
    await wire.create("t")
    await wire.produce("t", batch(b"a"))
    began = monotonic()
    request = fetch_request([("t", 0, 0)], max_wait_ms=50, min_bytes=1 << 20)
    (result,) = (await wire.ask(request, FetchResponse)).partitions
    # The broker counts whole milliseconds, and the one that has begun is one.
    assert monotonic() - began >= 0.049
    assert values_of(result) == [b"a"], "what there is by then"
    assert waiting_fetches(broker) == 0


async def test_a_fetch_does_not_wait_for_more_than_fits(wire: Wire) -> None:
    await wire.create("t")
    await wire.produce("t", batch(b"x" * 1_000))
    request = fetch_request([("t", 0, 0)], max_wait_ms=LONG_MS, min_bytes=1 << 20, max_bytes=500)
    (result,) = (await wire.ask(request, FetchResponse)).partitions
    assert len(result.records) > 500


async def test_a_fetch_does_not_wait_where_its_read_was_cut(wire: Wire) -> None:
    """W-4.4.4: by its bound, between two batches, or by the end of a segment."""
    await wire.create("t", configs={"segment.bytes": "10000"})
    for _ in range(12):
        await wire.produce("t", batch(b"x" * 1_000))
    for max_bytes in (5_000, 1 << 20):
        request = fetch_request(
            [("t", 0, 0)], max_wait_ms=LONG_MS, min_bytes=max_bytes, max_bytes=max_bytes
        )
        async with asyncio.timeout(HANG_TIMEOUT_S):
            (result,) = (await wire.ask(request, FetchResponse)).partitions
        assert 0 < len(result.records) < max_bytes


@pytest.mark.parametrize(("min_bytes", "max_wait_ms"), [(0, LONG_MS), (1, 0), (-1, -1)])
async def test_a_fetch_with_max_wait_0_does_not_wait(
    wire: Wire, min_bytes: int, max_wait_ms: int
) -> None:
    """W-4.4.4"""
    await wire.create("t")
    request = fetch_request([("t", 0, 0)], max_wait_ms=max_wait_ms, min_bytes=min_bytes)
    (result,) = (await wire.ask(request, FetchResponse)).partitions
    assert (result.error_code, len(result.records)) == (0, 0)


async def test_a_long_poll_on_a_deleted_topic_is_told(broker: Broker, wire: Wire) -> None:
    await wire.create("t")
    sent = wire.send(fetch_request([("t", 0, 0)], max_wait_ms=LONG_MS))
    await until(lambda: waiting_fetches(broker) == 1)
    async with connect(broker.port) as other:
        await other.delete("t")
    (result,) = (await wire.answer(FetchResponse, sent=sent)).partitions
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_stopping_broker_answers_long_polls(broker: Broker, wire: Wire) -> None:
    await wire.create("t")
    sent = [wire.send(fetch_request([("t", 0, 0)], max_wait_ms=LONG_MS)) for _ in range(3)]
    await until(lambda: waiting_fetches(broker) == 3)
    stopping = asyncio.ensure_future(broker.stop())
    for correlation_id in sent:
        (result,) = (await wire.answer(FetchResponse, sent=correlation_id)).partitions
        assert (result.error_code, len(result.records)) == (0, 0)
    assert await wire.closed() == b""
    wire.writer.close()
    await stopping


async def test_a_hang_up_leaves_no_parked_fetch(broker: Broker, wire: Wire) -> None:
    await wire.create("t", partitions=50)
    wanted = [("t", partition, 0) for partition in range(50)]
    for _ in range(10):
        async with connect(broker.port) as poller:
            for _ in range(20):
                poller.send(fetch_request(wanted, max_wait_ms=LONG_MS))
            await until(lambda: waiting_fetches(broker) == 20)
            poller.reset()
        await until(lambda: waiting_fetches(broker) == 0)
    assert (await wire.produce("t", batch(b"a"))).error_code == 0


async def test_a_long_poll_of_many_partitions_is_answered_like_one_of_few(
    broker: Broker, wire: Wire
) -> None:
    """Read and watched in pieces, and woken by an append to the last of them."""
    await wire.create("t", partitions=250)
    wanted = [("t", partition, 0) for partition in range(250)]
    async with connect(broker.port) as poller:
        poller.send(fetch_request(wanted, max_wait_ms=LONG_MS))
        await until(lambda: waiting_fetches(broker) == 1)
        await wire.produce("t", batch(b"a"), partition=249)
        answer = await poller.answer(FetchResponse)
        assert [p.partition for p in answer.partitions] == list(range(250))
        assert [values_of(p) for p in answer.partitions[-2:]] == [[], [b"a"]]
        assert waiting_fetches(broker) == 0
        full = await poller.ask(fetch_request(wanted, max_wait_ms=LONG_MS), FetchResponse)
        assert values_of(full.partitions[249]) == [b"a"]


async def test_a_hang_up_while_many_partitions_are_read_leaves_nothing_behind(
    broker: Broker, wire: Wire
) -> None:
    await wire.create("t", partitions=500)
    wanted = [("t", partition, 0) for partition in range(500)] * 4
    for number in range(10):
        async with connect(broker.port) as poller:
            before = len(broker.node.server.connections)
            for _ in range(3):
                poller.send(fetch_request(wanted, max_wait_ms=LONG_MS))
            if number % 2:
                await until(lambda: waiting_fetches(broker) > 0)
            poller.reset()
            await until(lambda before=before: len(broker.node.server.connections) < before)  # type: ignore[misc]
    await until(lambda: waiting_fetches(broker) == 0)
    assert broker.node.broker.services.fetch._parked_entries == 0


async def test_many_polls_of_one_partition_all_wake(broker: Broker, wire: Wire) -> None:
    await wire.create("t")

    async def poll() -> list[bytes | None]:
        async with connect(broker.port) as poller:
            request = fetch_request([("t", 0, 0)], max_wait_ms=LONG_MS)
            (result,) = (await poller.ask(request, FetchResponse)).partitions
            return values_of(result)

    polls = [asyncio.ensure_future(poll()) for _ in range(100)]
    await until(lambda: waiting_fetches(broker) == 100)
    await wire.produce("t", batch(b"a"))
    assert await asyncio.gather(*polls) == [[b"a"]] * 100


async def test_fetches_leave_no_file_open(broker: Broker, wire: Wire) -> None:
    await wire.create("t", configs={"segment.bytes": "1024"})
    for n in range(40):
        await wire.produce("t", batch(b"%03d" % n * 100))
    before: list[str] = []
    for _ in range(3):
        offset = 0
        while offset < 40:
            result = await wire.fetch("t", offset)
            offset = records_of(result)[-1][0] + 1
        async with connect(broker.port) as quitter:
            for _ in range(20):
                quitter.send(fetch_request([("t", 0, 0)]))
            quitter.reset()
        await until(lambda: len(broker.node.server.connections) == 1)
        before = before or open_files()
    assert open_files() == before
    logs = [name for name in open_files() if str(broker.data) in name and "/t-0/" in name]
    assert len(logs) < 10, "closed segments are not all kept open"


async def test_records_below_the_high_watermark_only(broker: Broker, wire: Wire) -> None:
    """W-4.4.3: with durability fsync no consumer reads what a power cut could take back."""
    await wire.create("t")
    await wire.produce("t", batch(b"a"))
    partition = broker.node.broker.partitions.get("t", 0)
    made = bytearray(encode_batch([b"b"], timestamps_ms=1))
    # Straight into the log, behind the flusher's back: appended and not durable.
    partition.log.append(memoryview(made), read_header(made), now_ms=1)
    assert partition.log.end_offset == 2
    first = await wire.fetch("t", 0)
    assert (values_of(first), first.high_watermark) == ([b"a"], 1)
    between = await wire.fetch("t", 1)
    assert (between.error_code, len(between.records), between.high_watermark) == (0, 0, 1)
    end = await wire.fetch("t", 2)
    assert (end.error_code, len(end.records)) == (0, 0)
    assert (await wire.offset("t", -1)).offset == 1
    assert (await wire.offset("t", -3)).timestamp_ms == 1_000
    await wire.produce("t", batch(b"c"))
    assert values_of(await wire.fetch("t", 0)) == [b"a", b"b", b"c"]


async def test_the_metadata_log_can_be_read_like_any_other(wire: Wire) -> None:
    await wire.create("t")
    values = values_of(await wire.fetch("__cluster_metadata", 0))
    records = [decode_metadata_record(value or b"") for value in values]
    assert isinstance(records[0], LeaderChangeRecord)
    assert any(isinstance(record, ClusterRecord) for record in records)
    assert [r.name for r in records if isinstance(r, TopicRecord)] == ["t"]


async def test_offsets_are_found_by_time(wire: Wire) -> None:
    """W-4.5.1"""
    await wire.create("t")
    stamps = (1_000, 2_000, 3_000)
    await wire.produce("t", bytes(encode_batch([b"v"] * 3, timestamps_ms=stamps)))
    for timestamp_ms in (5_000, 4_000):
        await wire.produce("t", batch(b"v", timestamp_ms=timestamp_ms))
    for asked, offset, found in (
        (0, 0, 1_000),
        (1_000, 0, 1_000),
        (1_001, 1, 2_000),
        (3_000, 2, 3_000),
        (3_001, 3, 5_000),
        (5_000, 3, 5_000),
        (5_001, -1, -1),
        (2**63 - 1, -1, -1),
        (-1, 5, -1),
        (-2, 0, -1),
        (-3, 3, 5_000),
    ):
        result = await wire.offset("t", asked)
        assert (result.error_code, result.offset, result.timestamp_ms) == (0, offset, found)
        assert result.leader_epoch == 0


async def test_a_largest_timestamp_that_no_record_has_does_not_hide_the_records(
    wire: Wire,
) -> None:
    """W-4.5.1: the broker does not check `max_timestamp` against the records."""
    await wire.create("t", configs={"message.timestamp.after.max.ms": str(2**62)})
    await wire.produce("t", batch(b"a", timestamp_ms=1_000))
    claimed = bytearray(encode_batch([b"b", b"c", b"d"], timestamps_ms=(2_000, 3_000, 3_000)))
    claimed[35:43] = (2**62).to_bytes(8, "big")
    seal(claimed)
    await wire.produce("t", bytes(claimed))
    await wire.produce("t", batch(b"e", timestamp_ms=2_500))
    largest = await wire.offset("t", -3)
    assert (largest.error_code, largest.offset, largest.timestamp_ms) == (0, 2, 3_000)
    assert (await wire.offset("t", 2_500)).offset == 2
    assert (await wire.offset("t", 3_001)).offset == -1


@pytest.mark.parametrize("asked", [-4, -5, -(2**63)])
async def test_other_negative_timestamps_are_refused(wire: Wire, asked: int) -> None:
    """W-4.5.1"""
    await wire.create("t")
    result = await wire.offset("t", asked)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert (result.offset, result.timestamp_ms, result.leader_epoch) == (-1, -1, -1)


async def test_an_empty_partition_has_ends_and_no_times(wire: Wire) -> None:
    """W-4.5.1"""
    await wire.create("t")
    found = [(await wire.offset("t", asked)).offset for asked in (-1, -2, -3, 0)]
    assert found == [0, 0, -1, -1]
    nope = await wire.offset("nope", -1)
    assert nope.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_malformed_batch_with_a_right_crc_hurts_its_reader_only(wire: Wire) -> None:
    """W-5: the broker does not decode records, so it may store some that cannot be decoded."""
    await wire.create("t")
    lie = bytearray(batch(b"value"))
    lie[21:23] = b"\x00\x01"
    lie[61:] = b"\xff" * (len(lie) - 61)
    seal(lie)
    assert (await wire.produce("t", bytes(lie))).error_code == 0
    await wire.produce("t", batch(b"good", timestamp_ms=2_000))
    assert (await wire.offset("t", 500)).offset == 0
    assert (await wire.offset("t", 1_500)).offset == 1
    assert values_of(await wire.fetch("t", 1)) == [b"good"]


async def test_a_fetch_names_the_same_partition_twice(wire: Wire) -> None:
    await wire.create("t")
    await wire.produce("t", batch(b"a"))
    await wire.produce("t", batch(b"b"))
    entries = tuple(FetchPartition("t", 0, -1, offset, 1 << 20) for offset in (1, 0))
    response = await wire.ask(FetchRequest(0, 0, 1 << 20, entries), FetchResponse)
    assert [values_of(p) for p in response.partitions] == [[b"b"], [b"a", b"b"]]
