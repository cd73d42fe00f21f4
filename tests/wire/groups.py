"""Checks of W-4.12 to W-4.16: finding a coordinator, joining, syncing, living, leaving."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from tests.wire.check import Target, check, codes, equal, true
from tests.wire.client import Connection
from tests.wire.layouts import Fields

SESSION_MS, REBALANCE_MS = 30_000, 60_000
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, FENCED_INSTANCE = 22, 25, 27, 82


def subscription(*topics: str) -> bytes:
    """A ConsumerProtocolSubscription of version 0 (W-9.4)."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


@dataclass
class Member:
    """A member of a group, on a connection of its own."""

    wire: Connection
    group: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    metadata: bytes = subscription("nope")

    def join_values(self, **changed: Any) -> list[Any]:
        """The values of a JoinGroup."""
        values = {
            "group": self.group,
            "session": SESSION_MS,
            "rebalance": REBALANCE_MS,
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "protocol_type": "consumer",
            "protocols": [("range", self.metadata)],
            "reason": None,
        }
        return list((values | changed).values())

    def send_join(self) -> int:
        return self.wire.send("JoinGroup", *self.join_values())

    def joined(self, sent: int) -> Fields:
        """The response of a join; the member knows its id and generation then."""
        found = self.wire.answer(sent)
        self.member_id, self.generation = found.member_id, found.generation
        return found

    def join(self) -> Fields:
        """Joins, with the id that a first answer gives to a new member."""
        found = self.joined(self.send_join())
        return self.join() if found.generation < 0 else found

    def sync_values(self, assignments: list[tuple[str, bytes]]) -> list[Any]:
        """The values of a SyncGroup."""
        who = (self.group, self.generation, self.member_id, self.instance_id)
        return [*who, "consumer", "range", assignments]

    def sync(self, *assignments: tuple[str, bytes]) -> bytes:
        """Syncs, as the leader with assignments; the assignment."""
        found = self.wire.call("SyncGroup", *self.sync_values(list(assignments)))
        return found.assignment  # type: ignore[no-any-return]

    def heartbeat(self, generation: int | None = None) -> int:
        """The code of a heartbeat: 0, or that of its refusal."""
        generation = self.generation if generation is None else generation
        values = (self.group, generation, self.member_id, self.instance_id)
        sent = self.wire.send("Heartbeat", *values)
        response = self.wire.receive()
        equal(response.correlation_id, sent, "correlation id")
        return response.error_code

    def leave(self) -> list[int]:
        left = self.wire.call("LeaveGroup", self.group, [(self.member_id, None, "done")])
        return codes(left.members)


def first_member(target: Target, wire: Connection, instance_id: str | None = None) -> Member:
    """The stable group of one member."""
    member = Member(wire, find_group(target, wire), instance_id=instance_id)
    member.join()
    equal(member.sync((member.member_id, b"all")), b"all", "the assignment")
    return member


def find_group(target: Target, wire: Connection) -> str:
    """A new group's name, its coordinator found."""
    group = target.name("group")
    found = wire.call("FindCoordinator", [group]).coordinators[0]
    equal(found.error_code, 0, "FindCoordinator")
    return group


@check("W-4.12", "W-4.12.1")
def a_coordinator_is_a_broker(target: Target) -> None:
    """Each group is answered for itself; a name of 0 or 250 characters is INVALID_GROUP_ID."""
    with target.connect() as wire:
        names = [target.name("group"), "x" * 249, "", "x" * 250]
        found = wire.call("FindCoordinator", names).coordinators
        equal(codes(found), [0, 0, 24, 24], "codes")
        equal([each.group for each in found], names, "groups")
        brokers = {(b.node_id, b.host, b.port) for b in wire.call("Metadata", []).brokers}
        true((found[0].node_id, found[0].host, found[0].port) in brokers, "no broker")
        equal((found[2].node_id, found[2].host, found[2].port), (-1, "", -1), "an error")


@check("W-4.12")
def the_offsets_topic_is_there_after_find_coordinator(target: Target) -> None:
    """It is internal, and compacted."""
    with target.connect() as wire:
        find_group(target, wire)
        found = wire.call("Metadata", ["__consumer_offsets"]).topics[0]
        equal((found.error_code, found.is_internal), (0, True), "the topic")


