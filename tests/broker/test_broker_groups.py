"""Consumer groups on a live broker: coordinator, offsets topic, and what a restart finds."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.group_admin import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from millrace_protocol.messages.group_membership import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinProtocol,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    MemberAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from millrace_protocol.messages.group_offsets import (
    CommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from millrace_protocol.metadata_records import PartitionChangeRecord
from millrace_server.config import BrokerConfig
from millrace_server.group.records import partition_for_group
from millrace_server.partitions.role import Role
from millrace_server.testing import Broker
from tests.broker.failing_disk import Faults, node_on
from tests.broker.wire import Wire, connect, reset, until

GROUP = "hourly"


def joining(member_id: str = "", *, rebalance_timeout_ms: int = 60_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        GROUP,
        60_000,
        rebalance_timeout_ms,
        member_id,
        None,
        "consumer",
        (JoinProtocol("range", b"clicks"),),
        None,
    )


async def find(wire: Wire) -> None:
    (found,) = (
        await wire.ask(FindCoordinatorRequest((GROUP,)), FindCoordinatorResponse)
    ).coordinators
    assert (found.error_code, found.node_id) == (0, 0)


async def new_id(wire: Wire) -> str:
    offered = await wire.ask(joining(), JoinGroupResponse)
    assert offered.generation == -1
    return offered.member_id


async def join_alone(wire: Wire) -> JoinGroupResponse:
    """The first member, assigned."""
    await find(wire)
    joined = await wire.ask(joining(await new_id(wire)), JoinGroupResponse)
    assert joined.leader == joined.member_id
    assert await sync(wire, joined, {joined.member_id: b"0,1"}) == b"0,1"
    return joined


def syncing(
    joined: JoinGroupResponse, assignments: dict[str, bytes] | None = None
) -> SyncGroupRequest:
    return SyncGroupRequest(
        GROUP,
        joined.generation,
        joined.member_id,
        None,
        joined.protocol_type,
        joined.protocol,
        tuple(MemberAssignment(*each) for each in (assignments or {}).items()),
    )


async def sync(
    wire: Wire, joined: JoinGroupResponse, assignments: dict[str, bytes] | None = None
) -> bytes:
    return (await wire.ask(syncing(joined, assignments), SyncGroupResponse)).assignment


def commit(joined: JoinGroupResponse | None, *places: tuple[str, int, int]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        GROUP,
        -1 if joined is None else joined.generation,
        "" if joined is None else joined.member_id,
        None,
        tuple(CommitPartition(*place, -1, "so far") for place in places),
    )


async def committed(wire: Wire) -> dict[tuple[str, int], int]:
    found = await wire.ask(OffsetFetchRequest(GROUP, None), OffsetFetchResponse)
    assert all(each.metadata == "so far" for each in found.partitions)
    return {(each.topic, each.partition): each.offset for each in found.partitions}


async def state_of_group(wire: Wire) -> str:
    (group,) = (await wire.ask(DescribeGroupsRequest((GROUP,)), DescribeGroupsResponse)).groups
    return group.state


async def code_of_group(wire: Wire) -> int:
    (group,) = (await wire.ask(DescribeGroupsRequest((GROUP,)), DescribeGroupsResponse)).groups
    return group.error_code


async def test_groups_take_few_directories_and_none_before_the_first(tmp_path: Path) -> None:
    """With the settings that a broker has by default."""

    def directories() -> list[str]:
        return [path.name for path in tmp_path.iterdir() if path.name.startswith("__consumer")]

    async with node_on(tmp_path, Faults()) as node, connect(node.address[1]) as wire:
        assert directories() == []
        await find(wire)
        assert 1 < len(directories()) <= 8
        used = {partition_for_group(f"group-{n}", len(directories())) for n in range(100)}
        assert len(used) == len(directories())


async def test_no_broker_coordinates_a_group_without_a_name(wire: Wire) -> None:
    """W-4.12.1: each group is answered for itself."""
    names = ("", GROUP, "x" * 249, "x" * 250)
    found = (await wire.ask(FindCoordinatorRequest(names), FindCoordinatorResponse)).coordinators
    invalid = ErrorCode.INVALID_GROUP_ID
    assert [each.error_code for each in found] == [invalid, 0, 0, invalid]
    assert [each.node_id for each in found] == [-1, 0, 0, -1]


async def test_offsets_that_are_committed_are_there_after_a_restart(
    broker: Broker, wire: Wire
) -> None:
    """W-4.17.1"""
    await wire.create("clicks", partitions=2)
    joined = await join_alone(wire)
    request = commit(joined, ("clicks", 0, 7), ("clicks", 1, 3), ("clicks", 2, 1), ("none", 0, 1))
    answer = await wire.ask(request, OffsetCommitResponse)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [p.error_code for p in answer.partitions] == [0, 0, unknown, unknown]
    await broker.restart()
    async with connect(broker.port) as again:
        assert await committed(again) == {("clicks", 0): 7, ("clicks", 1): 3}


async def test_a_member_stays_in_its_group_through_a_restart_of_the_broker(
    broker: Broker, wire: Wire
) -> None:
    joined = await join_alone(wire)
    await broker.restart()
    async with connect(broker.port) as again:
        request = HeartbeatRequest(GROUP, joined.generation, joined.member_id, None)
        await again.ask(request, HeartbeatResponse)
        (described,) = (
            await again.ask(DescribeGroupsRequest((GROUP,)), DescribeGroupsResponse)
        ).groups
    assert (described.state, described.generation) == ("Stable", joined.generation)
    (member,) = described.members
    assert (member.member_id, member.assignment) == (joined.member_id, b"0,1")
    assert member.client_id == "test"


async def test_a_second_member_makes_the_first_join_again(broker: Broker, wire: Wire) -> None:
    """W-4.13.2, W-4.15.1"""
    first = await join_alone(wire)
    async with connect(broker.port) as other:
        pending = asyncio.ensure_future(other.ask(joining(await new_id(other)), JoinGroupResponse))
        beat = HeartbeatRequest(GROUP, first.generation, first.member_id, None)
        while await state_of_group(wire) != "PreparingRebalance":
            pass
        assert (await wire.refused(beat))[0] is ErrorCode.REBALANCE_IN_PROGRESS
        again = await wire.ask(joining(first.member_id), JoinGroupResponse)
        second = await pending
        assert again.generation == second.generation == first.generation + 1
        assert {m.member_id for m in again.members} == {first.member_id, second.member_id}
        assert second.members == ()
        waiting = asyncio.ensure_future(sync(other, second))
        shares = {first.member_id: b"0", second.member_id: b"1"}
        assert (await sync(wire, again, shares), await waiting) == (b"0", b"1")
        code, message = await wire.refused(beat)
        assert code is ErrorCode.ILLEGAL_GENERATION
        assert str(again.generation) in message


async def test_a_member_that_leaves_is_not_waited_for(wire: Wire) -> None:
    joined = await join_alone(wire)
    leaving = LeaveGroupRequest(GROUP, (LeavingMember(joined.member_id, None, "done"),))
    (left,) = (await wire.ask(leaving, LeaveGroupResponse)).members
    assert left.error_code == 0
    (listed,) = (await wire.ask(ListGroupsRequest(("Empty",)), ListGroupsResponse)).groups
    assert (listed.group, listed.members) == (GROUP, 0)


async def test_the_offsets_of_a_deleted_topic_go_with_it(broker: Broker, wire: Wire) -> None:
    await find(wire)
    for name in ("clicks", "views"):
        await wire.create(name)
    await wire.ask(commit(None, ("clicks", 0, 7), ("views", 0, 9)), OffsetCommitResponse)
    await wire.delete("clicks")
    # Deleted after the topic, without a response.
    while ("clicks", 0) in await committed(wire):
        pass
    await broker.restart()
    async with connect(broker.port) as again:
        assert await committed(again) == {("views", 0): 9}


async def test_a_group_moves_with_the_leadership_of_its_partition(
    broker: Broker, wire: Wire
) -> None:
    """The coordinator ends when another broker leads, and is loaded when this one leads again."""
    await wire.create("clicks")
    joined = await join_alone(wire)
    request = commit(joined, ("clicks", 0, 7))
    await wire.ask(request, OffsetCommitResponse)
    node = broker.node.broker
    topic = node.image.topics["__consumer_offsets"]
    number = partition_for_group(GROUP, topic.partition_count)

    async def lead(broker_id: int) -> None:
        change = PartitionChangeRecord(topic.topic_id, number, None, None, broker_id, None)
        await node.active.change(lambda image: [change])

    async with connect(broker.port) as other:
        other.send(joining(await new_id(other)))
        while await state_of_group(wire) != "PreparingRebalance":
            pass
        await lead(9)
        assert (await other.refusal())[0] is ErrorCode.NOT_COORDINATOR
    assert (await wire.refused(request))[0] is ErrorCode.NOT_COORDINATOR
    found = await wire.ask(FindCoordinatorRequest((GROUP,)), FindCoordinatorResponse)
    assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await lead(0)
    await find(wire)
    while await code_of_group(wire) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        pass
    assert await committed(wire) == {("clicks", 0): 7}
    assert await state_of_group(wire) == "Stable"
    await wire.ask(commit(joined, ("clicks", 0, 8)), OffsetCommitResponse)
    assert await committed(wire) == {("clicks", 0): 8}


async def test_a_coordinator_that_is_loaded_early_waits_until_its_partition_leads(
    tmp_path: Path,
) -> None:
    """The metadata names the leader before the leader's log has begun the epoch."""
    faults = Faults()
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        await wire.create("clicks")
        await wire.ask(commit(await join_alone(wire), ("clicks", 0, 7)), OffsetCommitResponse)
        broker = node.broker
        topic = broker.image.topics["__consumer_offsets"]
        number = partition_for_group(GROUP, topic.partition_count)
        partition = broker.partitions.get(topic.name, number)

        async def lead(broker_id: int) -> None:
            change = PartitionChangeRecord(topic.topic_id, number, None, None, broker_id, None)
            await broker.active.change(lambda image: [change])

        await lead(9)
        faults.where = f"{topic.name}-{number}/"
        faults.may_sync.clear()
        leading = asyncio.ensure_future(lead(0))
        await until(lambda: broker.image.topics[topic.name].partitions[number].leader == 0)
        await find(wire)
        assert partition.leadership.role is Role.FOLLOWER
        for _ in range(3):
            assert await code_of_group(wire) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        faults.may_sync.set()
        await leading
        while await code_of_group(wire) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass
        assert await committed(wire) == {("clicks", 0): 7}


