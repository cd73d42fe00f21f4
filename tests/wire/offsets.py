"""Checks of W-4.17 to W-4.22: committed offsets, and groups as tools see them."""

from __future__ import annotations

from typing import Any

from tests.wire.check import Target, check, codes, equal, true
from tests.wire.client import Connection
from tests.wire.groups import (
    ILLEGAL_GENERATION,
    REBALANCING,
    UNKNOWN_MEMBER,
    Member,
    find_group,
    first_member,
    subscription,
)

NO_OFFSET = (-1, -1, None)


def commit(wire: Connection, group: str, *partitions: tuple[Any, ...]) -> list[int]:
    """Commits without being a member; the codes."""
    return codes(wire.call("OffsetCommit", group, -1, "", None, partitions).partitions)


def committed(wire: Connection, group: str, topic: str, partition: int = 0) -> tuple[Any, ...]:
    """Offset, leader epoch and metadata of a partition."""
    found = wire.call("OffsetFetch", group, [(topic, partition)]).partitions[0]
    equal(found.error_code, 0, "OffsetFetch")
    return found.offset, found.leader_epoch, found.metadata


@check("W-4.17.1", "W-4.18")
def a_group_without_members_takes_commits_of_any_client(target: Target) -> None:
    """Generation -1 and no member id; what is committed is fetched as it was."""
    with target.connect() as wire:
        group, topic = find_group(target, wire), target.topic(wire, partitions=2)
        equal(commit(wire, group, (topic, 0, 7, 3, "note"), (topic, 1, 0, -1, None)), [0, 0], "")
        equal(committed(wire, group, topic), (7, 3, "note"), "partition 0")
        equal(committed(wire, group, topic, 1)[:2], (0, -1), "partition 1")
        everything = wire.call("OffsetFetch", group, None).partitions
        equal([(p.partition, p.offset) for p in everything], [(0, 7), (1, 0)], "all partitions")
        true(everything[0].commit_time_ms > 10**12, "no commit time")


@check("W-4.18")
def what_was_not_committed_has_offset_minus_1(target: Target) -> None:
    """Also in a group and a topic that are not there."""
    with target.connect() as wire:
        group = find_group(target, wire)
        found = wire.call("OffsetFetch", group, [(target.name(), 4)]).partitions[0]
        rest = (found.error_code, found.offset, found.leader_epoch, found.commit_time_ms)
        equal(rest, (0, -1, -1, -1), "the result")
        equal(wire.call("OffsetFetch", group, None).partitions, [], "all partitions")


@check("W-4.17.1", "W-6.7")
def each_partition_of_a_commit_is_answered_for_itself(target: Target) -> None:
    """Partitions that are not there, offsets below 0, metadata that is too long."""
    with target.connect() as wire:
        group, topic = find_group(target, wire), target.topic(wire)
        found = commit(
            wire,
            group,
            (topic, 0, 5, -1, "x" * 4_096),
            (topic, 1, 5, -1, None),
            (target.name(), 0, 5, -1, None),
            (topic, 0, -1, -1, None),
            (topic, 0, 6, -1, "x" * 40_00 + "x" * 97),
        )
        equal(found, [0, 3, 3, 1, 12], "codes")
        equal(committed(wire, group, topic)[0], 5, "the committed offset")


@check("W-4.17.1")
def an_offset_beyond_the_end_is_committed_and_the_last_of_two_counts(target: Target) -> None:
    """The broker does not compare offsets with the log."""
    with target.connect() as wire:
        group, topic = find_group(target, wire), target.topic(wire)
        found = commit(wire, group, (topic, 0, 10**9, -1, None), (topic, 0, 3, -1, None))
        equal(found, [0, 0], "codes")
        equal(committed(wire, group, topic)[0], 3, "the committed offset")


@check("W-4.17.1", "W-4.26")
def only_members_commit_to_a_group_with_members(target: Target) -> None:
    """As a member of the generation; others are refused."""
    with target.connect() as wire:
        member, topic = first_member(target, wire), target.topic(wire)
        entry = [(topic, 0, 1, -1, None)]
        who = (member.group, member.generation, member.member_id, None)
        equal(codes(wire.call("OffsetCommit", *who, entry).partitions), [0], "the member")
        for generation, member_id, code in (
            (-1, "", UNKNOWN_MEMBER),
            (member.generation, "unknown", UNKNOWN_MEMBER),
            (member.generation + 1, member.member_id, ILLEGAL_GENERATION),
        ):
            values = (member.group, generation, member_id, None, entry)
            equal(wire.refusal("OffsetCommit", *values).code, code, f"{generation} {member_id!r}")
        alone = (target.name("group"), 1, "unknown", None, entry)
        equal(wire.refusal("OffsetCommit", *alone).code, ILLEGAL_GENERATION, "no group")