@check("W-4.12.1")
def a_group_needs_a_name(target: Target) -> None:
    """Every group api refuses a group without a name, or of 250 characters."""
    with target.connect() as wire:
        find_group(target, wire)
        for group in ("", "x" * 250):
            member = Member(wire, group)
            equal(wire.refusal("JoinGroup", *member.join_values()).code, 24, "JoinGroup")
            equal(wire.refusal("SyncGroup", *member.sync_values([])).code, 24, "SyncGroup")
            equal(member.heartbeat(), 24, "Heartbeat")
            equal(wire.refusal("LeaveGroup", group, []).code, 24, "LeaveGroup")
            equal(wire.refusal("OffsetCommit", group, -1, "", None, []).code, 24, "OffsetCommit")
            equal(wire.refusal("OffsetFetch", group, None).code, 24, "OffsetFetch")
            equal(codes(wire.call("DescribeGroups", [group]).groups), [24], "DescribeGroups")
            equal(codes(wire.call("DeleteGroups", [group]).groups), [24], "DeleteGroups")


@check("W-4.13.1")
def a_new_member_is_given_an_id_first(target: Target) -> None:
    """Generation -1, the id, and nothing else; the member joins again with it."""
    with target.connect() as wire:
        member = Member(wire, find_group(target, wire))
        found = member.joined(member.send_join())
        rest = (found.protocol_type, found.protocol, found.leader, found.members)
        equal((found.generation, rest), (-1, (None, None, "", [])), "the first answer")
        true(found.member_id, "no member id")
        mine = found.member_id
        equal(member.join().member_id, mine, "the member id")


@check("W-4.13.2", "W-4.13.3", "W-4.14.1")
def the_first_member_leads_a_generation(target: Target) -> None:
    """The leader is told all members with their metadata, and assigns."""
    with target.connect() as wire:
        member = Member(wire, find_group(target, wire))
        found = member.join()
        rest = (found.protocol_type, found.protocol, found.leader, found.skip_assignment)
        equal(rest, ("consumer", "range", member.member_id, False), "the answer")
        true(found.generation >= 0, "generation")
        equal(found.members, [{"member_id": member.member_id, "instance_id": None,
                               "metadata": member.metadata}], "members")  # fmt: skip
        synced = wire.call("SyncGroup", *member.sync_values([(member.member_id, b"all")]))
        given = (synced.protocol_type, synced.protocol, synced.assignment)
        equal(given, ("consumer", "range", b"all"), "the assignment")
        equal(member.heartbeat(), 0, "a heartbeat")


@check("W-4.13.2", "W-4.14.1", "W-4.15.1")
def a_second_member_rebalances_the_group(target: Target) -> None:
    """Heartbeats ask the first to join again; both get the next generation and their parts."""
    with target.connect() as wire, target.connect() as other:
        first = first_member(target, wire)
        before = first.generation
        second = Member(other, first.group)
        second.joined(second.send_join())
        waiting = second.send_join()
        while (code := first.heartbeat()) == 0:
            pass
        equal(code, REBALANCING, "the heartbeat")
        equal(wire.refusal("SyncGroup", *first.sync_values([])).code, REBALANCING, "SyncGroup")
        lead, follow = first.join(), second.joined(waiting)
        equal(lead.generation, before + 1, "the leader's generation")
        equal(follow.generation, lead.generation, "the follower's generation")
        equal((lead.leader, follow.leader), (first.member_id,) * 2, "the leader")
        equal((len(lead.members), follow.members), (2, []), "members")
        waiting = other.send("SyncGroup", *second.sync_values([]))
        parts = ((first.member_id, b"1"), (second.member_id, b"2"))
        equal(first.sync(*parts), b"1", "the leader's assignment")
        equal(other.answer(waiting).assignment, b"2", "the follower's assignment")
        equal((first.heartbeat(before), second.heartbeat()), (ILLEGAL_GENERATION, 0), "heartbeats")


@check("W-4.14.1")
def a_member_that_the_leader_leaves_out_gets_nothing(target: Target) -> None:
    """Its assignment is empty."""
    with target.connect() as wire:
        member = Member(wire, find_group(target, wire))
        member.join()
        equal(member.sync(("another", b"all")), b"", "the assignment")


@check("W-4.13.4")
def a_leader_that_joins_again_begins_a_generation(target: Target) -> None:
    """Also with the same metadata."""
    with target.connect() as wire:
        member = first_member(target, wire)
        before = member.generation
        equal(member.join().generation, before + 1, "the generation")


