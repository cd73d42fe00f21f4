"""Leaders and coordinators that move: in order, by a death, and by a cut of the network."""

from __future__ import annotations

import asyncio

from millrace import Consumer, Producer
from millrace_server.group.records import OFFSETS_TOPIC, partition_for_group
from millrace_server.testing import Cluster
from millrace_server.testing.cluster import OFFSETS_TOPIC_PARTITIONS
from tests.broker.wire import until
from tests.cluster.records import (
    TOPIC,
    create_topic,
    logs,
    numbers,
    read_all,
    replica,
    send,
)


async def test_a_stopping_broker_hands_its_leaders_over(cluster: Cluster) -> None:
    await create_topic(cluster.servers, partitions=3)
    await cluster.wait_until_in_sync(TOPIC)
    stopped = await cluster.leader_of(TOPIC, 0)
    other = next(each for each in cluster.brokers if each != stopped)
    async with Producer(cluster.servers, linger_ms=0) as producer:
        values = numbers(0, 600)
        deliveries = [producer.send(TOPIC, v, partition=int(v) % 3) for v in values]
        await deliveries[0]
        await cluster.stop(stopped)
        led = {p.leader for p in cluster.brokers[other].node.broker.image.topics[TOPIC].partitions}
        assert stopped not in led
        await asyncio.gather(*deliveries)
    for partition, records in (await read_all(cluster.servers)).items():
        assert [value for _, value in records] == numbers(0, 600)[partition::3]


async def test_no_error_is_seen_while_every_broker_is_restarted(cluster: Cluster) -> None:
    await create_topic(cluster.servers, partitions=3)
    await cluster.wait_until_in_sync(TOPIC)
    sent = 0
    is_over = False

    async def produce(producer: Producer[bytes, bytes]) -> None:
        nonlocal sent
        while not is_over:
            values = numbers(sent, sent + 30)
            sent += 30
            await asyncio.gather(
                *(producer.send(TOPIC, value, partition=int(value) % 3) for value in values)
            )

    async with Producer(cluster.servers) as producer:
        producing = asyncio.create_task(produce(producer))
        for each in cluster.brokers:
            await cluster.restart(each)
            await cluster.wait_until_in_sync()
        is_over = True
        await producing
    for partition, records in (await read_all(cluster.servers)).items():
        assert [value for _, value in records] == numbers(0, sent)[partition::3]


async def test_a_leader_that_was_cut_off_gives_up_what_is_not_committed(cluster: Cluster) -> None:
    await create_topic(cluster.servers)
    await cluster.wait_until_in_sync(TOPIC)
    old = await cluster.leader_of(TOPIC, 0)
    async with (
        Producer(cluster.brokers[old].servers, acks=1, idempotent=False) as cut_off,
        Producer(cluster.servers, request_timeout_ms=1_000) as producer,
    ):
        await send(producer, numbers(0, 10))
        cluster.isolate(old)
        assert await send(cut_off, [b"lost"] * 5) == [10, 11, 12, 13, 14]
        image = next(b for each, b in cluster.brokers.items() if each != old).node.broker
        await until(lambda: image.image.topics[TOPIC].partitions[0].leader != old)
        await send(producer, numbers(10, 30))
        cluster.heal()
        await cluster.wait_until_in_sync()
        await send(producer, numbers(30, 40))
    assert [value for _, value in (await read_all(cluster.servers))[0]] == numbers(0, 40)
    assert replica(cluster.brokers[old]).end_offset == 40
    assert len(logs(cluster)) == 1


async def test_consumers_of_a_leader_that_was_cut_off_read_nothing_that_is_lost(
    cluster: Cluster,
) -> None:
    await create_topic(cluster.servers)
    await cluster.wait_until_in_sync(TOPIC)
    old = await cluster.leader_of(TOPIC, 0)
    alone = cluster.brokers[old].servers
    async with (
        Producer(alone, acks=1, idempotent=False) as cut_off,
        Consumer(alone, TOPIC, start="earliest") as consumer,
    ):
        await send(cut_off, [b"kept"])
        assert [record.value for record in await consumer.getmany()] == [b"kept"]
        cluster.isolate(old)
        await send(cut_off, [b"lost"])
        assert await consumer.getmany(timeout_ms=300) == []


async def test_a_group_goes_on_when_its_coordinator_dies(cluster: Cluster) -> None:
    await create_topic(cluster.servers, partitions=3)
    async with (
        Producer(cluster.servers) as producer,
        Consumer(cluster.servers, TOPIC, group="g", start="earliest") as consumer,
    ):
        for number in range(3):
            await send(producer, numbers(0, 10), partition=number)
        read: list[tuple[int, int]] = []
        while len(read) < 30:
            read += [(r.partition, r.offset) for r in await consumer.getmany()]
        await consumer.commit()
        await cluster.wait_until_in_sync()
        coordinated = partition_for_group("g", OFFSETS_TOPIC_PARTITIONS)
        await cluster.kill(await cluster.leader_of(OFFSETS_TOPIC, coordinated))
        for number in range(3):
            await send(producer, numbers(10, 20), partition=number)
        while len(read) < 60:
            read += [(r.partition, r.offset) for r in await consumer.getmany()]
        await consumer.commit()
    assert sorted(read) == [(n, offset) for n in range(3) for offset in range(20)]
    async with Consumer(cluster.servers, TOPIC, group="g", start="earliest") as successor:
        committed = await successor.committed(*((TOPIC, number) for number in range(3)))
    assert [each and each.offset for each in committed.values()] == [20, 20, 20]
