"""The metadata quorum: what a majority, a minority, a wiped voter and a stranger can do."""

from __future__ import annotations

import shutil

import pytest

from millrace import Admin, Producer
from millrace.errors import MillraceError
from millrace_protocol.messages.quorum import VoteRequest, VoteResponse
from millrace_server.api_error import ApiError
from millrace_server.peers.calls import Channel
from millrace_server.testing import Broker, Cluster
from tests.broker.wire import until
from tests.cluster.records import TOPIC, create_topic, numbers, read_all, send
from tests.cluster.settings import SETTINGS


def others_of(cluster: Cluster, broker_id: int) -> list[int]:
    return [each for each in cluster.brokers if each != broker_id]


async def test_topics_are_created_again_after_the_death_of_the_controller(
    cluster: Cluster,
) -> None:
    await create_topic(cluster.servers, "before")
    controller = await cluster.controller()
    await cluster.kill(controller)
    assert await cluster.controller() != controller
    async with Admin(cluster.servers) as admin:
        await admin.create_topic("after", partitions=3, replication_factor=2)
        assert await admin.list_topics() == ["after", "before"]
    await cluster.start(controller)
    await cluster.wait_until_in_sync()


async def test_one_of_three_refuses_in_time_and_two_serve_again(cluster: Cluster) -> None:
    await create_topic(cluster.servers)
    await cluster.wait_until_in_sync(TOPIC)
    first, second, third = cluster.brokers
    async with Producer(cluster.servers) as producer:
        await send(producer, numbers(0, 10))
        await cluster.kill(first, second)
        async with Admin(cluster.brokers[third].servers, request_timeout_ms=15_000) as admin:
            with pytest.raises(MillraceError):
                await admin.create_topic("refused")
        await cluster.start(first)
        await send(producer, numbers(10, 20))
    await create_topic(cluster.servers, "taken", replication_factor=2)
    assert [value for _, value in (await read_all(cluster.servers))[0]] == numbers(0, 20)


async def test_a_wiped_voter_does_not_vote(cluster: Cluster) -> None:
    await cluster.wait_until_in_sync()
    wiped, candidate, _ = cluster.brokers
    old = cluster.brokers[wiped].node.broker.metadata.key
    await cluster.kill(wiped)
    shutil.rmtree(cluster.brokers[wiped].data)
    await cluster.start(wiped)
    node = cluster.brokers[candidate].node
    assert cluster.brokers[wiped].node.broker.metadata.key != old
    replica = node.broker.metadata.replica
    request = VoteRequest(
        *replica.key,
        replica.epoch + 1,
        old.directory_id,
        replica.epoch,
        node.broker.metadata.log.end_offset + 1,
        is_pre_vote=False,
    )
    answer = await node.peers.call(wiped, Channel.QUORUM, request, VoteResponse, timeout_ms=10_000)
    assert not answer.is_granted


async def test_a_wiped_broker_gets_its_replicas_back(cluster: Cluster) -> None:
    await create_topic(cluster.servers, partitions=3)
    async with Producer(cluster.servers) as producer:
        for number in range(3):
            await send(producer, numbers(0, 50), partition=number)
        await cluster.kill(1)
        shutil.rmtree(cluster.brokers[1].data)
        await cluster.start(1)
        await cluster.wait_until_in_sync()
        for number in range(3):
            await send(producer, numbers(50, 60), partition=number)
    for records in (await read_all(cluster.servers)).values():
        assert [value for _, value in records] == numbers(0, 60)


async def test_a_broker_of_another_cluster_is_refused(cluster: Cluster) -> None:
    async with Cluster(3, **SETTINGS) as other:
        await other.wait_until_in_sync()
        foreign = other.brokers[3].data
        await cluster.kill(3)
        shutil.rmtree(cluster.brokers[3].data)
        await other.kill(3)
        shutil.copytree(foreign, cluster.brokers[3].data)
    stranger = Broker(
        data=cluster.brokers[3].data,
        node_id=3,
        quorum=cluster.brokers[3].config.quorum,
        quorum_wait_ms=3_000,
    )
    with pytest.raises(ApiError, match="belongs to cluster"):
        await stranger.start()
    await cluster.wait_until_in_sync()


async def test_all_acked_records_are_there_after_all_brokers_die_at_once(
    cluster: Cluster,
) -> None:
    await create_topic(cluster.servers, partitions=3)
    async with Producer(cluster.servers, linger_ms=0) as producer:
        values = numbers(0, 3_000)
        deliveries = [producer.send(TOPIC, v, partition=int(v) % 3) for v in values]
        await until(lambda: sum(each.done() for each in deliveries) > 500)
        acked = [int(v) for v, each in zip(values, deliveries, strict=True) if each.done()]
        await cluster.kill()
        await cluster.start()
        for delivery in deliveries:
            await delivery
    found = await read_all(cluster.servers)
    assert {number for number in acked if number % 3 == 0} <= {int(v) for _, v in found[0]}
    for partition, records in found.items():
        assert [value for _, value in records] == numbers(0, 3_000)[partition::3]
