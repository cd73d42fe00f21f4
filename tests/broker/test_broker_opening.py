"""A long start: open partitions are served, requests for others get a retriable error."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from millrace import Consumer, Producer
from millrace_protocol.errors import ERROR_TRAITS, ErrorCode
from millrace_server.config import BrokerConfig
from millrace_server.disk.os_disk import OsDisk
from millrace_server.environment.seams import Environment
from millrace_server.machine import LoopSpawn, SystemClock
from millrace_server.metadata.topics import TopicChanges, TopicDefaults
from millrace_server.net.listener import OsNet
from millrace_server.node import Node
from millrace_server.partitions.opening import OPENERS
from millrace_server.testing import Broker
from tests.broker.wire import Wire, batch, connect, open_files, until, values_of

PARTITIONS = OPENERS + 3
NOT_YET = ErrorCode.NOT_LEADER_OR_FOLLOWER


class HeldDisk(OsDisk):
    """A real disk on which some directories cannot be listed, as recovery does, until `let_go`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.held: frozenset[str] = frozenset()
        self.listed: list[str] = []
        self.fault: Exception | None = None
        self._may_go = threading.Event()

    def list_directory(self, path: str) -> list[str]:
        self.listed.append(path)
        if path in self.held:
            assert self._may_go.wait(20)
            if self.fault is not None:
                raise self.fault
        return super().list_directory(path)

    def let_go(self) -> None:
        self._may_go.set()


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """The directory of a stopped broker: topic `t` with a record in each partition."""
    directory = tmp_path / "data"
    async with Broker(data=directory) as broker, connect(broker.port) as wire:
        await wire.create("t", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            await wire.produce("t", batch(b"%d" % partition), partition=partition)
    return directory


@asynccontextmanager
async def node_on(disk: HeldDisk, *, start_wait_ms: int = 0) -> AsyncIterator[Node]:
    """A node that has not been started; stopped at the end if it runs."""
    spawn = LoopSpawn()
    host = Environment(SystemClock(), disk, OsNet(), random.Random(1), spawn)
    config = BrokerConfig(data=str(disk.root), listen="127.0.0.1:0", start_wait_ms=start_wait_ms)
    try:
        yield Node(config, host)
    finally:
        disk.let_go()
        spawn.close()


@asynccontextmanager
async def holding(data: Path, *numbers: int) -> AsyncIterator[tuple[Node, HeldDisk, Wire]]:
    """A running node that still opens these partitions of `t`, and has opened all others."""
    disk = HeldDisk(data)
    disk.held = frozenset(f"t-{number}" for number in numbers)
    async with node_on(disk) as node:
        await node.start()
        try:
            await until(
                lambda: len(node.broker.partitions.of_topic("t")) + len(numbers) == PARTITIONS
            )
            async with connect(node.address[1]) as wire:
                yield node, disk, wire
        finally:
            disk.let_go()
            await node.stop()


async def values_until(consumer: Consumer, wanted: set[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    while not wanted <= found:
        found |= {record.value for record in await consumer.getmany() if record.value is not None}
    return found


def is_open(node: Node, number: int) -> bool:
    return node.broker.partitions.offline("t", number) is None


async def test_a_partition_is_served_while_another_is_still_being_opened(data: Path) -> None:
    async with holding(data, 0) as (node, disk, wire):
        assert values_of(await wire.fetch("t", 0, partition=1)) == [b"1"]
        assert (await wire.produce("t", batch(b"more"), partition=1)).base_offset == 1
        for result in (
            await wire.fetch("t", 0),
            await wire.produce("t", batch(b"x")),
            await wire.offset("t", -1),
        ):
            assert result.error_code == NOT_YET
            assert "t-0 is not open yet" in (result.error_message or "")
        described = (await wire.topic("t")).partitions
        assert [(p.error_code, p.leader_id) for p in described[:2]] == [(NOT_YET, -1), (0, 0)]
        disk.let_go()
        await until(lambda: is_open(node, 0))
        assert values_of(await wire.fetch("t", 0)) == [b"0"]


def test_the_refusal_of_a_partition_that_is_not_open_yet_is_worth_a_retry() -> None:
    assert ERROR_TRAITS[NOT_YET].retriable
    assert ERROR_TRAITS[NOT_YET].refresh_metadata


async def test_clients_wait_for_a_partition_that_is_not_open_yet(data: Path) -> None:
    wanted = {b"%d" % number for number in range(PARTITIONS)} | {b"new", b"other"}
    async with holding(data, 0) as (node, disk, _):
        servers = f"127.0.0.1:{node.address[1]}"
        async with (
            Producer(servers, retry_backoff_ms=1, retry_backoff_max_ms=5) as producer,
            Consumer(servers, "t", retry_backoff_ms=1, retry_backoff_max_ms=5) as consumer,
        ):
            sending = asyncio.ensure_future(producer.send("t", b"new", partition=0))
            await producer.send("t", b"other", partition=1)
            reading = asyncio.ensure_future(values_until(consumer, wanted))
            assert not sending.done()
            assert not reading.done()
            disk.let_go()
            await sending
            assert await reading == wanted


async def test_a_start_waits_for_its_partitions_as_long_as_it_is_told(data: Path) -> None:
    disk = HeldDisk(data)
    disk.held = frozenset({"t-0"})
    async with node_on(disk, start_wait_ms=60_000) as node:
        starting = asyncio.ensure_future(node.start())
        await until(lambda: len(node.broker.partitions.of_topic("t")) == PARTITIONS - 1)
        assert not starting.done()
        disk.let_go()
        await starting
        assert is_open(node, 0)
        await node.stop()


async def test_settings_that_change_while_a_partition_is_opened_are_its_settings(
    data: Path,
) -> None:
    async with holding(data, 0) as (node, disk, wire):
        assert (await wire.alter("t", {"max.message.bytes": "100"})).error_code == 0
        assert (await wire.widen("t", PARTITIONS + 1)).error_code == 0
        disk.let_go()
        await until(lambda: is_open(node, 0))
        for partition in (0, 1, PARTITIONS):
            refused = await wire.produce("t", batch(bytes(200)), partition=partition)
            assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_a_topic_is_not_deleted_from_under_its_recovery(data: Path) -> None:
    async with holding(data, 0) as (node, disk, wire):
        refused = await wire.delete("t")
        assert refused.error_code == NOT_YET
        assert values_of(await wire.fetch("t", 0, partition=1)) == [b"1"]
        disk.let_go()
        await until(lambda: is_open(node, 0))
        assert (await wire.delete("t")).error_code == 0
        assert not (data / "t-0").exists()


async def test_a_topic_that_another_broker_deletes_during_a_start_is_opened_no_more(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = HeldDisk(data)
    disk.held = frozenset(f"t-{number}" for number in range(OPENERS))
    async with node_on(disk) as node:
        await node.start()
        await until(lambda: disk.held <= set(disk.listed))
        rules = TopicChanges(TopicDefaults(1, 1, {}))
        deleting = asyncio.ensure_future(
            node.broker.active.change(lambda image: rules.delete_topic(image, "t"))
        )
        await until(lambda: "t" not in node.broker.cache.image.topics)
        assert not deleting.done()
        disk.let_go()
        await deleting
        await until(lambda: not node.broker.opening._waiting)
        assert {d for d in disk.listed if d.startswith("t-")} == disk.held
        await node.stop()
    assert not [name for name in OsDisk(data).list_directory("") if name.startswith("t-")]
    assert "partition offline" not in caplog.text


async def test_a_broker_stopped_during_its_start_opens_no_more_and_closes_open_partitions(
    data: Path,
) -> None:
    disk = HeldDisk(data)
    disk.held = frozenset(f"t-{number}" for number in range(OPENERS))
    async with node_on(disk) as node:
        await node.start()
        await until(lambda: disk.held <= set(disk.listed))
        stopping = asyncio.ensure_future(node.stop())
        await until(lambda: not node.broker.opening._waiting)
        assert not stopping.done()
        disk.let_go()
        await stopping
        assert {d for d in disk.listed if d.startswith("t-")} == disk.held
    assert not [name for name in open_files() if name.startswith(str(data))]
    async with Broker(data=data) as broker:
        reports = [partition.log.recovery for partition in broker.node.broker.partitions]
        assert len(reports) == PARTITIONS + 1
        assert all(report.is_clean for report in reports)


@pytest.mark.parametrize("start_wait_ms", [0, 60_000])
async def test_a_bug_while_partitions_are_opened_ends_the_broker(
    data: Path, start_wait_ms: int
) -> None:
    disk = HeldDisk(data)
    disk.held = frozenset({"t-0"})
    disk.fault = RuntimeError("a bug")
    async with node_on(disk, start_wait_ms=start_wait_ms) as node:
        starting = asyncio.ensure_future(node.start())
        await until(lambda: len(node.broker.partitions.of_topic("t")) == PARTITIONS - 1)
        if not start_wait_ms:
            await starting
        disk.let_go()
        with pytest.raises(RuntimeError, match="a bug"):
            await (node.run_until(asyncio.Event()) if not start_wait_ms else starting)
        if not start_wait_ms:
            await node.stop()
    assert not [name for name in open_files() if name.startswith(str(data))]
