"""Consumers that say their rack read from a replica there (KIP-392)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from millrace import Admin, Consumer, Producer
from millrace_server.testing import Cluster
from tests.broker.wire import until
from tests.cluster.records import TOPIC, create_topic, numbers, send
from tests.cluster.settings import SETTINGS

RACKS = ("a", "b", "c")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Brokers 1, 2 and 3 are in racks a, b and c; each has a replica of the only partition."""
    async with Cluster(3, racks=RACKS, **SETTINGS) as running:
        await create_topic(running.servers)
        await running.wait_until_in_sync(TOPIC)
        yield running


def fetches(cluster: Cluster) -> dict[int, float]:
    """How many fetches of consumers each broker has answered."""
    return {
        each: cluster.brokers[each]
        .statistics()
        .value("millrace_requests_total", dialect="native", api="Fetch")
        for each in cluster.running
    }


async def test_a_consumer_reads_from_the_replica_in_its_rack(cluster: Cluster) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    near = next(each for each in cluster.brokers if each != leader)
    async with (
        Producer(cluster.servers) as producer,
        Consumer(cluster.servers, TOPIC, client_rack=RACKS[near - 1]) as consumer,
    ):
        await send(producer, [b"0"])
        assert (await consumer.getone()).value == b"0"
        before = fetches(cluster)
        await send(producer, numbers(1, 300))
        found = [(await consumer.getone()).value for _ in range(1, 300)]
        after = fetches(cluster)
    assert found == numbers(1, 300)
    assert after[near] > before[near]
    # One long poll may have been at the leader when it told of the replica.
    assert after[leader] - before[leader] <= 1


@pytest.mark.parametrize("rack", ["", "nowhere", "the leader's"])
async def test_a_consumer_with_no_replica_in_its_rack_reads_from_the_leader(
    cluster: Cluster, rack: str
) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    rack = RACKS[leader - 1] if rack == "the leader's" else rack
    async with (
        Producer(cluster.servers) as producer,
        Consumer(cluster.servers, TOPIC, client_rack=rack) as consumer,
    ):
        for value in numbers(0, 5):
            await send(producer, [value])
            assert (await consumer.getone()).value == value
    assert [each for each, count in fetches(cluster).items() if count] == [leader]


async def test_a_consumer_goes_back_to_the_leader_when_its_replica_ends(cluster: Cluster) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    near = next(each for each in cluster.brokers if each != leader)
    async with (
        Producer(cluster.servers) as producer,
        Consumer(cluster.servers, TOPIC, client_rack=RACKS[near - 1]) as consumer,
    ):
        await send(producer, numbers(0, 100))
        found = [(await consumer.getone()).value for _ in range(50)]
        await until(lambda: fetches(cluster)[near] > 0)
        await cluster.kill(near)
        await send(producer, numbers(100, 200))
        found += [(await consumer.getone()).value for _ in range(150)]
    assert found == numbers(0, 200)


async def test_a_replica_that_becomes_the_leader_and_one_that_ceases_to_lead_serve_on(
    cluster: Cluster,
) -> None:
    async with (
        Producer(cluster.servers) as producer,
        Consumer(cluster.servers, TOPIC, client_rack="b") as consumer,
    ):
        found = []
        for first in range(0, 300, 100):
            await send(producer, numbers(first, first + 50))
            await cluster.kill(await cluster.leader_of(TOPIC, 0))
            await send(producer, numbers(first + 50, first + 100))
            found += [(await consumer.getone()).value for _ in range(100)]
            await cluster.start(*(set(cluster.brokers) - set(cluster.running)))
            await cluster.wait_until_in_sync(TOPIC)
    assert found == numbers(0, 300)


async def test_the_metadata_tells_the_rack_of_each_broker(cluster: Cluster) -> None:
    async with Admin(cluster.servers) as admin:
        brokers = (await admin.describe_cluster()).brokers
    assert {each.node_id: each.rack for each in brokers} == {1: "a", 2: "b", 3: "c"}
