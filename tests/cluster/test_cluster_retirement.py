"""Brokers that leave the cluster for good, and brokers that join without a vote."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from millrace import Admin, Producer
from millrace.errors import BrokerNotRegistered, InvalidReplicaAssignment, InvalidRequest
from millrace_server.api_error import ApiError
from millrace_server.testing import Broker, Cluster
from millrace_server.testing.reserved_ports import HOST, ReservedPorts
from tests.broker.wire import until
from tests.cluster.observers import OBSERVER, observing
from tests.cluster.records import TOPIC, create_topic, numbers, read_all, send

PARTITIONS = 6


async def until_empty(admin: Admin, broker_id: int) -> None:
    """Retires a broker until it has no replica."""
    while (await admin.retire_broker(broker_id)).replicas:
        while await admin.list_partition_reassignments():
            pass


def held(cluster: Cluster, broker_id: int) -> int:
    """The replicas of a broker, as another one knows them."""
    image = cluster.brokers[cluster.running[0]].node.broker.image
    partitions = image.topics[TOPIC].partitions
    return sum(broker_id in partition.replicas for partition in partitions)


def in_service(broker: Broker) -> set[int]:
    """The brokers in service, as this one knows them."""
    brokers = broker.node.broker.image.brokers.values()
    return {each.broker_id for each in brokers if not each.is_fenced}


async def test_a_broker_that_retires_gives_its_replicas_to_the_others_and_is_gone(
    cluster: Cluster,
) -> None:
    async with observing(cluster) as observer, Admin(cluster.servers) as admin:
        await create_topic(cluster.servers, partitions=PARTITIONS, replication_factor=2, min_isr=1)
        places = {(TOPIC, number): (OBSERVER, 1) for number in range(PARTITIONS)}
        await admin.alter_partition_reassignments(dict(places.items()))
        async with Producer(cluster.servers) as producer:
            for number in range(PARTITIONS):
                await send(producer, numbers(0, 50), partition=number)
            await until(lambda: held(cluster, OBSERVER) == held(cluster, 1) == PARTITIONS)
            while await admin.list_partition_reassignments():
                pass
            with pytest.raises(InvalidRequest, match="stop it, and retire it again"):
                await until_empty(admin, OBSERVER)
            for number in range(PARTITIONS):
                await send(producer, numbers(50, 60), partition=number)
        await until(lambda: held(cluster, OBSERVER) == 0)
        # Broker 1 had a replica of each partition, so that the two others share what was moved.
        assert [held(cluster, each) for each in (1, 2, 3)] == [6, 3, 3]
        await until(lambda: not [*observer.data.glob(f"{TOPIC}-*")])
        await observer.stop()
        assert (await admin.retire_broker(OBSERVER)).is_retired
        with pytest.raises(BrokerNotRegistered, match="the cluster has 1, 2, 3"):
            await admin.retire_broker(OBSERVER)
        for records in (await read_all(cluster.servers)).values():
            assert [value for _, value in records] == numbers(0, 60)
        await observer.start()
        known = cluster.brokers[cluster.running[0]].node.broker
        await until(lambda: OBSERVER in known.image.brokers)


async def test_a_broker_that_is_lost_is_retired_where_others_have_its_records(
    cluster: Cluster,
) -> None:
    async with observing(cluster) as observer, Admin(cluster.servers) as admin:
        await create_topic(cluster.servers, replication_factor=2, min_isr=1)
        await admin.alter_partition_reassignments({(TOPIC, 0): (OBSERVER, 1)})
        while await admin.list_partition_reassignments():
            pass
        async with Producer(cluster.servers) as producer:
            await send(producer, numbers(0, 50))
            await observer.stop()
            await until_empty(admin, OBSERVER)
            await send(producer, numbers(50, 60))
        with pytest.raises(BrokerNotRegistered):
            await admin.retire_broker(OBSERVER)
    assert [value for _, value in (await read_all(cluster.servers))[0]] == numbers(0, 60)


async def test_the_last_replica_is_not_retired_with_its_broker(cluster: Cluster) -> None:
    async with observing(cluster) as observer, Admin(cluster.servers) as admin:
        await create_topic(cluster.servers, replication_factor=1, min_isr=1)
        await admin.alter_partition_reassignments({(TOPIC, 0): (OBSERVER,)})
        while await admin.list_partition_reassignments():
            pass
        await observer.stop()
        step = await admin.retire_broker(OBSERVER)
        assert (step.replicas, step.is_retired) == (1, False)
        (ongoing,) = (await admin.list_partition_reassignments()).values()
        assert ongoing.isr == ongoing.removing == (OBSERVER,)
        # The reassignment goes on when the broker with the records is back.
        await observer.start()
        with pytest.raises(InvalidRequest, match="stop it, and retire it again"):
            await until_empty(admin, OBSERVER)


async def test_a_broker_that_cannot_be_retired_stays_as_it_is(cluster: Cluster) -> None:
    await create_topic(cluster.servers)
    async with Admin(cluster.servers) as admin:
        with pytest.raises(BrokerNotRegistered, match=r"no broker 9; the cluster has 1, 2, 3"):
            await admin.retire_broker(9)
        with pytest.raises(InvalidRequest, match="is a voter of the metadata quorum; remove it"):
            await admin.retire_broker(1)
        async with observing(cluster):
            await create_topic(cluster.servers, "wide", replication_factor=4)
            with pytest.raises(InvalidReplicaAssignment, match="no other broker can take that of"):
                await admin.retire_broker(OBSERVER)
            assert await admin.list_partition_reassignments() == {}


async def test_the_only_broker_is_not_retired() -> None:
    async with Broker(node_id=5) as broker, Admin(broker.servers) as admin:
        with pytest.raises(InvalidRequest, match="No other broker than 5 is in service"):
            await admin.retire_broker(5)


async def test_a_broker_without_a_vote_follows_the_quorum(cluster: Cluster) -> None:
    async with observing(cluster) as observer, Admin(cluster.servers) as admin:
        quorum = await admin.describe_quorum()
        assert {each.node_id: each.is_voter for each in quorum.replicas} == {
            **dict.fromkeys(cluster.brokers, True),
            OBSERVER: False,
        }
        await create_topic(observer.servers, replication_factor=4)
        await cluster.kill(await cluster.controller())
        async with Producer(observer.servers) as producer:
            await send(producer, numbers(0, 10))
        # The observer has found the next controller, and is in service there.
        await until(lambda: in_service(observer) == {OBSERVER, *cluster.running})
    assert [value for _, value in (await read_all(cluster.servers))[0]] == numbers(0, 10)


async def test_a_broker_without_a_vote_founds_no_cluster(tmp_path: Path) -> None:
    """One of two voters is not there: a broker that does not vote is no substitute."""
    reserved = ReservedPorts(5)
    ports = reserved.ports
    quorum = f"1@{HOST}:{ports[0]},2@{HOST}:{ports[1]}"
    settings = {"quorum": quorum, "quorum_wait_ms": 2_000}
    voter = Broker(data=tmp_path / "1", node_id=1, port=ports[2], **settings)
    observer = Broker(
        data=tmp_path / "3",
        node_id=3,
        port=ports[3],
        broker_listen=f"{HOST}:{ports[4]}",
        **settings,
    )
    ends = await asyncio.gather(voter.start(), observer.start(), return_exceptions=True)
    assert [type(each) for each in ends] == [ApiError, ApiError]
    assert "needs all its voters once, and broker(s) 2 did not answer" in str(ends[0])
    assert "Broker 3 is no voter of `quorum` and found none of the voters 1, 2" in str(ends[1])
    reserved.release()
