"""DeleteRecords and DescribeLogDirs over the wire (W-4.27, W-4.28), and settings of a broker."""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from millrace_protocol.messages.delete_records import (
    HIGH_WATERMARK,
    DeletedRecords,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from millrace_protocol.messages.group_membership import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millrace_protocol.messages.log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDir,
)
from millrace_server.api_error import ApiError
from millrace_server.broker_settings import BrokerSetting, broker_settings
from millrace_server.config import BrokerConfig
from millrace_server.testing import Broker
from tests.broker.failing_disk import Faults, node_on
from tests.broker.wire import Wire, batch, connect, until, values_of

MADE = batch(b"x" * 400)
SMALL_SEGMENTS = {"segment.bytes": "1024", "retention.ms": "-1"}


async def delete(wire: Wire, *asked: tuple[str, int, int]) -> tuple[DeletedRecords, ...]:
    request = DeleteRecordsRequest(tuple(DeleteRecordsPartition(*each) for each in asked))
    return (await wire.ask(request, DeleteRecordsResponse)).partitions


async def described(wire: Wire, topics: tuple[str, ...] | None = None) -> LogDir:
    answer = await wire.ask(DescribeLogDirsRequest(topics), DescribeLogDirsResponse)
    (directory,) = answer.log_dirs
    return directory


def results(found: tuple[DeletedRecords, ...]) -> list[tuple[int, int]]:
    return [(each.error_code, each.low_watermark) for each in found]


async def test_deleted_records_are_out_of_range_and_stay_so_after_a_kill(
    wire: Wire, broker: Broker, tmp_path: Path
) -> None:
    """W-4.27.1"""
    await wire.create("t")
    for number in range(6):
        await wire.produce("t", batch(b"%d" % number))
    assert results(await delete(wire, ("t", 0, 4))) == [(0, 4)]
    # What the files are right after the answer is what a kill leaves.
    left = tmp_path / "left"
    await asyncio.to_thread(shutil.copytree, broker.node.broker.env.disk.path, left)
    async with Broker(data=left) as other, connect(other.port) as after:
        for each in (wire, after):
            refused = await each.fetch("t", 3)
            assert (refused.error_code, refused.log_start_offset) == (1, 4)
            assert values_of(await each.fetch("t", 4), offset=4) == [b"4", b"5"]
            assert (await each.offset("t", -2)).offset == 4
        assert (await after.produce("t", batch(b"next"))).base_offset == 6


