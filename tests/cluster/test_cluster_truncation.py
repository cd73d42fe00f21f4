"""What consumers see of an election that loses records (KIP-320)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from millrace import Consumer, Producer
from millrace.errors import LogTruncated
from millrace.records import TopicPartition
from millrace_server.testing import Cluster
from tests.broker.wire import until
from tests.cluster.records import TOPIC, create_topic, log_bytes, numbers, send

KEPT, LOST = 10, 5


@asynccontextmanager
async def after_a_loss(
    cluster: Cluster, **settings: Any
) -> AsyncIterator[tuple[Consumer[bytes, bytes], int, int]]:
    """A consumer that has read `LOST` records which the new leader has not; the old and the new
    leader. At these offsets there are other records by now."""
    await create_topic(
        cluster.servers,
        min_isr=1,
        replication_factor=2,
        configs={"unclean.leader.election.enable": "true"},
    )
    await cluster.wait_until_in_sync(TOPIC)
    old = await cluster.leader_of(TOPIC, 0)
    (other,) = {each for each in cluster.brokers if each != old} & set(
        cluster.brokers[old].node.broker.image.topics[TOPIC].partitions[0].replicas
    )
    async with Consumer(cluster.servers, TOPIC, start="earliest", **settings) as consumer:
        async with Producer(cluster.servers) as producer:
            await send(producer, numbers(0, KEPT))
            await cluster.kill(other)
            core = cluster.brokers[old].node.broker
            await until(lambda: core.image.topics[TOPIC].partitions[0].isr == (old,))
            await send(producer, numbers(KEPT, KEPT + LOST))
        seen = 0
        while seen < KEPT + LOST:
            seen += len(await consumer.getmany())
        await cluster.kill(old)
        await cluster.start(other)
        assert await cluster.leader_of(TOPIC, 0) == other
        async with Producer(cluster.servers) as producer:
            await send(producer, [b"other"] * 2 * LOST)
        yield consumer, old, other


async def test_a_consumer_is_told_that_records_it_has_read_are_lost(cluster: Cluster) -> None:
    """W-4.37.2"""
    async with after_a_loss(cluster) as (consumer, old, other):
        with pytest.raises(LogTruncated) as raised:
            while True:
                assert not await consumer.getmany(), "records of another history"
        assert (raised.value.offset, raised.value.truncated_to) == (KEPT + LOST, KEPT)
        consumer.seek(TopicPartition(TOPIC, 0), raised.value.truncated_to)
        found = await consumer.getmany()
        assert [record.offset for record in found] == list(range(KEPT, KEPT + 2 * LOST))
        await cluster.start(old)
        await cluster.wait_until_in_sync(TOPIC)
        assert len({log_bytes(cluster.brokers[each]) for each in (old, other)}) == 1


async def test_a_consumer_may_go_on_where_the_logs_part(cluster: Cluster) -> None:
    """W-4.37.2"""
    async with after_a_loss(cluster, on_out_of_range="latest") as (consumer, _, _):
        found = await consumer.getmany()
        assert [record.offset for record in found] == list(range(KEPT, KEPT + 2 * LOST))
        assert {record.value for record in found} == {b"other"}
