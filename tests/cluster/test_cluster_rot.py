"""Damage on the disk of one broker is repaired with the records of another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millrace import Admin, Consumer, Producer
from millrace.errors import CorruptMessage
from millrace.records import TopicPartition
from millrace_server.partitions.role import Role
from millrace_server.replicas import corruption_repair
from millrace_server.testing import Broker, Cluster
from tests.broker.wire import until
from tests.cluster.records import TOPIC, create_topic, logs, numbers, read_all, replica, send

COUNT = 30
SEGMENTS = {"segment.bytes": "1024", "index.interval.bytes": "200"}


def segments(broker: Broker) -> list[Path]:
    return sorted((Path(broker.config.data) / f"{TOPIC}-0").glob("*.log"))


def damage(path: Path, *positions: int) -> bytes:
    """Flips a bit at each position of a file; returns what was there."""
    before = path.read_bytes()
    content = bytearray(before)
    for position in positions:
        content[position] ^= 1
    with path.open("r+b") as file:
        file.write(content)
        os.fsync(file.fileno())
    return before


async def fill(cluster: Cluster, **configs: str) -> int:
    """Records in several segments of one partition; returns its leader."""
    await create_topic(cluster.servers, configs={**SEGMENTS, **configs})
    await cluster.wait_until_in_sync(TOPIC)
    async with Producer(cluster.servers, linger_ms=0) as producer:
        for number in range(COUNT):
            await send(producer, numbers(number, number + 1))
    await cluster.wait_until_in_sync(TOPIC)
    return await cluster.leader_of(TOPIC, 0)


def repaired(broker: Broker) -> int:
    return broker.node.broker._repair._statistics.repaired_ranges


async def found_by_the_scrub(broker: Broker) -> int:
    return (await broker.node.broker.scrub.pass_over()).corrupt_ranges


@pytest.mark.parametrize("is_leader", [True, False])
async def test_what_the_scrub_finds_is_written_anew(cluster: Cluster, is_leader: bool) -> None:
    leader = await fill(cluster)
    damaged = leader if is_leader else next(each for each in cluster.brokers if each != leader)
    broker = cluster.brokers[damaged]
    # Its high watermark is the leader's by the next fetch.
    await until(lambda: replica(broker).high_watermark == COUNT)
    first, second = segments(broker)[:2]
    before = damage(first, 70, 200), damage(second, 8)
    assert await found_by_the_scrub(broker) >= 2
    await until(lambda: not replica(broker).log.range_repairs.ranges())
    assert (first.read_bytes(), second.read_bytes()) == before
    assert repaired(broker) >= 2
    assert await found_by_the_scrub(broker) == 0
    assert len(logs(cluster)) == 1


async def test_a_consumer_waits_for_the_repair_and_reads_everything(cluster: Cluster) -> None:
    leader = await fill(cluster)
    broker = cluster.brokers[leader]
    await cluster.stop(leader)
    for path in segments(broker)[:3]:
        damage(path, 100)
    await cluster.start(leader)
    await cluster.wait_until_in_sync(TOPIC)
    async with Admin(cluster.servers) as admin:
        await admin.elect_leaders([TopicPartition(TOPIC, 0)])
    await until(lambda: replica(broker).leadership.role is Role.LEADER)
    found = await read_all(cluster.servers)
    assert [value for _, value in found[0]] == numbers(0, COUNT)
    assert repaired(broker) >= 3


async def test_without_another_replica_in_sync_nothing_is_changed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corruption_repair, "REPAIR_RETRY_MS", 20)
    leader = await fill(cluster, **{"min.insync.replicas": "1"})
    broker = cluster.brokers[leader]
    cluster.isolate(leader)
    path = segments(broker)[0]
    before = damage(path, 70)
    damaged = path.read_bytes()
    assert await found_by_the_scrub(broker) == 1
    async with Consumer(cluster.servers.split(",")[leader - 1], TOPIC, start="earliest") as reader:
        with pytest.raises(CorruptMessage, match="cannot be read, and nothing was changed"):
            while True:
                await reader.getmany()
    assert path.read_bytes() == damaged
    cluster.heal()
    await until(lambda: path.read_bytes() == before)


async def test_a_leader_that_can_read_uncommitted_records_again_commits_them(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corruption_repair, "REPAIR_RETRY_MS", 20)
    leader = await fill(cluster, **{"min.insync.replicas": "3"})
    broker = cluster.brokers[leader]
    follower = next(each for each in cluster.brokers if each != leader)
    await cluster.stop(follower)
    async with Producer(cluster.servers, acks=1, idempotent=False, linger_ms=0) as producer:
        for number in range(COUNT, 2 * COUNT):
            await send(producer, numbers(number, number + 1))
    path = next(each for each in segments(broker) if int(each.stem) > COUNT)
    before = damage(path, 70)
    assert await found_by_the_scrub(broker) == 1
    await cluster.start(follower)
    repairs = replica(broker).log.range_repairs
    # The follower goes as far as the corrupt range.
    (found,) = repairs.ranges()
    await until(lambda: replica(cluster.brokers[follower]).end_offset == found.offset)
    assert repairs.ranges() == [found]
    path.write_bytes(before)
    await cluster.wait_until_in_sync(TOPIC)
    await until(lambda: replica(broker).high_watermark == 2 * COUNT)
    assert repairs.ranges() == []
    assert len(logs(cluster)) == 1
