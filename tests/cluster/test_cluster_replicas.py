"""The replicas of a partition: leaders die, followers catch up, and all have the same bytes."""

from __future__ import annotations

import asyncio

import pytest

from millrace import Admin, Consumer, Producer
from millrace.errors import DeliveryTimeout, NotEnoughReplicas
from millrace_protocol.errors import ErrorCode
from millrace_server.testing import Cluster
from tests.broker.wire import batch, connect, until
from tests.cluster.records import (
    TOPIC,
    create_topic,
    log_bytes,
    logs,
    numbers,
    read_all,
    replica,
    send,
)


async def test_a_topic_is_on_all_brokers(cluster: Cluster) -> None:
    await create_topic(cluster.servers, partitions=3)
    await cluster.wait_until_in_sync(TOPIC)
    async with Admin(cluster.servers) as admin:
        described = await admin.describe_topic(TOPIC)
    assert {p.replicas and tuple(sorted(p.replicas)) for p in described.partitions} == {(1, 2, 3)}
    assert {p.leader for p in described.partitions} == {1, 2, 3}
    for broker in cluster.brokers.values():
        found = {(p.topic, p.number) for p in broker.node.broker.partitions}
        assert {(TOPIC, number) for number in range(3)} <= found


async def test_an_acked_record_is_on_every_replica(cluster: Cluster) -> None:
    await create_topic(cluster.servers)
    await cluster.wait_until_in_sync(TOPIC)
    async with Producer(cluster.servers) as producer:
        assert await send(producer, numbers(0, 100)) == list(range(100))
    ends = {replica(broker).log.durable_offset for broker in cluster.brokers.values()}
    assert ends == {100}
    assert len(logs(cluster)) == 1


async def test_no_record_is_lost_or_doubled_when_any_leader_is_killed(cluster: Cluster) -> None:
    await create_topic(cluster.servers, partitions=3)
    async with Producer(cluster.servers, linger_ms=0) as producer:
        sent = 0
        for victim in cluster.brokers:
            values = numbers(sent, sent + 600)
            sent += len(values)
            deliveries = [producer.send(TOPIC, v, partition=int(v) % 3) for v in values]
            await deliveries[0]
            await cluster.kill(victim)
            await asyncio.gather(*deliveries)
            await cluster.start(victim)
            await cluster.wait_until_in_sync()
    for partition, records in (await read_all(cluster.servers)).items():
        assert [offset for offset, _ in records] == list(range(sent // 3))
        assert [value for _, value in records] == numbers(0, sent)[partition::3]
        assert len(logs(cluster, partition=partition)) == 1


async def test_a_broker_that_comes_back_follows_byte_for_byte(cluster: Cluster) -> None:
    await create_topic(cluster.servers)
    await cluster.wait_until_in_sync(TOPIC)
    leader = await cluster.leader_of(TOPIC, 0)
    away = next(each for each in cluster.brokers if each != leader)
    async with Producer(cluster.servers, batch_bytes=1_000) as producer:
        await send(producer, numbers(0, 500))
        await cluster.kill(away)
        await send(producer, numbers(500, 2_000))
        await cluster.start(away)
        await send(producer, numbers(2_000, 2_500))
        await cluster.wait_until_in_sync(TOPIC)
        await send(producer, numbers(2_500, 2_600))
    assert len(logs(cluster)) == 1
    follower = replica(cluster.brokers[away])
    assert follower.end_offset == 2_600
    assert log_bytes(cluster.brokers[away])


async def test_a_leader_without_followers_and_quorum_acks_what_wants_no_more(
    cluster: Cluster,
) -> None:
    await create_topic(cluster.servers)
    await cluster.wait_until_in_sync(TOPIC)
    leader = await cluster.leader_of(TOPIC, 0)
    async with (
        Producer(cluster.servers, acks="all", delivery_timeout_ms=2_000) as all_replicas,
        Producer(cluster.servers, acks=1) as leader_alone,
    ):
        await send(all_replicas, [b"0"])
        await send(leader_alone, [b"1"])
        await cluster.kill(*(each for each in cluster.brokers if each != leader))
        with pytest.raises(DeliveryTimeout):
            await send(all_replicas, [b"2"])
        assert await send(leader_alone, [b"3"]) == [3]


async def test_an_isr_that_is_too_small_refuses_what_wants_all(cluster: Cluster) -> None:
    await create_topic(cluster.servers, min_isr=3)
    await cluster.wait_until_in_sync(TOPIC)
    leader = await cluster.leader_of(TOPIC, 0)
    away = next(each for each in cluster.brokers if each != leader)
    await cluster.kill(away)
    core = cluster.brokers[leader].node.broker
    await until(lambda: away not in core.image.topics[TOPIC].partitions[0].isr)
    async with Producer(cluster.servers, acks="all", delivery_timeout_ms=1_000) as producer:
        with pytest.raises(DeliveryTimeout) as refused:
            await send(producer, [b"refused"])
    assert isinstance(refused.value.__cause__, NotEnoughReplicas)
    async with Producer(cluster.servers, acks=1) as producer:
        assert await send(producer, [b"kept"]) == [0]
    async with Consumer(cluster.servers, TOPIC, start="earliest") as consumer:
        assert await consumer.getmany(timeout_ms=200) == []
        await cluster.start(away)
        assert [record.value for record in await consumer.getmany()] == [b"kept"]


async def test_a_follower_says_which_broker_leads(cluster: Cluster) -> None:
    await create_topic(cluster.servers)
    await cluster.wait_until_in_sync(TOPIC)
    leader = await cluster.leader_of(TOPIC, 0)
    follower = next(each for each in cluster.brokers if each != leader)
    # All replicas of a new topic are in sync before they are open.
    partitions = cluster.brokers[follower].node.broker.partitions
    await until(lambda: partitions.find(TOPIC, 0) is not None)
    await until(lambda: replica(cluster.brokers[follower]).leadership.leader_id == leader)
    async with connect(cluster.brokers[follower].port) as wire:
        refused = await wire.produce(TOPIC, batch(b"v"))
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.error_message or "").startswith(f"Broker {leader} leads")