@check("W-4.13.4")
def a_follower_that_joins_again_is_told_the_present_generation(target: Target) -> None:
    """Unless its metadata has changed."""
    with target.connect() as wire, target.connect() as other:
        first = first_member(target, wire)
        second = Member(other, first.group)
        second.joined(second.send_join())
        waiting = second.send_join()
        while first.heartbeat() == 0:
            pass
        first.join()
        second.joined(waiting)
        first.sync()
        second.sync()
        held = second.generation
        equal(second.join().generation, held, "the same metadata")
        second.metadata = subscription("other")
        waiting = second.send_join()
        while first.heartbeat() == 0:
            pass
        equal(first.join().generation, held + 1, "new metadata")
        second.joined(waiting)


@check("W-4.13", "W-4.26")
def joins_that_cannot_be_are_refused(target: Target) -> None:
    """Session timeouts, protocols, ids and instances, each with its code."""
    with target.connect() as wire:
        member = first_member(target, wire)
        bad: list[tuple[dict[str, Any], int]] = [
            ({"session": 1}, 26),
            ({"session": 2**31 - 1}, 26),
            ({"protocol_type": "connect"}, 23),
            ({"protocols": [("other", b"")]}, 23),
            ({"protocols": []}, 23),
            ({"protocols": [(f"p{n}", b"") for n in range(33)]}, 23),
            ({"protocols": [("range", b""), ("range", b"")]}, 23),
            ({"member_id": "", "instance_id": ""}, 42),
            ({"member_id": "x" * 1_025}, 42),
            ({"member_id": "unknown"}, UNKNOWN_MEMBER),
        ]
        for changed, code in bad:
            refused = wire.refusal("JoinGroup", *member.join_values(**changed))
            equal(refused.code, code, f"{changed}"[:80])
        equal(member.heartbeat(), 0, "a heartbeat afterwards")


@check("W-4.14.1", "W-4.15", "W-4.26")
def requests_of_no_member_are_refused(target: Target) -> None:
    """UNKNOWN_MEMBER_ID for another id and without a group, ILLEGAL_GENERATION for another one."""
    with target.connect() as wire:
        member = first_member(target, wire)
        other = Member(wire, member.group, "unknown", generation=member.generation)
        alone = Member(wire, target.name("group"), "unknown", generation=1)
        for each in (other, alone):
            equal(each.heartbeat(), UNKNOWN_MEMBER, "Heartbeat")
            refused = wire.refusal("SyncGroup", *each.sync_values([]))
            equal(refused.code, UNKNOWN_MEMBER, "SyncGroup")
            equal(each.leave(), [UNKNOWN_MEMBER], "LeaveGroup")
        for generation in (member.generation + 1, -1):
            equal(member.heartbeat(generation), ILLEGAL_GENERATION, f"generation {generation}")
        values = member.sync_values([])
        values[5] = "roundrobin"
        equal(wire.refusal("SyncGroup", *values).code, 23, "another protocol")


@check("W-4.16")
def a_member_that_leaves_is_gone_at_once(target: Target) -> None:
    """The group is empty, and its heartbeats are refused."""
    with target.connect() as wire:
        member = first_member(target, wire)
        equal(member.leave(), [0], "LeaveGroup")
        equal(member.heartbeat(), UNKNOWN_MEMBER, "a heartbeat")
        equal(wire.call("DescribeGroups", [member.group]).groups[0].members, [], "members")


@check("W-4.13.4")
def a_static_member_takes_its_place_again(target: Target) -> None:
    """It gets no id first; its old id is FENCED_INSTANCE_ID from then on, its assignment stays."""
    with target.connect() as wire, target.connect() as other:
        old = Member(wire, find_group(target, wire), instance_id="one")
        found = old.joined(old.send_join())
        true(found.generation >= 0, "a static member was given an id first")
        old.sync((old.member_id, b"all"))
        new = Member(other, old.group, instance_id="one")
        found = new.joined(new.send_join())
        equal((found.generation, found.skip_assignment), (old.generation, True), "the generation")
        true(new.member_id != old.member_id, "the id is the same")
        equal(old.heartbeat(), FENCED_INSTANCE, "the old id")
        equal(new.sync(), b"all", "the assignment")
        equal(new.heartbeat(), 0, "the new id")


@check("W-4.16")
def a_static_member_is_removed_by_its_instance(target: Target) -> None:
    """With an empty member id; an instance that is not there is UNKNOWN_MEMBER_ID."""
    with target.connect() as wire:
        member = first_member(target, wire, "one")
        leaving = [("", "two", None), ("", "one", None)]
        found = wire.call("LeaveGroup", member.group, leaving).members
        equal(codes(found), [UNKNOWN_MEMBER, 0], "codes")
        equal([each.instance_id for each in found], ["two", "one"], "instances")
