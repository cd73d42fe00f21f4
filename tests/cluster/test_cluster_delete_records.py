"""DeleteRecords in a cluster: no replica in sync has what was deleted (W-4.27)."""

from __future__ import annotations

import pytest

from millrace import Admin, Consumer, Producer
from millrace.errors import BrokerTimedOut
from millrace.records import TopicPartition
from millrace_protocol.messages.leader_epochs import (
    EpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from millrace_server.services import delete_records
from millrace_server.testing import Cluster
from tests.broker.wire import connect, until
from tests.cluster.records import TOPIC, create_topic, numbers, read_all, replica, send

WHERE = TopicPartition(TOPIC, 0)


async def filled(cluster: Cluster) -> None:
    """A topic with one partition of a hundred records, in sync everywhere."""
    await create_topic(cluster.servers)
    async with Producer(cluster.servers) as producer:
        await send(producer, numbers(0, 100))
    await cluster.wait_until_in_sync(TOPIC)


def durable_starts(cluster: Cluster) -> dict[int, int]:
    running = {each: cluster.brokers[each] for each in cluster.running}
    return {each: replica(broker).log.durable_start_offset for each, broker in running.items()}


async def test_deleted_records_are_deleted_on_every_replica_in_sync(cluster: Cluster) -> None:
    """W-4.27.1"""
    await filled(cluster)
    async with Admin(cluster.servers) as admin:
        outcome = (await admin.delete_records({WHERE: 60}))[WHERE]
        assert durable_starts(cluster) == {1: 60, 2: 60, 3: 60}
        assert outcome.unwrap() == 60
    await cluster.kill(await cluster.leader_of(TOPIC, 0))
    records = (await read_all(cluster.servers))[0]
    assert [offset for offset, _ in records] == list(range(60, 100))


async def test_a_deletion_does_not_wait_for_a_broker_that_is_fenced(cluster: Cluster) -> None:
    """W-4.27.1"""
    await filled(cluster)
    leader = await cluster.leader_of(TOPIC, 0)
    away = next(each for each in cluster.brokers if each != leader)
    await cluster.kill(away)
    async with Admin(cluster.servers) as admin:
        outcome = (await admin.delete_records({WHERE: 60}))[WHERE]
    assert outcome.unwrap() == 60
    assert set(durable_starts(cluster).values()) == {60}
    await cluster.start(away)
    await until(lambda: durable_starts(cluster)[away] == 60)


async def test_an_epoch_whose_records_are_deleted_ends_where_the_log_begins(
    cluster: Cluster,
) -> None:
    """W-4.37.1: a reader that has read them all has read what the leader has."""
    await filled(cluster)
    await cluster.restart(await cluster.leader_of(TOPIC, 0))
    await cluster.wait_until_in_sync(TOPIC)
    async with Admin(cluster.servers) as admin:
        assert (await admin.delete_records({WHERE: 100}))[WHERE].unwrap() == 100
    leader = cluster.brokers[await cluster.leader_of(TOPIC, 0)]
    assert replica(leader).log.end_offset_for_epoch(0) is None
    request = OffsetForLeaderEpochRequest((EpochPartition(*WHERE, -1, 0),))
    async with connect(leader.port) as wire:
        (end,) = (await wire.ask(request, OffsetForLeaderEpochResponse)).partitions
    assert (end.error_code, end.leader_epoch, end.end_offset) == (0, 0, 100)


async def test_a_deletion_that_a_replica_in_sync_does_not_follow_is_an_error(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W-4.27.2"""
    monkeypatch.setattr(delete_records, "REPLICAS_WAIT_MS", 200)
    await filled(cluster)
    leader = await cluster.leader_of(TOPIC, 0)
    cut_off = next(each for each in cluster.brokers if each != leader)
    cluster.partition(leader, cut_off)
    async with Admin(cluster.servers, request_timeout_ms=500) as admin:
        outcome = (await admin.delete_records({WHERE: 60}))[WHERE]
        with pytest.raises(BrokerTimedOut, match="a replica in sync still has them"):
            outcome.unwrap()
        assert durable_starts(cluster)[cut_off] == 0
        monkeypatch.undo()
        cluster.heal()
    async with Admin(cluster.servers) as admin:
        outcome = (await admin.delete_records({WHERE: 60}))[WHERE]
        assert outcome.unwrap() == 60
    assert durable_starts(cluster)[cut_off] == 60


async def test_followers_begin_where_retention_has_the_leader_begin(cluster: Cluster) -> None:
    await create_topic(
        cluster.servers, configs={"segment.bytes": "1024", "retention.bytes": "2000"}
    )
    async with Producer(cluster.servers, linger_ms=0, batch_bytes=200) as producer:
        for value in numbers(0, 100):
            await send(producer, [value * 100])
    await cluster.wait_until_in_sync(TOPIC)
    leader = replica(cluster.brokers[await cluster.leader_of(TOPIC, 0)])
    assert leader.run_retention(leader.env.clock.wall_ms())
    await until(lambda: set(durable_starts(cluster).values()) == {leader.start_offset})
    assert leader.start_offset > 0
    async with Consumer(cluster.servers, TOPIC, start="earliest") as consumer:
        assert (await consumer.getmany())[0].offset == leader.start_offset
