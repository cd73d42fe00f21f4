"""Alive and ready: what a broker says of itself while it starts, serves, is cut off, and stops."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from millrace_server.disk.os_disk import OsDisk
from millrace_server.environment.seams import Environment
from millrace_server.log import FlushTicket
from millrace_server.machine import LoopSpawn
from millrace_server.testing import Broker, Cluster
from tests.broker.test_broker_opening import HeldDisk
from tests.broker.wire import batch, connect, until
from tests.free_ports import free_ports
from tests.hang_timeout import HANG_TIMEOUT_S
from tests.monitoring.http_client import Answer, ask, scrape


class HeldBroker(Broker):
    """Serves while some of its partitions are still being opened."""

    disk: HeldDisk

    def _machine(self) -> tuple[LoopSpawn, Environment]:
        spawn, machine = super()._machine()
        self.disk = HeldDisk(self.data)
        self.disk.held = frozenset({"t-1"})
        return spawn, Environment(machine.clock, self.disk, machine.net, machine.rng, spawn)


async def until_status(url: str, status: int) -> Answer:
    """The first answer of /health/ready with a status."""
    async with asyncio.timeout(HANG_TIMEOUT_S):
        while (answer := await ask(url, "/health/ready")).status != status:
            pass
        return answer


async def until_listening(broker: Broker) -> str:
    """Where a broker answers HTTP that is still starting."""
    await until(lambda: not broker.metrics_url.endswith(":0"))
    return broker.metrics_url


async def test_a_broker_that_serves_is_alive_and_ready(broker: Broker) -> None:
    for path in ("/health", "/health/ready"):
        answer = await ask(broker.metrics_url, path)
        assert (answer.status, answer.json) == (200, {"ready": True, "reason": None})
        assert answer.headers["content-type"] == "application/json"
    answer = await ask(broker.metrics_url, "/health/live")
    assert (answer.status, answer.json) == (200, {"live": True})


async def test_a_broker_is_ready_when_all_its_partitions_were_opened(tmp_path: Path) -> None:
    async with Broker(data=tmp_path) as before, connect(before.port) as wire:
        await wire.create("t", partitions=3)
        await wire.produce("t", batch(b"v"))
    held = HeldBroker(data=tmp_path, metrics_listen="0", start_wait_ms=0)
    async with held as broker:
        try:
            answer = await ask(broker.metrics_url, "/health/ready")
            assert (answer.status, answer.json["ready"]) == (503, False)
            assert answer.json["reason"].startswith("Partitions that are not open yet: ")
            assert (await scrape(broker.metrics_url)).value("millrace_ready") == 0
            assert (await ask(broker.metrics_url, "/health/live")).status == 200
        finally:
            held.disk.let_go()
        await until_status(broker.metrics_url, 200)
        assert (await scrape(broker.metrics_url)).value("millrace_ready") == 1


async def test_a_partition_that_cannot_be_opened_does_not_make_the_others_unready(
    tmp_path: Path,
) -> None:
    async with Broker(data=tmp_path) as before, connect(before.port) as wire:
        await wire.create("t", partitions=2)
    OsDisk(tmp_path).remove_directory("t-1")
    async with Broker(data=tmp_path, metrics_listen="0") as broker:
        assert (await ask(broker.metrics_url, "/health/ready")).status == 200
        scraped = await scrape(broker.metrics_url)
        assert scraped.value("millrace_partitions", state="offline") == 1


async def test_a_broker_that_stops_is_alive_and_not_ready(broker: Broker) -> None:
    async with connect(broker.port) as wire:
        # A frame that never ends keeps the broker from ending at once.
        wire.writer.write((1 << 20).to_bytes(4, "big") + bytes(10))
        held = "millrace_request_memory_bytes"
        await until(lambda: broker.statistics().value(held) > 0)
        stopping = asyncio.create_task(broker.stop())
        answer = await until_status(broker.metrics_url, 503)
        assert answer.json == {"ready": False, "reason": "The broker is stopping"}
        assert (await ask(broker.metrics_url, "/health/live")).status == 200
        wire.writer.close()
        await stopping


async def test_a_broker_whose_disk_has_failed_is_not_ready(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: FlushTicket) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async with connect(broker.port) as wire:
        await wire.create("t")
        monkeypatch.setattr(FlushTicket, "sync", fail)
        await wire.produce("t", batch(b"v"))
    answer = await until_status(broker.metrics_url, 503)
    assert answer.json["reason"].startswith("The disk or the metadata cannot be used")


async def test_a_broker_without_a_quorum_is_alive_and_not_ready(tmp_path: Path) -> None:
    async with Broker(data=tmp_path / "other") as other:
        # Nothing there speaks as a voter.
        port = free_ports(2)
        quorum = f"1@127.0.0.1:{port},2@{other.servers}"
        broker = Broker(
            data=tmp_path / "data",
            port=port + 1,
            metrics_listen="0",
            node_id=1,
            quorum=quorum,
        )
        starting = asyncio.create_task(broker.start())
        try:
            url = await until_listening(broker)
            answer = await ask(url, "/health/ready")
            reason = "The broker is not registered with the cluster yet"
            assert (answer.status, answer.json) == (503, {"ready": False, "reason": reason})
            assert (await ask(url, "/health/live")).status == 200
            scraped = await scrape(url)
            assert (
                scraped.value("millrace_ready") == scraped.value("millrace_active_controller") == 0
            )
        finally:
            starting.cancel()
            await asyncio.wait([starting])


async def test_a_broker_that_is_cut_off_is_not_ready_until_it_is_back() -> None:
    async with Cluster(3, metrics_listen="0") as cluster:
        controller = await cluster.controller()
        cut_off = next(each for each in cluster.running if each != controller)
        urls = {each: broker.metrics_url for each, broker in cluster.brokers.items()}
        for url in urls.values():
            await until_status(url, 200)
        scraped = [await scrape(url) for url in urls.values()]
        assert sum(each.value("millrace_active_controller") for each in scraped) == 1
        assert max(each.value("millrace_brokers", state="active") for each in scraped) == 3
        cluster.isolate(cut_off)
        answer = await until_status(urls[cut_off], 503)
        assert "active controller" in answer.json["reason"]
        assert (await ask(urls[controller], "/health/ready")).status == 200
        cluster.heal()
        await until_status(urls[cut_off], 200)


async def test_a_replica_that_is_lost_is_counted_by_its_leader() -> None:
    async with Cluster(3, metrics_listen="0") as cluster:
        leader = cluster.brokers[1]
        async with connect(leader.port) as wire:
            await wire.create("t", partitions=3)
        await cluster.wait_until_in_sync("t")
        names = ("under_replicated", "at_min_isr", "below_min_isr")

        async def faults() -> list[float]:
            scraped = [await scrape(cluster.brokers[each].metrics_url) for each in cluster.running]
            return [
                sum(each.value(f"millrace_{name}_partitions") for each in scraped) for name in names
            ]

        assert await faults() == [0, 0, 0]
        await cluster.kill(3)
        async with asyncio.timeout(HANG_TIMEOUT_S):
            # Each of the topics has three partitions, with a replica on every broker.
            while (await faults())[0] < 3:
                pass


async def test_a_leader_counts_the_changes_that_shrink_and_expand_an_isr() -> None:
    async with Cluster(3, metrics_listen="0") as cluster:
        controller = await cluster.controller()
        leader, follower = (each for each in cluster.running if each != controller)
        async with connect(cluster.brokers[1].port) as wire:
            await wire.create("t", partitions=3)
        await cluster.wait_until_in_sync("t")
        number = [await cluster.leader_of("t", n) for n in range(3)].index(leader)

        async def counted(name: str) -> float:
            scraped = await scrape(cluster.brokers[leader].metrics_url)
            return scraped.value(f"millrace_isr_{name}_total")

        assert await counted("shrinks") == 0
        expands = await counted("expands")
        async with asyncio.timeout(HANG_TIMEOUT_S):
            # The heartbeats of the follower arrive, its fetches do not.
            cluster.partition(leader, follower)
            async with connect(cluster.brokers[leader].port) as wire:
                await wire.produce("t", batch(b"v"), partition=number, acks=1)
            while await counted("shrinks") < 1:
                pass
            cluster.heal()
            while await counted("expands") < expands + 1:
                pass
