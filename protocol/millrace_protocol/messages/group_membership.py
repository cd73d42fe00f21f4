"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup: being a member of a group.

A group's coordinator is the broker that leads the partition of `__consumer_offsets` its name
hashes to. What members subscribe to and are assigned travels as bytes that the coordinator does
not read (`consumer_protocol`).
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace_protocol.primitives import BOOLEAN, BYTES, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, wire

NO_GENERATION = -1
"""Of a member that is not in the group yet, and of commits by no member."""

_GROUP = "group name"
_MEMBER = "the id that JoinGroup gave"
_INSTANCE = "name of a static member, which keeps its place over a restart; null for none"
_GENERATION = "the generation the member joined"


@dataclass(slots=True)
class FindCoordinatorRequest(Request):
    """Asks where groups are coordinated."""

    groups: tuple[str, ...] = wire(array_of(STRING), "group names")


@dataclass(slots=True)
class FoundCoordinator(Message):
    """Where one group is coordinated."""

    group: str = wire(STRING, _GROUP)
    error_code: int = wire(INT16, "error of this group (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "what was wrong, for a person")
    node_id: int = wire(INT32, "the broker to talk to; -1 on error")
    host: str = wire(STRING, "its host name or address; empty on error")
    port: int = wire(INT32, "its port; -1 on error")


@dataclass(slots=True)
class FindCoordinatorResponse(Message):
    """One answer per group, in the request's order."""

    coordinators: tuple[FoundCoordinator, ...] = wire(array_of(FoundCoordinator), "the answers")


@dataclass(slots=True)
class JoinProtocol(Message):
    """A way of assigning partitions that a member supports."""

    name: str = wire(STRING, "name of the assignor, the same in all members")
    metadata: bytes = wire(BYTES, "what the leader is told of the member")


@dataclass(slots=True)
class JoinGroupRequest(Request):
    """Joins a group, or joins it again; answered when the others have joined too."""

    group: str = wire(STRING, _GROUP)
    session_timeout_ms: int = wire(INT32, "a member that is silent for longer is dead", unit="ms")
    rebalance_timeout_ms: int = wire(
        INT32, "how long the others wait for this member to join again", unit="ms"
    )
    member_id: str = wire(STRING, "the id that JoinGroup gave; empty for a new member")
    instance_id: str | None = wire(NULLABLE_STRING, _INSTANCE)
    protocol_type: str = wire(STRING, '"consumer" for consumers; the same in all members')
    protocols: tuple[JoinProtocol, ...] = wire(array_of(JoinProtocol), "in order of preference")
    reason: str | None = wire(NULLABLE_STRING, "why it joins, for the broker's log")


@dataclass(slots=True)
class JoinedMember(Message):
    """A member, as the leader is told of it."""

    member_id: str = wire(STRING, "the id that JoinGroup gave it")
    instance_id: str | None = wire(NULLABLE_STRING, _INSTANCE)
    metadata: bytes = wire(BYTES, "its metadata for the chosen protocol")


@dataclass(slots=True)
class JoinGroupResponse(Message):
    """The new generation; or, with generation -1, the id to join with."""

    generation: int = wire(INT32, "-1: nothing was joined yet, join again with `member_id`")
    protocol_type: str | None = wire(NULLABLE_STRING, "that of the group; null without generation")
    protocol: str | None = wire(NULLABLE_STRING, "chosen protocol; null without generation")
    leader: str = wire(STRING, "member id of the leader, which assigns; empty without generation")
    member_id: str = wire(STRING, "the id of the one that asked")
    skip_assignment: bool = wire(
        BOOLEAN, "the leader is a static member that came back: the assignment stays"
    )
    members: tuple[JoinedMember, ...] = wire(
        array_of(JoinedMember), "all members for the leader, none for the others"
    )


@dataclass(slots=True)
class MemberAssignment(Message):
    """What the leader gives to one member."""

    member_id: str = wire(STRING, "whom")
    assignment: bytes = wire(BYTES, "what")


@dataclass(slots=True)
class SyncGroupRequest(Request):
    """Asks for the assignment, and for the leader states it; answered when the leader has."""

    group: str = wire(STRING, _GROUP)
    generation: int = wire(INT32, _GENERATION)
    member_id: str = wire(STRING, _MEMBER)
    instance_id: str | None = wire(NULLABLE_STRING, _INSTANCE)
    protocol_type: str | None = wire(NULLABLE_STRING, "as JoinGroup answered; null to not check")
    protocol: str | None = wire(NULLABLE_STRING, "as JoinGroup answered; null to not check")
    assignments: tuple[MemberAssignment, ...] = wire(
        array_of(MemberAssignment), "by the leader: one for each member that gets anything"
    )


@dataclass(slots=True)
class SyncGroupResponse(Message):
    """What the member was given."""

    protocol_type: str | None = wire(NULLABLE_STRING, "that of the group")
    protocol: str | None = wire(NULLABLE_STRING, "protocol of the assignment")
    assignment: bytes = wire(BYTES, "the assignment; empty when there is none")


@dataclass(slots=True)
class HeartbeatRequest(Request):
    """Says that a member lives."""

    group: str = wire(STRING, _GROUP)
    generation: int = wire(INT32, _GENERATION)
    member_id: str = wire(STRING, _MEMBER)
    instance_id: str | None = wire(NULLABLE_STRING, _INSTANCE)


@dataclass(slots=True)
class HeartbeatResponse(Message):
    """The member is in the group, and nothing has changed."""


@dataclass(slots=True)
class LeavingMember(Message):
    """One that goes, by its id or by the name of its instance."""

    member_id: str = wire(STRING, "the id that JoinGroup gave; empty with an instance id")
    instance_id: str | None = wire(NULLABLE_STRING, _INSTANCE)
    reason: str | None = wire(NULLABLE_STRING, "why it leaves, for the broker's log")


@dataclass(slots=True)
class LeaveGroupRequest(Request):
    """Takes members out of a group; the others share what they had."""

    group: str = wire(STRING, _GROUP)
    members: tuple[LeavingMember, ...] = wire(array_of(LeavingMember), "who goes")


@dataclass(slots=True)
class LeftMember(Message):
    """What became of one that wanted to go."""

    member_id: str = wire(STRING, "as asked")
    instance_id: str | None = wire(NULLABLE_STRING, "as asked")
    error_code: int = wire(INT16, "error of this member (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "what was wrong, for a person")


@dataclass(slots=True)
class LeaveGroupResponse(Message):
    """One result per member, in the request's order."""

    members: tuple[LeftMember, ...] = wire(array_of(LeftMember), "the results")