async def test_the_answer_waits_until_the_new_start_is_durable(tmp_path: Path) -> None:
    """W-4.27.1"""
    faults = Faults()
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        await wire.produce("t", batch(b"a", b"b"))
        partition = node.broker.partitions.get("t", 0)
        faults.may_sync.clear()
        sent = wire.send(DeleteRecordsRequest((DeleteRecordsPartition("t", 0, 2),)))
        await until(lambda: partition.start_offset == 2)
        assert partition.log.durable_start_offset == 0
        async with connect(node.address[1]) as other:
            assert (await other.fetch("t", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        faults.may_sync.set()
        answer = await wire.answer(DeleteRecordsResponse, sent=sent)
        assert results(answer.partitions) == [(0, 2)]
        assert partition.log.durable_start_offset == 2


async def test_minus_one_deletes_all_that_can_be_read(wire: Wire) -> None:
    await wire.create("t", partitions=2)
    await wire.produce("t", batch(b"a", b"b"))
    assert results(await delete(wire, ("t", 0, HIGH_WATERMARK), ("t", 1, HIGH_WATERMARK))) == [
        (0, 2),
        (0, 0),
    ]
    assert values_of(await wire.fetch("t", 2)) == []
    assert (await wire.produce("t", batch(b"c"))).base_offset == 2


async def test_an_offset_before_the_start_changes_nothing(wire: Wire) -> None:
    await wire.create("t")
    await wire.produce("t", batch(b"a", b"b", b"c"))
    assert results(await delete(wire, ("t", 0, 2))) == [(0, 2)]
    for offset in (0, 1, 2):
        assert results(await delete(wire, ("t", 0, offset))) == [(0, 2)]


async def test_what_cannot_be_deleted_is_refused_and_nothing_changes(wire: Wire) -> None:
    """W-4.27.2: each partition for itself."""
    await wire.create("t")
    await wire.create("compacted", configs={"cleanup.policy": "compact"})
    await wire.create("both", configs={"cleanup.policy": "compact,delete"})
    await wire.ask(FindCoordinatorRequest(("g",)), FindCoordinatorResponse)
    made = batch(b"v", keys=[b"k"])  # type: ignore[arg-type]
    for topic in ("t", "compacted", "both"):
        await wire.produce(topic, made)
    asked = [
        ("t", 0, 2),
        ("t", 0 + 1, 0),
        ("none", 0, 0),
        ("compacted", 0, 1),
        ("__consumer_offsets", 0, 0),
        ("__cluster_metadata", 0, 0),
        ("both", 0, 1),
    ]
    assert results(await delete(wire, *asked)) == [
        (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (ErrorCode.POLICY_VIOLATION, -1),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
        (0, 1),
    ]
    (below,) = await delete(wire, ("t", 0, -2))
    assert below.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert "reaches from 0 to 1" in (below.error_message or "")
    assert (await wire.offset("t", -2)).offset == 0
    (policy,) = await delete(wire, ("compacted", 0, 1))
    assert "set cleanup.policy to compact,delete" in (policy.error_message or "")


async def test_the_files_of_deleted_records_are_removed(wire: Wire, broker: Broker) -> None:
    await wire.create("t", configs=SMALL_SEGMENTS)
    for _ in range(10):
        await wire.produce("t", MADE)
    log = broker.node.broker.partitions.get("t", 0).log
    before = log.segment_count
    assert before >= 5
    await delete(wire, ("t", 0, 7))
    broker.node.broker.housekeeping.look_after(broker.node.broker.partitions.get("t", 0))
    assert log.segment_count < before - 2
    (size,) = (await described(wire, ("t",))).partitions
    assert 3 * len(MADE) <= size.size_bytes <= 4 * len(MADE)


async def test_on_a_full_disk_the_answer_says_that_records_may_come_back(tmp_path: Path) -> None:
    """W-4.27.2"""
    faults = Faults()
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        await wire.produce("t", batch(b"a", b"b"))
        faults.errnos["write"], faults.where = errno.ENOSPC, "checkpoint"
        (full,) = await delete(wire, ("t", 0, 1))
        assert (full.error_code, full.low_watermark) == (ErrorCode.DISK_FULL, -1)
        assert "may bring them back" in (full.error_message or "")
        assert (await wire.fetch("t", 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        faults.errnos.clear()
        assert results(await delete(wire, ("t", 0, 1))) == [(0, 1)]


async def test_a_disk_that_fails_is_the_answer_of_every_deletion(tmp_path: Path) -> None:
    faults = Faults()
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        await wire.produce("t", batch(b"a", b"b"))
        faults.errnos["write"], faults.where = errno.EIO, "checkpoint"
        assert results(await delete(wire, ("t", 0, 1))) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
        await until(node.broker.failed.done)


async def test_a_deletion_of_a_topic_that_is_being_deleted_is_answered(tmp_path: Path) -> None:
    faults = Faults()
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        await wire.produce("t", batch(b"a"))
        partition = node.broker.partitions.get("t", 0)
        faults.may_sync.clear()
        sent = wire.send(DeleteRecordsRequest((DeleteRecordsPartition("t", 0, 1),)))
        await until(lambda: partition.start_offset == 1)
        async with connect(node.address[1]) as other:
            deleted = asyncio.ensure_future(other.delete("t"))
            faults.may_sync.set()
            assert (await deleted).error_code == 0
        (result,) = (await wire.answer(DeleteRecordsResponse, sent=sent)).partitions
        assert result.error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_sizes_are_those_of_the_batches(wire: Wire, broker: Broker) -> None:
    """W-4.28.1"""
    await wire.create("t", partitions=2)
    await wire.create("other")
    await wire.produce_all([("t", 1, MADE)])
    await wire.produce_all([("t", 1, MADE)])
    directory = await described(wire, ("t", "none"))
    assert directory.path == broker.node.broker.env.disk.path
    assert 0 < directory.usable_bytes <= directory.total_bytes
    found = [(p.topic, p.partition, p.size_bytes, p.offset_lag) for p in directory.partitions]
    assert found == [("t", 0, 0, 0), ("t", 1, 2 * len(MADE), 0)]
    names = {partition.topic for partition in (await described(wire)).partitions}
    assert names == {"__cluster_metadata", "other", "t"}
    assert (await described(wire, ())).partitions == ()


async def test_a_partition_that_is_offline_says_why(wire: Wire, broker: Broker) -> None:
    await wire.create("t")
    offline = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk refused")
    partitions = broker.node.broker.partitions
    partition = partitions.get("t", 0)
    partitions.set_offline("t", 0, offline)
    (found,) = (await described(wire, ("t",))).partitions
    # The broker closes the files of the partitions that it knows.
    partitions.add(partition)
    assert (found.error_code, found.error_message) == (offline.code, "The disk refused")
    assert (found.size_bytes, found.offset_lag) == (-1, -1)


async def test_the_settings_of_a_broker_are_described_with_their_source(tmp_path: Path) -> None:
    """W-4.10.1"""
    topic = {"retention.ms": "5000"}
    running = Broker(data=tmp_path, partitions=3, topic=topic)
    async with running, connect(running.port) as wire:
        request = DescribeConfigsRequest((), (-1, 7))
        ours, other = (await wire.ask(request, DescribeConfigsResponse)).brokers
        await wire.create("t", configs={"segment.bytes": "2048"})
        asked = DescribeConfigsRequest(("t",), ())
        (of_topic,) = (await wire.ask(asked, DescribeConfigsResponse)).topics
    assert (ours.node_id, ours.error_code) == (0, 0)
    assert (other.node_id, other.error_code) == (7, ErrorCode.INVALID_REQUEST)
    assert "ask that one" in (other.error_message or "")
    found = {entry.name: entry for entry in ours.configs}
    assert all(entry.is_read_only and entry.doc for entry in ours.configs)
    assert (found["partitions"].value, found["partitions"].source) == ("3", "argument")
    assert (found["node_id"].value, found["node_id"].source) == ("0", "default")
    assert found["text_dialect"].value == "true"
    assert found["limits.connections_max"].is_default
    assert (found["topic.retention.ms"].value, found["topic.retention.ms"].source) == (
        "5000",
        "argument",
    )
    sources = {entry.name: entry.source for entry in of_topic.configs}
    assert (sources["segment.bytes"], sources["retention.ms"]) == ("topic", "broker")
    assert sources["durability"] == "default"


@pytest.mark.parametrize("setting", [*broker_settings(BrokerConfig())], ids=lambda each: each.name)
def test_every_setting_has_a_meaning(setting: BrokerSetting) -> None:
    assert len(setting.doc) > 10
    assert setting.source == "default"
