"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup: being a member of a group.

A group's coordinator is the broker that leads the partition of `__consumer_offsets` its name
hashes to. What members subscribe to and are assigned travels as bytes that the coordinator does
not read (`consumer_protocol`).
"""

from __future__ import annotations

from millrace_protocol.primitives import BOOLEAN, BYTES, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire

NO_GENERATION = -1
"""Of a member that is not in the group yet, and of commits by no member."""

_GROUP = "group name"
_MEMBER = "the id that JoinGroup gave"
_INSTANCE = "name of a static member, which keeps its place over a restart; null for none"
_GENERATION = "the generation the member joined"


@message
class FindCoordinatorRequest(Request):
    """Asks for the coordinators of groups."""

    groups: tuple[str, ...] = wire(array_of(STRING), "group names")


@message
class FoundCoordinator(Message):
    """The coordinator of one group."""

    group: str = wire(STRING, _GROUP)
    error_code: int = wire(INT16, "error of this group (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    node_id: int = wire(INT32, "the coordinating broker; -1 on error")
    host: str = wire(STRING, "its host name or address; empty on error")
    port: int = wire(INT32, "its port; -1 on error")


@message
class FindCoordinatorResponse(Message):
    """One result per group, in the request's order."""

    coordinators: tuple[FoundCoordinator, ...] = wire(array_of(FoundCoordinator), "the results")


@message
class JoinProtocol(Message):
    """A way of assigning partitions that a member supports."""

    name: str = wire(STRING, "name of the assignor, the same in all members")
    metadata: bytes = wire(BYTES, "bytes for the leader")


@message
class JoinGroupRequest(Request):
    """Joins a group, or joins it again; the response comes when all members have joined."""

    group: str = wire(STRING, _GROUP)
    session_timeout_ms: int = wire(
        INT32, "a member that sends nothing for longer is removed", unit="ms"
    )
    rebalance_timeout_ms: int = wire(
        INT32, "longest wait of the group for this member to join again", unit="ms"
    )
    member_id: str = wire(STRING, "the id that JoinGroup gave; empty for a new member")
    instance_id: str | None = wire(NULLABLE_STRING, _INSTANCE)
    protocol_type: str = wire(STRING, '"consumer" for consumers; the same in all members')
    protocols: tuple[JoinProtocol, ...] = wire(array_of(JoinProtocol), "in order of preference")
    reason: str | None = wire(NULLABLE_STRING, "reason, for the broker's log")


@message
class JoinedMember(Message):
    """A member, as the leader sees it."""

    member_id: str = wire(STRING, "the id that JoinGroup gave it")
    instance_id: str | None = wire(NULLABLE_STRING, _INSTANCE)
    metadata: bytes = wire(BYTES, "its metadata for the chosen protocol")


@message
class JoinGroupResponse(Message):
    """The new generation; or, with generation -1, the id to join with."""

    generation: int = wire(INT32, "-1: nothing was joined yet, join again with `member_id`")
    protocol_type: str | None = wire(NULLABLE_STRING, "that of the group; null without generation")
    protocol: str | None = wire(NULLABLE_STRING, "chosen protocol; null without generation")
    leader: str = wire(STRING, "member id of the leader, which assigns; empty without generation")
    member_id: str = wire(STRING, "the id of the member that joins")
    skip_assignment: bool = wire(
        BOOLEAN, "the leader is a static member that came back: the assignment stays"
    )
    members: tuple[JoinedMember, ...] = wire(
        array_of(JoinedMember), "all members for the leader, none for the others"
    )


@message
class MemberAssignment(Message):
    """The assignment of one member."""

    member_id: str = wire(STRING, "the member")
    assignment: bytes = wire(BYTES, "its assignment")


@message
class SyncGroupRequest(Request):
    """Asks for the assignment; the leader's request brings those of all members."""

    group: str = wire(STRING, _GROUP)
    generation: int = wire(INT32, _GENERATION)
    member_id: str = wire(STRING, _MEMBER)
    instance_id: str | None = wire(NULLABLE_STRING, _INSTANCE)
    protocol_type: str | None = wire(
        NULLABLE_STRING, "as in the response of JoinGroup; null: not checked"
    )
    protocol: str | None = wire(
        NULLABLE_STRING, "as in the response of JoinGroup; null: not checked"
    )
    assignments: tuple[MemberAssignment, ...] = wire(
        array_of(MemberAssignment), "from the leader: one for each member that gets partitions"
    )


@message
class SyncGroupResponse(Message):
    """The member's assignment."""

    protocol_type: str | None = wire(NULLABLE_STRING, "that of the group")
    protocol: str | None = wire(NULLABLE_STRING, "protocol of the assignment")
    assignment: bytes = wire(BYTES, "the assignment; empty when there is none")


@message
class HeartbeatRequest(Request):
    """Renews the session of a member."""

    group: str = wire(STRING, _GROUP)
    generation: int = wire(INT32, _GENERATION)
    member_id: str = wire(STRING, _MEMBER)
    instance_id: str | None = wire(NULLABLE_STRING, _INSTANCE)


@message
class HeartbeatResponse(Message):
    """The member is in the group, and nothing has changed."""


@message
class LeavingMember(Message):
    """A member by its id, or by the name of its instance."""

    member_id: str = wire(STRING, "the id that JoinGroup gave; empty with an instance id")
    instance_id: str | None = wire(NULLABLE_STRING, _INSTANCE)
    reason: str | None = wire(NULLABLE_STRING, "reason, for the broker's log")


@message
class LeaveGroupRequest(Request):
    """Removes members from a group; the others take over their partitions."""

    group: str = wire(STRING, _GROUP)
    members: tuple[LeavingMember, ...] = wire(array_of(LeavingMember), "the members that leave")


@message
class LeftMember(Message):
    """The result of one member."""

    member_id: str = wire(STRING, "as in the request")
    instance_id: str | None = wire(NULLABLE_STRING, "as in the request")
    error_code: int = wire(INT16, "error of this member (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")


@message
class LeaveGroupResponse(Message):
    """One result per member, in the request's order."""

    members: tuple[LeftMember, ...] = wire(array_of(LeftMember), "the results")
