"""Replicas that move to other brokers while a partition serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from millrace import Admin, Consumer, Producer
from millrace.brokers import Reassignment
from millrace.errors import (
    BrokerError,
    InvalidReplicaAssignment,
    NoReassignmentInProgress,
    ReassignmentInProgress,
    UnknownTopicOrPartition,
)
from millrace.records import TopicPartition
from millrace_protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionReassignment,
)
from millrace_server.group.records import OFFSETS_TOPIC, partition_for_group
from millrace_server.testing import Cluster
from millrace_server.testing.cluster import OFFSETS_TOPIC_PARTITIONS
from tests.broker.wire import connect, until
from tests.cluster.records import TOPIC, create_topic, logs, numbers, read_all, send

PLACE = TopicPartition(TOPIC, 0)


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.servers) as connected:
        yield connected


def replicas(cluster: Cluster, topic: str = TOPIC, number: int = 0) -> tuple[int, ...]:
    """Those that a running broker knows."""
    broker = cluster.brokers[cluster.running[0]].node.broker
    return broker.image.topics[topic].partitions[number].replicas


def directories(cluster: Cluster, topic: str = TOPIC, number: int = 0) -> set[int]:
    """The brokers that have a directory of the partition."""
    return {
        each
        for each, broker in cluster.brokers.items()
        if (broker.data / f"{topic}-{number}").is_dir()
    }


async def move(admin: Admin, *brokers: int, topic: str = TOPIC, number: int = 0) -> None:
    """Returns when the partition has these replicas alone."""
    (outcome,) = (await admin.alter_partition_reassignments({(topic, number): brokers})).values()
    outcome.unwrap()
    while await admin.list_partition_reassignments([topic]):
        pass


async def refusal(admin: Admin, where: tuple[str, int], brokers: list[int] | None) -> BrokerError:
    (outcome,) = (await admin.alter_partition_reassignments({where: brokers})).values()
    assert isinstance(outcome.error, BrokerError)
    return outcome.error


async def test_a_partition_of_one_replica_moves_with_its_records_while_they_are_sent(
    cluster: Cluster, admin: Admin
) -> None:
    await create_topic(cluster.servers, replication_factor=1, min_isr=1)
    old = await cluster.leader_of(TOPIC, 0)
    new = next(each for each in cluster.brokers if each != old)
    sent = 0
    is_over = False

    async def produce(producer: Producer[bytes, bytes]) -> None:
        nonlocal sent
        while not is_over:
            values = numbers(sent, sent + 30)
            sent += 30
            await send(producer, values)

    async with (
        Producer(cluster.servers) as producer,
        Consumer(cluster.servers, TOPIC, start="earliest") as consumer,
    ):
        producing = asyncio.create_task(produce(producer))
        read = [r.value for r in await consumer.getmany()]
        await move(admin, new)
        await until(lambda: replicas(cluster) == (new,))
        await until(lambda: directories(cluster) == {new})
        is_over = True
        await producing
        while len(read) < sent:
            read += [r.value for r in await consumer.getmany()]
    assert read == numbers(0, sent)
    assert await cluster.leader_of(TOPIC, 0) == new


async def test_replicas_are_added_and_taken_away_again(cluster: Cluster, admin: Admin) -> None:
    await create_topic(cluster.servers, replication_factor=1, min_isr=1)
    first = await cluster.leader_of(TOPIC, 0)
    second, third = (each for each in cluster.brokers if each != first)
    async with Producer(cluster.servers) as producer:
        await send(producer, numbers(0, 100))
        await move(admin, first, second, third)
        await cluster.wait_until_in_sync(TOPIC)
        assert directories(cluster) == {1, 2, 3}
        await send(producer, numbers(100, 200))
        await until(lambda: len(logs(cluster)) == 1)
        await move(admin, third, second)
        await send(producer, numbers(200, 300))
        await until(lambda: directories(cluster) == {second, third})
        await move(admin, third)
        await send(producer, numbers(300, 400))
        await move(admin, first, second, third)
        await cluster.wait_until_in_sync(TOPIC)
    assert [value for _, value in (await read_all(cluster.servers))[0]] == numbers(0, 400)
    await until(lambda: len(logs(cluster)) == 1)


async def test_a_group_goes_on_when_its_coordinator_moves_away(
    cluster: Cluster, admin: Admin
) -> None:
    await create_topic(cluster.servers, partitions=3)
    number = partition_for_group("g", OFFSETS_TOPIC_PARTITIONS)
    async with (
        Producer(cluster.servers) as producer,
        Consumer(cluster.servers, TOPIC, group="g", start="earliest") as consumer,
    ):
        await send(producer, numbers(0, 10))
        read: list[int] = []
        while len(read) < 10:
            read += [r.offset for r in await consumer.getmany()]
        await consumer.commit()
        old = await cluster.leader_of(OFFSETS_TOPIC, number)
        others = [each for each in cluster.brokers if each != old]
        await move(admin, *others, topic=OFFSETS_TOPIC, number=number)
        await send(producer, numbers(10, 20))
        while len(read) < 20:
            read += [r.offset for r in await consumer.getmany()]
        await consumer.commit()
    assert read == [*range(20)]
    assert await cluster.leader_of(OFFSETS_TOPIC, number) in others


async def test_a_reassignment_waits_for_its_new_broker_and_is_cancelled(
    cluster: Cluster, admin: Admin
) -> None:
    await create_topic(cluster.servers, replication_factor=1, min_isr=1)
    controller = await cluster.controller()
    old, away = (each for each in cluster.brokers if each != controller)
    await move(admin, old)
    await cluster.stop(away)
    (begun,) = (await admin.alter_partition_reassignments({PLACE: [away]})).values()
    begun.unwrap()
    ongoing = {PLACE: Reassignment((away, old), (away,), (old,), (old,))}
    assert await admin.list_partition_reassignments() == ongoing
    assert ongoing[PLACE].wanted == ongoing[PLACE].missing == (away,)
    # The same again is no other one.
    (again,) = (await admin.alter_partition_reassignments({PLACE: [away]})).values()
    assert again.unwrap()
    error = await refusal(admin, PLACE, [controller])
    assert isinstance(error, ReassignmentInProgress)
    assert f"is being reassigned to brokers {away}; wait until that is done" in str(error)
    assert await admin.list_partition_reassignments(["other"]) == {}
    assert await admin.list_partition_reassignments() == ongoing
    (cancelled,) = (await admin.alter_partition_reassignments({PLACE: None})).values()
    assert cancelled.unwrap()
    assert await admin.list_partition_reassignments() == {}
    await until(lambda: replicas(cluster) == (old,))
    error = await refusal(admin, PLACE, None)
    assert isinstance(error, NoReassignmentInProgress)


async def test_a_reassignment_is_replaced_only_if_that_is_asked_for(
    cluster: Cluster, admin: Admin
) -> None:
    await create_topic(cluster.servers, replication_factor=1, min_isr=1)
    controller = await cluster.controller()
    old, away = (each for each in cluster.brokers if each != controller)
    await move(admin, old)
    await cluster.stop(away)
    await admin.alter_partition_reassignments({PLACE: [away]})
    await admin.alter_partition_reassignments({PLACE: [controller]}, replace=True)
    await until(lambda: replicas(cluster) == (controller,))


async def test_a_broker_that_was_away_removes_what_moved_from_it(
    cluster: Cluster, admin: Admin
) -> None:
    await create_topic(cluster.servers)
    async with Producer(cluster.servers) as producer:
        await send(producer, numbers(0, 100))
    controller = await cluster.controller()
    away, other = (each for each in cluster.brokers if each != controller)
    await cluster.kill(away)
    await move(admin, controller, other)
    assert directories(cluster) == {1, 2, 3}
    await cluster.start(away)
    assert directories(cluster) == {controller, other}
    # Its place is free again.
    await move(admin, controller, other, away)
    assert directories(cluster) == {1, 2, 3}


async def test_a_reassignment_that_cannot_be_is_refused_with_what_to_do(
    cluster: Cluster, admin: Admin
) -> None:
    await create_topic(cluster.servers)
    await cluster.wait_until_in_sync(TOPIC)
    before = replicas(cluster)
    wrong: list[tuple[int, list[int] | None, type[BrokerError], str]] = [
        (0, [1, 9], InvalidReplicaAssignment, "Broker 9 is not there; the cluster has the brokers"),
        (0, [1, 1], InvalidReplicaAssignment, "name one broker at least, and each once"),
        (0, [], InvalidReplicaAssignment, "name one broker at least, and each once"),
        (0, [1], InvalidReplicaAssignment, "lower the setting first"),
        (7, [1, 2], UnknownTopicOrPartition, "has no partition 7; it has 0 to 0"),
        (0, None, NoReassignmentInProgress, "is not being reassigned"),
    ]
    for partition, brokers, kind, sentence in wrong:
        error = await refusal(admin, (TOPIC, partition), brokers)
        assert isinstance(error, kind)
        assert sentence in str(error)
    error = await refusal(admin, ("nope", 0), [1])
    assert isinstance(error, UnknownTopicOrPartition)
    assert replicas(cluster) == before


async def test_every_broker_takes_a_reassignment(cluster: Cluster) -> None:
    """W-4.30.1: a client need not find the active controller."""
    await create_topic(cluster.servers, replication_factor=1, min_isr=1)
    for each in cluster.brokers:
        async with connect(cluster.brokers[each].port) as wire:
            change = AlterPartitionReassignmentsRequest(
                (PartitionReassignment(TOPIC, 0, (each,)),), False
            )
            (result,) = (await wire.ask(change, AlterPartitionReassignmentsResponse)).partitions
            assert (result.topic, result.partition, result.error_code) == (TOPIC, 0, 0)
            request = ListPartitionReassignmentsRequest((TOPIC,))
            while (await wire.ask(request, ListPartitionReassignmentsResponse)).partitions:
                pass
        await until(partial(lambda wanted: directories(cluster) == {wanted}, each))
