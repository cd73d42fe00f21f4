"""Groups as an operator sees them, on a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from millrace import Admin, Consumer, Producer, TopicPartition
from millrace.errors import (
    GroupNotEmpty,
    GroupNotFound,
    MemberFenced,
    TopicInUse,
    UnknownTopicOrPartition,
)
from millrace_server.testing import Broker
from tests.clients.watching import Watch

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker() as broker:
        async with Admin(broker.servers) as admin:
            await admin.create_topic("t", partitions=2)
        yield broker


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Admin]:
    async with Admin(broker.servers) as admin:
        yield admin


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    watch = Watch()
    yield watch
    await watch.end()


async def test_a_group_is_described_with_its_members_and_their_partitions(
    broker: Broker, admin: Admin, watch: Watch
) -> None:
    a = watch.add(Consumer(broker.servers, "t", group="g", client_id="a", heartbeat_interval_ms=20))
    b = watch.add(
        Consumer(
            broker.servers,
            "t",
            group="g",
            client_id="b",
            group_instance_id="desk-b",
            heartbeat_interval_ms=20,
        )
    )
    async with a, b:
        await watch.settled(a, b, partitions=2)
        found = await admin.describe_group("g")
        assert (found.group, found.state, found.protocol_type) == ("g", "Stable", "consumer")
        assert found.assignor == "cooperative-sticky"
        members = {member.client_id: member for member in found.members}
        assert members.keys() == {"a", "b"}
        for consumer, member in ((a, members["a"]), (b, members["b"])):
            assert list(member.assignment) == consumer.assignment()
            assert member.topics == ("t",)
        assert [members[each].instance_id for each in "ab"] == [None, "desk-b"]
        assert found.leader in {member.member_id for member in found.members}
        (listed,) = await admin.list_groups()
        assert (listed.group, listed.state, listed.members) == ("g", "Stable", 2)
        assert await admin.list_groups(states=["Empty"]) == []


async def test_offsets_are_listed_altered_and_deleted(broker: Broker, admin: Admin) -> None:
    done = await admin.alter_group_offsets("g", {T0: 4, T1: (7, "by hand")})
    assert {where: outcome.unwrap() for where, outcome in done.items()} == {T0: 4, T1: 7}
    found = await admin.list_group_offsets("g")
    assert {where: (each.offset, each.metadata) for where, each in found.items()} == {
        T0: (4, ""),
        T1: (7, "by hand"),
    }
    assert (await admin.list_group_offsets("g", [T0, ("t", 9)])).keys() == {T0}
    assert (await admin.delete_group_offsets("g", [T0]))[T0].unwrap()
    assert (await admin.list_group_offsets("g")).keys() == {T1}


async def test_many_partitions_are_altered_and_listed_in_several_requests(admin: Admin) -> None:
    await admin.create_topic("wide", partitions=1)
    asked: list[int] = []
    call = admin._cluster.connection

    async def counted(node_id: int, *, lane: str = "calls") -> object:
        connection = await call(node_id, lane=lane)
        original = connection.call

        async def noted(request: object, answer: object, *, timeout_ms: int) -> object:
            asked.append(len(getattr(request, "partitions", None) or ()))
            return await original(request, answer, timeout_ms=timeout_ms)  # type: ignore[arg-type]

        return type("Counted", (), {"call": staticmethod(noted)})()

    admin._cluster.connection = counted  # type: ignore[method-assign, assignment]
    offsets = {TopicPartition("wide", number): number for number in range(4_500)}
    done = await admin.alter_group_offsets("g", offsets)
    assert asked[:3] == [2_000, 2_000, 500]
    # Which do not exist is believed after a few tries: they might have just been created.
    assert 3 < len(asked) <= 12
    assert [where.partition for where, outcome in done.items() if outcome.error is None] == [0]
    with pytest.raises(UnknownTopicOrPartition):
        done[TopicPartition("wide", 1)].unwrap()
    asked.clear()
    assert (await admin.list_group_offsets("g", offsets)).keys() == {TopicPartition("wide", 0)}
    assert asked == [2_000, 2_000, 500]


async def test_a_group_with_members_is_neither_moved_nor_deleted(
    broker: Broker, admin: Admin, watch: Watch
) -> None:
    a = watch.add(Consumer(broker.servers, "t", group="g"))
    async with a:
        await watch.settled(a, partitions=2)
        await a.commit({T0: 0})
        outcome = (await admin.alter_group_offsets("g", {T0: 1}))[T0]
        with pytest.raises(MemberFenced, match="stop them first"):
            outcome.unwrap()
        with pytest.raises(GroupNotEmpty):
            await admin.delete_group("g")
        with pytest.raises(TopicInUse):
            (await admin.delete_group_offsets("g", [T0]))[T0].unwrap()
    await admin.delete_group("g")
    for gone in (admin.describe_group("g"), admin.delete_group("g")):
        with pytest.raises(GroupNotFound):
            await gone
    assert await admin.list_groups() == []


async def test_a_group_that_was_moved_goes_on_there(broker: Broker, admin: Admin) -> None:
    async with Producer(broker.servers) as producer:
        await producer.send_many("t", [b"%d" % number for number in range(20)], partition=0)
    await admin.alter_group_offsets("g", {T0: 13, T1: 0})
    async with Consumer(broker.servers, "t", group="g") as consumer:
        assert (await consumer.getone()).offset == 13
