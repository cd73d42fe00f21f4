"""Leaders that an operator asks for."""

from __future__ import annotations

from millrace import Admin, Consumer, Producer
from millrace.errors import ElectionNotNeeded, LeaderNotAvailable, UnknownTopicOrPartition
from millrace.records import TopicPartition
from millrace_server.testing import Cluster
from tests.broker.wire import until
from tests.cluster.records import TOPIC, create_topic, numbers, read_all, send

PLACE = TopicPartition(TOPIC, 0)


async def test_the_preferred_leader_leads_again_when_it_is_asked_for(cluster: Cluster) -> None:
    await create_topic(cluster.servers)
    await cluster.wait_until_in_sync(TOPIC)
    first = await cluster.leader_of(TOPIC, 0)
    async with Admin(cluster.servers) as admin, Producer(cluster.servers) as producer:
        outcomes = await admin.elect_leaders([PLACE, (TOPIC, 7), ("nope", 0)])
        assert [type(each.error) for each in outcomes.values()] == [
            ElectionNotNeeded,
            UnknownTopicOrPartition,
            UnknownTopicOrPartition,
        ]
        assert f"is led by broker {first}; there is nothing to elect" in str(outcomes[PLACE].error)
        await cluster.stop(first)
        refused = (await admin.elect_leaders([PLACE]))[PLACE].error
        assert isinstance(refused, LeaderNotAvailable)
        assert f"Broker {first}, the preferred leader of {PLACE}, is not in sync" in str(refused)
        await send(producer, numbers(0, 10))
        await cluster.start(first)
        await cluster.wait_until_in_sync(TOPIC)
        assert await cluster.leader_of(TOPIC, 0) != first
        elected = await admin.elect_leaders()
        assert elected[PLACE].unwrap() == first
        await send(producer, numbers(10, 20))
    assert await cluster.leader_of(TOPIC, 0) == first
    assert [value for _, value in (await read_all(cluster.servers))[0]] == numbers(0, 20)


async def test_a_replica_that_lacks_records_leads_only_if_that_is_asked_for(
    cluster: Cluster,
) -> None:
    """W-4.32.1: what the last replica in sync had alone is lost with it."""
    await create_topic(cluster.servers, replication_factor=2, min_isr=1)
    await cluster.wait_until_in_sync(TOPIC)
    leader = await cluster.leader_of(TOPIC, 0)
    known = cluster.brokers[leader].node.broker
    (behind,) = {*known.image.topics[TOPIC].partitions[0].replicas} - {leader}
    async with Admin(cluster.servers) as admin:
        async with Producer(cluster.servers) as producer:
            await send(producer, numbers(0, 10))
            await cluster.kill(behind)
            await until(lambda: known.image.topics[TOPIC].partitions[0].isr == (leader,))
            await send(producer, [b"lost"] * 5)
        await cluster.kill(leader)
        await cluster.start(behind)
        broker = cluster.brokers[behind].node.broker
        await until(lambda: broker.image.topics[TOPIC].partitions[0].leader == -1)
        clean = (await admin.elect_leaders([PLACE]))[PLACE].error
        assert isinstance(clean, LeaderNotAvailable)
        assert (await admin.elect_leaders(unclean=True))[PLACE].unwrap() == behind
        async with Producer(cluster.servers) as producer:
            await send(producer, numbers(10, 20))
        values = [value for _, value in (await read_all(cluster.servers))[0]]
        assert values == numbers(0, 20)
        await cluster.start(leader)
        await cluster.wait_until_in_sync(TOPIC)
    assert [value for _, value in (await read_all(cluster.servers))[0]] == values


async def test_a_commit_tells_the_epoch_of_the_last_record_and_the_group_goes_on_with_it(
    cluster: Cluster,
) -> None:
    await create_topic(cluster.servers, "orders")
    async with Producer(cluster.servers) as producer:
        for number in range(2):
            await producer.send("orders", b"%d" % number)
            await cluster.kill(await cluster.leader_of("orders", 0))
            await cluster.start()
            await cluster.wait_until_in_sync("orders")
        await producer.send("orders", b"2")
    where = ("orders", 0)
    epochs = []
    for number in range(3):
        async with Consumer(
            cluster.servers, "orders", group="billing", auto_commit=False, start="earliest"
        ) as consumer:
            assert (await consumer.getone()).value == b"%d" % number
            await consumer.commit()
            committed = (await consumer.committed(where))[TopicPartition(*where)]
            assert committed is not None
            epochs.append(committed.leader_epoch)
    assert epochs[0] < epochs[1] < epochs[2]
