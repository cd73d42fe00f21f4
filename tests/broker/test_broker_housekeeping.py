"""Retention through the broker: removed and kept segments, and the errors of consumers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.fetch import FetchResponse
from millrace_protocol.records import encode_batch, read_header
from millrace_server.partitions.partition import Partition
from millrace_server.testing import Broker
from tests.broker.wire import Wire, batch, connect, fetch_request, sequenced, until, values_of

SMALL = {"segment.bytes": "1024"}
BY_SIZE = {"retention.bytes": "3000", "retention.ms": "-1"}


async def fill(wire: Wire, configs: Mapping[str, str], *, count: int = 30) -> None:
    """A topic of about a third as many segments as batches."""
    await wire.create("t", configs={**SMALL, **configs})
    for n in range(count):
        await wire.produce("t", batch(b"%03d" % n * 100))


async def tidy(broker: Broker) -> Partition:
    """Two rounds of housekeeping: segments go only after their rolling was made durable."""
    partition = broker.node.broker.partitions.get("t", 0)
    for _ in range(2):
        broker.node.broker.housekeeping.look_after(partition)
        await until(lambda: not partition._flusher._is_running)
    return partition


async def test_by_size_the_oldest_segments_go(broker: Broker, wire: Wire) -> None:
    await fill(wire, BY_SIZE)
    partition = await tidy(broker)
    start = partition.log.start_offset
    assert 0 < start < 30
    assert 3_000 <= partition.log.size_bytes < 3_000 + 1_024
    assert (await wire.offset("t", -2)).offset == start
    below = await wire.fetch("t", start - 1)
    assert below.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (below.log_start_offset, below.high_watermark) == (start, 30)
    assert values_of(await wire.fetch("t", start))[0] == b"%03d" % start * 100
    assert (await wire.produce("t", batch(b"next"))).log_start_offset == start
    files = sorted(path.name for path in (broker.data / "t-0").glob("*.log"))
    assert files[0] == f"{start:020}.log"


async def test_by_time_a_topic_without_writes_is_emptied(broker: Broker, wire: Wire) -> None:
    await fill(wire, {"retention.ms": "60000"})
    partition = await tidy(broker)
    assert partition.log.start_offset == partition.high_watermark == 30
    assert partition.log.size_bytes == 0
    assert (await wire.fetch("t", 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await wire.produce("t", batch(b"next"))).base_offset == 30
    assert values_of(await wire.fetch("t", 30)) == [b"next"]


@pytest.mark.parametrize("configs", [{"retention.ms": "-1"}, {"retention.bytes": "1000000"}])
async def test_a_topic_without_retention_keeps_its_records(
    broker: Broker, wire: Wire, configs: dict[str, str]
) -> None:
    await fill(wire, {"retention.ms": "-1", **configs})
    partition = await tidy(broker)
    assert partition.log.start_offset == 0
    assert partition.log.segment_count > 5


async def test_retention_that_is_changed_takes_effect(broker: Broker, wire: Wire) -> None:
    await fill(wire, {"retention.ms": "-1"})
    assert (await tidy(broker)).log.start_offset == 0
    await wire.alter("t", {"retention.ms": None})
    assert (await tidy(broker)).log.start_offset > 0


async def test_nothing_at_or_above_the_high_watermark_goes(broker: Broker, wire: Wire) -> None:
    await fill(wire, {"retention.ms": "1"}, count=4)
    partition = broker.node.broker.partitions.get("t", 0)
    for n in range(20):
        made = encode_batch([b"%03d" % n * 100], timestamps_ms=1_000)
        partition.log.append(memoryview(made), read_header(made), now_ms=1)
    assert (partition.high_watermark, partition.log.end_offset) == (4, 24)
    removed = partition.log.retention(2**50, high_watermark=partition.high_watermark)
    assert partition.log.start_offset <= partition.high_watermark
    assert all(segment.end_offset <= 4 for segment in removed)


async def test_the_start_of_the_log_survives_a_restart(broker: Broker, wire: Wire) -> None:
    await fill(wire, BY_SIZE)
    start = (await tidy(broker)).log.start_offset
    await broker.restart()
    async with connect(broker.port) as again:
        assert (await again.offset("t", -2)).offset == start
        assert (await again.fetch("t", 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_poll_that_waits_below_the_start_is_told(broker: Broker, wire: Wire) -> None:
    await fill(wire, {"retention.ms": "60000"})
    async with connect(broker.port) as poller:
        # From an older segment the fetch would be answered at once.
        poller.send(fetch_request([("t", 0, 29)], max_wait_ms=60_000, min_bytes=1 << 19))
        partition = broker.node.broker.partitions.get("t", 0)
        await until(lambda: len(partition.watchers) == 1)
        await tidy(broker)
        await wire.produce("t", batch(b"wakes"))
        (result,) = (await poller.answer(FetchResponse)).partitions
        assert result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_housekeeping_comes_by_itself() -> None:
    async with Broker(housekeeping_interval_ms=5) as broker, connect(broker.port) as wire:
        await fill(wire, {"retention.ms": "60000"})
        partition = broker.node.broker.partitions.get("t", 0)
        await until(lambda: partition.log.start_offset > 0)


async def test_one_partitions_trouble_does_not_end_housekeeping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    def run_retention(partition: Partition, now_ms: int) -> int:
        seen.append(partition.topic)
        raise RuntimeError("a bug")

    monkeypatch.setattr(Partition, "run_retention", run_retention)
    async with Broker(housekeeping_interval_ms=5) as broker, connect(broker.port) as wire:
        await wire.create("t")
        await until(lambda: seen.count("t") > 2)
    assert "__cluster_metadata" in seen


async def test_a_producer_that_is_silent_for_long_is_forgotten(broker: Broker, wire: Wire) -> None:
    """W-4.3.5"""
    await wire.create("t")
    producer, epoch = await wire.producer_id()
    await wire.produce("t", sequenced(producer, epoch, 0, b"a"))
    partition = broker.node.broker.partitions.get("t", 0)
    partition.run_retention(2**50)
    unknown = await wire.produce("t", sequenced(producer, epoch, 1, b"b"))
    assert unknown.error_code == ErrorCode.UNKNOWN_PRODUCER_ID
    producer, epoch = await wire.producer_id(producer, epoch)
    assert (await wire.produce("t", sequenced(producer, epoch, 0, b"b"))).base_offset == 1


async def test_the_page_cache_is_synced_in_the_background(broker: Broker, wire: Wire) -> None:
    await wire.create("t", configs={"durability": "os"})
    await wire.produce("t", batch(b"a"))
    partition = broker.node.broker.partitions.get("t", 0)
    assert (partition.high_watermark, partition.log.durable_offset) == (1, 0)
    await tidy(broker)
    assert partition.log.durable_offset == 1
    broker.node.broker.housekeeping.look_after(partition)
    assert not partition._flusher._is_running, "a quiet partition costs no flush"
