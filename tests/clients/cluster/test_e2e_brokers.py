"""Deleted records, sizes and settings, asked of a real broker by the admin client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from millrace import Admin, Consumer, Producer, TopicPartition
from millrace import sync as millrace_sync
from millrace.errors import (
    Closed,
    ConnectionFailed,
    InvalidTopic,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from millrace_server.testing import Broker

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as running:
        yield running


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Admin]:
    async with Admin(broker.servers) as running, Producer(broker.servers) as producer:
        await running.create_topic("t", partitions=2)
        await running.create_topic("compacted", configs={"cleanup.policy": "compact"})
        # The first question about a group makes the broker's topic of offsets.
        await running.describe_groups(["g"])
        await producer.send_many("t", [b"%d" % n for n in range(10)], partition=0)
        await producer.send_many("t", [b"a", b"b"], partition=1)
        yield running


async def test_deleted_records_are_not_read(broker: Broker, admin: Admin) -> None:
    deleted = await admin.delete_records({FIRST: 7, ("t", 1): "latest"})
    assert {where: outcome.unwrap() for where, outcome in deleted.items()} == {FIRST: 7, SECOND: 2}
    async with Consumer(broker.servers, "t", start="earliest") as consumer:
        values = [(await consumer.getone()).value for _ in range(3)]
    assert values == [b"7", b"8", b"9"]


async def test_each_partition_has_its_own_outcome(admin: Admin) -> None:
    wanted = {FIRST: 11, SECOND: 1, ("t", 2): 0, ("compacted", 0): 0, ("__consumer_offsets", 0): 0}
    deleted = list((await admin.delete_records(wanted)).values())
    errors = [type(outcome.error) for outcome in deleted]
    assert errors == [
        OffsetOutOfRange,
        type(None),
        UnknownTopicOrPartition,
        PolicyViolation,
        InvalidTopic,
    ]
    assert deleted[1].value == 1
    assert "t-0" in str(deleted[0].error)
    with pytest.raises(PolicyViolation, match="compact,delete"):
        deleted[3].unwrap()
    assert await admin.delete_records({}) == {}
    with pytest.raises(ValueError, match="'earliest'"):
        await admin.delete_records({FIRST: "earliest"})  # type: ignore[dict-item]


async def test_sizes_are_those_of_the_batches_on_the_disk(broker: Broker, admin: Admin) -> None:
    (directory,) = await admin.describe_log_dirs(["t"])
    partitions = broker.node.broker.partitions
    sizes = {where: partitions.get(*where).log.size_bytes for where in (FIRST, SECOND)}
    assert {where: size.size_bytes for where, size in directory.partitions.items()} == sizes
    assert all(size > 0 for size in sizes.values())
    assert {size.offset_lag for size in directory.partitions.values()} == {0}
    assert (directory.node_id, directory.path) == (0, broker.node.broker.env.disk.path)
    assert 0 < directory.usable_bytes <= directory.total_bytes
    (whole,) = await admin.describe_log_dirs(broker=0)
    assert TopicPartition("__cluster_metadata", 0) in whole.partitions
    with pytest.raises(ConnectionFailed, match="no broker 7"):
        await admin.describe_log_dirs(broker=7)


async def test_settings_say_where_they_come_from(broker: Broker, admin: Admin) -> None:
    found = await admin.describe_broker_configs()
    assert found == await admin.describe_broker_configs(0)
    data = found["data"]
    assert (data.value, data.source, data.is_read_only) == (broker.config.data, "argument", True)
    assert data.doc
    assert found["limits.inflight_requests_max"].value == "64"
    assert found["topic.retention.ms"].is_default
    with pytest.raises(ConnectionFailed, match="no broker 7"):
        await admin.describe_broker_configs(7)
    policy = (await admin.describe_configs("compacted"))["cleanup.policy"]
    assert (policy.value, policy.source, policy.is_read_only) == ("compact", "topic", False)


async def test_a_cluster_of_one_is_the_quorum_of_itself(broker: Broker, admin: Admin) -> None:
    found = await admin.describe_quorum()
    (replica,) = found.replicas
    assert (found.leader, replica.node_id, replica.is_voter) == (0, 0, True)
    assert (replica.fetched_ms, replica.caught_up_ms, found.lag(replica)) == (0, 0, 0)
    assert replica.end_offset == found.high_watermark
    await admin.create_topic("later")
    later = (await admin.describe_quorum()).high_watermark
    assert found.high_watermark is not None and later is not None
    assert later > found.high_watermark


async def test_blocking_callers_get_the_same(broker: Broker, admin: Admin) -> None:
    def ask() -> None:
        with millrace_sync.Admin(broker.servers) as blocking:
            assert blocking.delete_records({FIRST: 3})[FIRST].unwrap() == 3
            (directory,) = blocking.describe_log_dirs(["t"])
            assert directory.partitions[FIRST].size_bytes > 0
            assert blocking.describe_broker_configs()["node_id"].value == "0"
            assert blocking.describe_quorum().leader == 0

    await asyncio.to_thread(ask)


async def test_a_closed_client_says_so(broker: Broker) -> None:
    admin = Admin(broker.servers)
    for call in (admin.delete_records({}), admin.describe_log_dirs()):
        with pytest.raises(Closed, match="not started"):
            await call
