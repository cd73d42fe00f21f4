"""Idempotent producers of a cluster: their ids are given by one broker and known to all."""

from __future__ import annotations

import asyncio

from millrace_protocol.errors import ErrorCode
from millrace_server.testing import Cluster
from tests.broker.wire import connect, sequenced, until
from tests.cluster.records import TOPIC, create_topic


async def test_a_leader_waits_for_the_metadata_of_a_producer_id(cluster: Cluster) -> None:
    await create_topic(cluster.servers, partitions=3, replication_factor=1, min_isr=1)
    await cluster.wait_until_in_sync(TOPIC)
    controller = await cluster.controller()
    behind = next(each for each in cluster.brokers if each != controller)
    number = [await cluster.leader_of(TOPIC, n) for n in range(3)].index(behind)
    async with (
        connect(cluster.brokers[controller].port) as giver,
        connect(cluster.brokers[behind].port) as leader,
    ):
        cluster.partition(controller, behind)
        producer, epoch = await giver.producer_id()
        producing = asyncio.create_task(
            leader.produce(TOPIC, sequenced(producer, epoch, 0, b"v"), partition=number)
        )
        await until(lambda: "producer id" in {task.get_name() for task in asyncio.all_tasks()})
        assert not producing.done()
        cluster.heal()
        produced = await producing
    assert (produced.error_code, produced.base_offset) == (ErrorCode.NONE, 0)


async def test_a_broker_raises_no_epoch_that_another_one_has_given(cluster: Cluster) -> None:
    given: set[tuple[int, int]] = set()
    for _ in range(2):
        for broker in cluster.brokers.values():
            async with connect(broker.port) as wire:
                given.add(await wire.producer_id())
    held = max(given)
    for broker in cluster.brokers.values():
        async with connect(broker.port) as wire:
            for _ in range(2):
                next_epoch = await wire.producer_id(*held)
                assert next_epoch not in given
                given.add(next_epoch)
