"""A disk that is full, and a disk that fails (W-7.1 DISK_FULL, KAFKA_STORAGE_ERROR)."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from millrace_protocol.errors import ERROR_TRAITS, ErrorCode
from millrace_protocol.messages.produce import ProducePartition, ProduceRequest, ProduceResponse
from millrace_protocol.messages.producer_id import InitProducerIdRequest
from millrace_server.disk.lock import DataDirectoryLocked
from millrace_server.testing import Broker
from tests.broker.failing_disk import Faults, node_on
from tests.broker.wire import batch, connect, open_files, until, values_of


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def partitions_of(topic: str, data: Path) -> list[str]:
    return sorted(path.name for path in data.glob(f"{topic}-*"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_on_a_full_disk_appends_are_refused_and_reads_go_on(
    data: Path, faults: Faults, number: int
) -> None:
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t", partitions=2)
        await wire.produce("t", batch(b"before"))
        faults.errnos["write"] = number
        for _ in range(3):
            refused = await wire.produce("t", batch(b"lost"))
            assert refused.error_code == ErrorCode.DISK_FULL
            assert ERROR_TRAITS[ErrorCode.DISK_FULL].retriable
        assert values_of(await wire.fetch("t", 0)) == [b"before"]
        assert (await wire.offset("t", -1)).offset == 1
        del faults.errnos["write"]
        assert (await wire.produce("t", batch(b"after"))).base_offset == 1
        assert values_of(await wire.fetch("t", 0)) == [b"before", b"after"]
        assert not node.broker.failed.done()


async def test_a_full_disk_is_logged_once_however_often_it_refuses(
    data: Path, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        faults.errnos["write"] = errno.ENOSPC
        for _ in range(3):
            assert (await wire.produce("t", batch(b"lost"))).error_code == ErrorCode.DISK_FULL
        (line,) = [r for r in caplog.records if "disk full" in r.getMessage()]
        assert (line.name, line.levelname) == ("millrace.broker", "ERROR")
        assert "topic=t" in line.getMessage()


async def test_space_that_cannot_be_reserved_ahead_costs_no_ack(data: Path, faults: Faults) -> None:
    faults.errnos["preallocate"] = errno.ENOSPC
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        for n in range(5):
            assert (await wire.produce("t", batch(b"x" * 100_000))).base_offset == n
        await until(lambda: faults.met > 0)
        assert (await wire.produce("t", batch(b"y"))).base_offset == 5
        assert not node.broker.failed.done()


@pytest.mark.parametrize("where", ["/t-1/", "__cluster_metadata"])
async def test_a_topic_that_finds_no_space_is_not_there_at_all(
    data: Path, faults: Faults, where: str
) -> None:
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        await wire.create("other")
        before = open_files()
        faults.errnos["write"], faults.where = errno.ENOSPC, where
        created = await wire.create("t", partitions=3)
        assert created.error_code == ErrorCode.DISK_FULL
        assert await wire.topics() == ["other"]
        assert partitions_of("t", data) == []
        assert open_files() == before
        faults.errnos.clear()
        assert (await wire.create("t", partitions=3)).error_code == 0
        assert (await wire.produce("t", batch(b"v"), partition=2)).base_offset == 0


async def test_other_changes_without_space_change_nothing(data: Path, faults: Faults) -> None:
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        faults.errnos["write"], faults.where = errno.ENOSPC, "__cluster_metadata"
        full = ErrorCode.DISK_FULL
        assert (await wire.widen("t", 3)).error_code == full
        assert (await wire.alter("t", {"segment.ms": "9"})).error_code == full
        assert (await wire.delete("t")).error_code == full
        assert len((await wire.topic("t")).partitions) == 1
        assert not (data / "t-1").exists()
        assert (await wire.configs("t"))["segment.ms"][1]
        assert (await wire.produce("t", batch(b"v"))).error_code == 0
        faults.errnos.clear()
        assert (await wire.delete("t")).error_code == 0


async def test_a_producer_id_without_space_is_refused_not_invented(
    data: Path, faults: Faults
) -> None:
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        faults.errnos["write"] = errno.ENOSPC
        code, _ = await wire.refused(InitProducerIdRequest(-1, -1))
        assert code is ErrorCode.DISK_FULL
        faults.errnos.clear()
        assert (await wire.producer_id())[1] == 0


async def test_a_broker_stops_on_a_full_disk_and_loses_nothing(data: Path, faults: Faults) -> None:
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        for n in range(10):
            await wire.produce("t", batch(b"%d" % n))
        faults.errnos["write"] = errno.ENOSPC
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        assert values_of(await wire.fetch("t", 0)) == [b"%d" % n for n in range(10)]


async def test_after_a_failed_sync_nothing_is_acked_and_the_broker_has_failed(
    data: Path, faults: Faults
) -> None:
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        await wire.produce("t", batch(b"durable"))
        faults.errnos["sync"], faults.where = errno.EIO, "/t-0/"
        lost = await wire.produce("t", batch(b"lost"))
        assert (lost.error_code, lost.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert lost.log_start_offset == -1
        with pytest.raises(OSError, match="sync"):
            await node.run_until(asyncio.Event())
        # The next sync would succeed, and be a lie.
        faults.errnos.clear()
        refused = await wire.produce("t", batch(b"never"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        fetched = await wire.fetch("t", 0)
        assert (values_of(fetched), fetched.high_watermark) == ([b"durable"], 1)


async def test_a_failed_write_fails_the_requests_that_wait_for_the_disk(
    data: Path, faults: Faults
) -> None:
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        await wire.create("t")
        faults.may_sync.clear()
        entry = ProducePartition("t", 0, batch(b"waits"))
        waits = [wire.send(ProduceRequest(-1, 60_000, (entry,))) for _ in range(2)]
        partition = node.broker.partitions.get("t", 0)
        await until(lambda: partition.log.end_offset == 2)
        faults.errnos["write"] = errno.EIO
        async with connect(node.address[1]) as other:
            refused = await other.produce("t", batch(b"refused"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for correlation_id in waits:
            response = await wire.answer(ProduceResponse, sent=correlation_id)
            assert response.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert node.broker.failed.done()
        with pytest.raises(OSError, match="write"):
            await node.run_until(asyncio.Event())
        faults.may_sync.set()


async def test_a_failed_sync_of_the_metadata_is_no_success(data: Path, faults: Faults) -> None:
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        faults.errnos["sync"], faults.where = errno.EIO, "__cluster_metadata"
        created = await wire.create("t")
        assert created.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert node.broker.failed.done()
        assert await wire.topics() == []
        faults.errnos.clear()
        assert (await wire.create("u")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        # Whether the record came to the disk is for the disk to say; both are whole states.
        if await wire.topics() == ["t"]:
            assert (await wire.produce("t", batch(b"v"))).base_offset == 0
        else:
            assert (await wire.create("t")).error_code == 0


async def test_a_change_whose_record_cannot_be_read_back_is_a_failed_disk(
    data: Path, faults: Faults
) -> None:
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        faults.errnos["read"], faults.where = errno.EIO, "__cluster_metadata"
        created = await wire.create("t")
        assert created.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert node.broker.failed.done()
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        # The change was committed.
        assert await wire.topics() == ["t"]


async def test_a_start_that_cannot_write_leaves_nothing_open(data: Path, faults: Faults) -> None:
    before = open_files()
    faults.errnos["write"] = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        async with node_on(data, faults):
            raise AssertionError("it started")
    left = [name for name in open_files() if str(data) in name]
    assert not left, (left, before)
    faults.errnos.clear()
    async with node_on(data, faults) as node, connect(node.address[1]) as wire:
        assert await wire.topics() == []


async def test_two_brokers_do_not_share_a_directory(data: Path) -> None:
    async with Broker(data=data) as broker:
        with pytest.raises(DataDirectoryLocked):
            await Broker(data=data).start()
        async with connect(broker.port) as wire:
            assert (await wire.create("t")).error_code == 0
    async with Broker(data=data) as broker, connect(broker.port) as wire:
        assert await wire.topics() == ["t"]