async def test_a_client_that_leaves_while_the_offsets_topic_is_created_leaves_a_coordinator(
    tmp_path: Path,
) -> None:
    faults = Faults()
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        metadata = node.broker.partitions.get("__cluster_metadata", 0).log
        end_offset = metadata.end_offset
        faults.may_sync.clear()
        async with connect(node.address[1]) as gone:
            gone.send(FindCoordinatorRequest((GROUP,)))
            await until(lambda: metadata.end_offset > end_offset)
            reset(gone.writer)
            await until(lambda: len(node.server.connections) == 1)
        faults.may_sync.set()
        await until(lambda: "__consumer_offsets" in node.broker.image.topics)
        await find(wire)
        assert await new_id(wire)


async def test_a_disk_that_refuses_the_offsets_topic_may_take_it_later(tmp_path: Path) -> None:
    faults = Faults(where="__consumer_offsets")
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        faults.errnos["open"] = errno.ENOSPC
        found = await wire.ask(FindCoordinatorRequest((GROUP,)), FindCoordinatorResponse)
        assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        faults.errnos.clear()
        await find(wire)
        assert await new_id(wire)


async def test_a_stopping_broker_finds_no_coordinator(broker: Broker, wire: Wire) -> None:
    broker.node.broker.answer_waiting()
    found = await wire.ask(FindCoordinatorRequest((GROUP,)), FindCoordinatorResponse)
    assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await wire.topics() == []


