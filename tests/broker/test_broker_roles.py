"""A replica that leads serves clients; one that follows refuses them and copies its leader."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.records import assign
from millrace_server.api_error import ApiError
from millrace_server.partitions.following import append_fetched, begin_anew, truncate_to
from millrace_server.partitions.role import Leadership, Role
from millrace_server.testing import Broker
from tests.broker.failing_disk import Faults, node_on
from tests.broker.wire import batch, connect, until, values_of


async def test_a_follower_refuses_clients_and_serves_again_once_it_leads(tmp_path: Path) -> None:
    async with Broker(data=tmp_path) as broker, connect(broker.port) as wire:
        await wire.create("t")
        await wire.produce("t", batch(b"a"))
        partition = broker.node.broker.partitions.get("t", 0)
        assert partition.leadership == Leadership(Role.LEADER, 0)
        await partition.become_follower(1, leader_id=7)
        for result in (
            await wire.produce("t", batch(b"x")),
            await wire.fetch("t", 0),
            await wire.offset("t", -1),
        ):
            assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert "Broker 7 leads partition t-0 in epoch 1" in (result.error_message or "")
        await partition.become_leader(2)
        assert partition.log.durable_epoch == 2
        assert (await wire.produce("t", batch(b"b"))).base_offset == 1
        assert values_of(await wire.fetch("t", 0)) == [b"a", b"b"]
        stale = await wire.fetch("t", 0, leader_epoch=1)
        assert stale.error_code == ErrorCode.FENCED_LEADER_EPOCH
    async with Broker(data=tmp_path) as broker:
        partition = broker.node.broker.partitions.get("t", 0)
        assert partition.log.end_offset_for_epoch(1) == (0, 1)
        assert partition.log.end_offset_for_epoch(2) == (2, 2)


async def test_an_append_that_waits_for_the_disk_is_refused_when_another_broker_leads(
    tmp_path: Path,
) -> None:
    faults = Faults()
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        partition = node.broker.partitions.get("t", 0)
        faults.may_sync.clear()
        producing = asyncio.ensure_future(wire.produce("t", batch(b"a")))
        await until(lambda: partition.log.end_offset == 1)
        following = asyncio.ensure_future(partition.become_follower(1, leader_id=7))
        refused = await producing
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not following.done()
        faults.may_sync.set()
        await following


async def test_a_leader_of_another_epoch_takes_no_records_before_the_epoch_is_durable(
    tmp_path: Path,
) -> None:
    """They would be of an epoch that no reader has been told of."""
    faults = Faults()
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        assert (await wire.produce("t", batch(b"a"))).base_offset == 0
        partition = node.broker.partitions.get("t", 0)
        faults.may_sync.clear()
        leading = asyncio.ensure_future(partition.become_leader(1))
        await until(lambda: partition.log.leader_epoch == 1)
        refused = await wire.produce("t", batch(b"b"))
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert values_of(await wire.fetch("t", 0)) == [b"a"]
        faults.may_sync.set()
        await leading
        assert (await wire.produce("t", batch(b"b"))).base_offset == 1
        assert partition.log.end_offset_for_epoch(0) == (0, 1)


async def test_a_follower_copies_and_truncates_and_its_high_watermark_stays(
    tmp_path: Path,
) -> None:
    async with Broker(data=tmp_path) as broker, connect(broker.port) as wire:
        await wire.create("t")
        await wire.produce("t", batch(b"a"))
        partition = broker.node.broker.partitions.get("t", 0)
        await partition.become_follower(3, leader_id=7)
        for offset in (1, 2):
            copied = bytearray(batch(b"copied"))
            assign(copied, base_offset=offset, leader_epoch=2)
            assert append_fetched(partition, memoryview(copied), now_ms=1) == offset + 1
        await until(lambda: partition.log.durable_offset == 3)
        assert partition.high_watermark == 1
        assert await truncate_to(partition, 1, now_ms=1) == 1
        with pytest.raises(Exception, match="outside the log"):
            await truncate_to(partition, 0, now_ms=1)
        await partition.become_leader(4)
        with pytest.raises(ValueError, match="led here"):
            await truncate_to(partition, 1, now_ms=1)
        assert values_of(await wire.fetch("t", 0)) == [b"a"]
        assert (await wire.produce("t", batch(b"b"))).base_offset == 1


async def test_a_follower_takes_records_of_an_epoch_before_one_that_it_began_without_any(
    tmp_path: Path,
) -> None:
    copied = bytearray(batch(b"copied"))
    assign(copied, base_offset=1, leader_epoch=2)
    async with Broker(data=tmp_path) as broker, connect(broker.port) as wire:
        await wire.create("t")
        await wire.produce("t", batch(b"a"))
        partition = broker.node.broker.partitions.get("t", 0)
        await partition.become_leader(5)
        await partition.become_follower(6, leader_id=7)
        assert (partition.log.leader_epoch, partition.log.durable_epoch) == (0, 0)
        assert append_fetched(partition, memoryview(copied), now_ms=1) == 2
    async with Broker(data=tmp_path) as broker:
        partition = broker.node.broker.partitions.get("t", 0)
        assert partition.log.end_offset_for_epoch(5) == (2, 2)


@pytest.mark.parametrize("begin", [1, 2, 3, 9])
async def test_a_follower_begins_anew_where_its_leader_begins(tmp_path: Path, begin: int) -> None:
    copied = bytearray(batch(b"copied"))
    assign(copied, base_offset=begin, leader_epoch=2)
    async with Broker(data=tmp_path) as broker, connect(broker.port) as wire:
        await wire.create("t")
        await wire.produce("t", batch(b"committed"))
        partition = broker.node.broker.partitions.get("t", 0)
        await partition.become_follower(6, leader_id=7)
        for offset in (1, 2):
            stray = bytearray(batch(b"of a leader that committed nothing"))
            assign(stray, base_offset=offset, leader_epoch=5)
            append_fetched(partition, memoryview(stray), now_ms=1)
        await begin_anew(partition, begin)
        log = partition.log
        assert (log.start_offset, log.end_offset, log.leader_epoch) == (begin, begin, 0)
        assert partition.high_watermark == begin
        assert append_fetched(partition, memoryview(copied), now_ms=1) == begin + 1
    async with Broker(data=tmp_path) as broker:
        log = broker.node.broker.partitions.get("t", 0).log
        assert (log.start_offset, log.end_offset) == (begin, begin + 1)
        assert log.end_offset_for_epoch(9) == (2, begin + 1)


async def test_a_leadership_never_goes_back_to_an_older_epoch(tmp_path: Path) -> None:
    async with Broker(data=tmp_path) as broker, connect(broker.port) as wire:
        await wire.create("t")
        partition = broker.node.broker.partitions.get("t", 0)
        await partition.become_leader(5)
        with pytest.raises(ValueError, match="older"):
            await partition.become_leader(4)
        with pytest.raises(ValueError, match="older"):
            await partition.become_follower(4, leader_id=7)
        partition.check_leader()


async def test_a_leader_does_not_serve_before_its_epoch_is_on_the_disk(tmp_path: Path) -> None:
    faults = Faults()
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        partition = node.broker.partitions.get("t", 0)
        await partition.become_follower(1, leader_id=7)
        faults.may_sync.clear()
        leading = asyncio.ensure_future(partition.become_leader(2))
        await until(lambda: partition.log.leader_epoch == 2)
        with pytest.raises(ApiError, match="NOT_LEADER"):
            partition.check_leader()
        assert (await wire.produce("t", batch(b"x"))).error_code
        faults.may_sync.set()
        await leading
        assert (await wire.produce("t", batch(b"a"))).base_offset == 0