@check("W-4.17.1", "W-4.26")
def between_join_and_sync_a_commit_is_refused(target: Target) -> None:
    """REBALANCE_IN_PROGRESS: the generation has no assignment yet."""
    with target.connect() as wire:
        topic = target.topic(wire)
        member = Member(wire, find_group(target, wire))
        member.join()
        who = (member.group, member.generation, member.member_id, None)
        refused = wire.refusal("OffsetCommit", *who, [(topic, 0, 1, -1, None)])
        equal(refused.code, REBALANCING, "before SyncGroup")
        equal(member.heartbeat(), 0, "a heartbeat before SyncGroup")
        member.sync()
        found = wire.call("OffsetCommit", *who, [(topic, 0, 1, -1, None)]).partitions
        equal(codes(found), [0], "after SyncGroup")


@check("W-4.17.1", "W-4.8")
def offsets_go_with_their_topic(target: Target) -> None:
    """A topic of the same name begins without them."""
    with target.connect() as wire:
        group, topic = find_group(target, wire), target.topic(wire)
        commit(wire, group, (topic, 0, 7, -1, None))
        wire.call("DeleteTopics", [topic])
        for _ in range(1_000):
            if committed(wire, group, topic)[0] == -1:
                return
        raise AssertionError("the offset of the deleted topic is still there")


@check("W-4.19")
def offsets_are_deleted_unless_a_member_reads_the_topic(target: Target) -> None:
    """GROUP_SUBSCRIBED_TO_TOPIC for those; a group that is not there is GROUP_ID_NOT_FOUND."""
    with target.connect() as wire:
        read, other = target.topic(wire), target.topic(wire)
        member = Member(wire, find_group(target, wire), metadata=subscription(read))
        commit(wire, member.group, (read, 0, 1, -1, None), (other, 0, 2, -1, None))
        member.join()
        member.sync()
        asked = [(read, 0), (other, 0), (other, 9)]
        found = wire.call("OffsetDelete", member.group, asked).partitions
        equal(codes(found), [86, 0, 0], "codes")
        left = (committed(wire, member.group, read)[0], committed(wire, member.group, other)[0])
        equal(left, (1, -1), "offsets")
        equal(wire.refusal("OffsetDelete", target.name("group"), []).code, 69, "no group")


@check("W-4.20")
def groups_are_listed_by_state(target: Target) -> None:
    """Every group with its state and members; a state that there is not is refused."""
    with target.connect() as wire:
        member, empty, topic = first_member(target, wire), find_group(target, wire), target.name()
        topic = target.topic(wire)
        commit(wire, empty, (topic, 0, 1, -1, None))
        listed = {each.group: each for each in wire.call("ListGroups", []).groups}
        found = listed[member.group]
        equal((found.state, found.protocol_type, found.members), ("Stable", "consumer", 1), "one")
        equal((listed[empty].state, listed[empty].members), ("Empty", 0), "the other")
        stable = [each.group for each in wire.call("ListGroups", ["Stable"]).groups]
        equal((member.group in stable, empty in stable), (True, False), "stable groups")
        equal(wire.refusal("ListGroups", ["stable"]).code, 42, "a state that there is not")


@check("W-4.21")
def a_stable_group_is_described_with_its_members(target: Target) -> None:
    """Metadata and assignments are shown while it is stable; no group is Dead, with code 69."""
    with target.connect() as wire:
        member = first_member(target, wire)
        found, missing = wire.call("DescribeGroups", [member.group, target.name()]).groups
        rest = (found.state, found.generation, found.protocol_type, found.protocol, found.leader)
        expected = ("Stable", member.generation, "consumer", "range", member.member_id)
        equal(rest, expected, "the group")
        (one,) = found.members
        rest = (one.member_id, one.instance_id, one.client_id, one.metadata, one.assignment)
        equal(rest, (member.member_id, None, "wire", member.metadata, b"all"), "the member")
        true(one.client_host, "no host")
        equal((missing.error_code, missing.state, missing.members), (69, "Dead", []), "no group")


@check("W-4.22")
def a_group_is_deleted_with_its_offsets(target: Target) -> None:
    """NON_EMPTY_GROUP for a group with members, GROUP_ID_NOT_FOUND for none."""
    with target.connect() as wire:
        member, empty, topic = first_member(target, wire), find_group(target, wire), ""
        topic = target.topic(wire)
        commit(wire, empty, (topic, 0, 1, -1, None))
        asked = [member.group, empty, target.name("group")]
        equal(codes(wire.call("DeleteGroups", asked).groups), [68, 0, 69], "codes")
        equal(committed(wire, empty, topic)[0], -1, "the committed offset")
        equal(member.heartbeat(), 0, "the group with a member")