async def test_a_parked_join_is_answered_when_the_broker_stops(broker: Broker, wire: Wire) -> None:
    await join_alone(wire)
    async with connect(broker.port) as other:
        member_id = await new_id(other)
        other.send(joining(member_id))
        while await state_of_group(wire) != "PreparingRebalance":
            pass
        stopping = asyncio.ensure_future(broker.stop())
        code, _ = await other.refusal()
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await stopping


async def test_requests_are_refused_while_the_coordinator_loads_as_kafka_refuses_them(
    tmp_path: Path,
) -> None:
    """A sync gets REBALANCE_IN_PROGRESS, and a heartbeat is taken: no session runs yet."""
    faults = Faults()
    async with node_on(tmp_path, faults) as node, connect(node.address[1]) as wire:
        await find(wire)
    joined = JoinGroupResponse(1, "consumer", "range", "m", "m", False, ())
    faults.errnos["open"], faults.where = errno.EIO, "__consumer_offsets"
    async with (
        node_on(tmp_path, faults, start_wait_ms=1) as node,
        connect(node.address[1]) as wire,
    ):
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        code, message = await wire.refused(joining(joined.member_id))
        assert (code, "try again" in message) == (loading, True)
        for request in (commit(None), OffsetFetchRequest(GROUP, None), ListGroupsRequest(())):
            assert (await wire.refused(request))[0] is loading
        (described,) = (
            await wire.ask(DescribeGroupsRequest((GROUP,)), DescribeGroupsResponse)
        ).groups
        assert described.error_code == loading
        code, _ = await wire.refused(syncing(joined))
        assert code is ErrorCode.REBALANCE_IN_PROGRESS
        beat = HeartbeatRequest(GROUP, joined.generation, joined.member_id, None)
        await wire.ask(beat, HeartbeatResponse)
        faults.errnos.clear()


async def test_no_broker_coordinates_before_the_first_find_coordinator(wire: Wire) -> None:
    """W-4.12"""
    code, _ = await wire.refused(joining())
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await find(wire)
    assert "__consumer_offsets" in await wire.topics()
    assert await new_id(wire)


async def test_groups_take_eight_directories(tmp_path: Path) -> None:
    def directories() -> list[str]:
        return sorted(path.name for path in tmp_path.iterdir() if path.is_dir())

    # A broker of a test has fewer, unless told otherwise.
    count = BrokerConfig().offsets_topic_partitions
    async with (
        Broker(data=tmp_path, offsets_topic_partitions=count) as broker,
        connect(broker.port) as wire,
    ):
        assert directories() == ["__cluster_metadata-0"]
        await find(wire)
        expected = ["__cluster_metadata-0", *(f"__consumer_offsets-{n}" for n in range(8))]
        await until(lambda: directories() == expected)
