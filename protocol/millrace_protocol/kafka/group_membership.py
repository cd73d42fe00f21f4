"""JoinGroup (11), SyncGroup (14), Heartbeat (12), LeaveGroup (13): members of classic groups."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import (
    BOOLEAN,
    BYTES,
    INT16,
    INT32,
    NULLABLE_STRING,
    STRING,
)
from millrace_protocol.schema import Message, array_of, message, wire


@message
class JoinGroupRequestProtocol(Message):
    """An assignor that the member has."""

    name: str = wire(STRING, "name of the assignor")
    metadata: bytes = wire(BYTES, "what it has to know of the member")


@message
class JoinGroupRequest(KafkaRequest):
    """Joins a group, or joins it anew."""

    flexible_since: ClassVar[int | None] = 6

    group_id: str = wire(STRING, "name of the group")
    session_timeout_ms: int = wire(INT32, "how long the member may be silent", unit="ms")
    rebalance_timeout_ms: int = wire(
        INT32, "how long it may take to join; -1: the session timeout", since=1, default=-1
    )
    member_id: str = wire(STRING, "id of the member; empty: a new one", default="")
    group_instance_id: str | None = wire(
        NULLABLE_STRING, "id of a static member (KIP-345)", since=5, default=None
    )
    protocol_type: str = wire(STRING, "kind of the group", default="")
    protocols: tuple[JoinGroupRequestProtocol, ...] = wire(
        array_of(JoinGroupRequestProtocol), "the assignors, the favourite first", default=()
    )
    reason: str | None = wire(NULLABLE_STRING, "why it joins (KIP-800)", since=8, default=None)


@message
class JoinGroupResponseMember(Message):
    """A member, for the leader."""

    member_id: str = wire(STRING, "id of the member")
    group_instance_id: str | None = wire(
        NULLABLE_STRING, "id of a static member", since=5, default=None
    )
    metadata: bytes = wire(BYTES, "what the assignor has to know", default=b"")


@message
class JoinGroupResponse(Message):
    """The new generation."""

    flexible_since: ClassVar[int | None] = 6

    throttle_time_ms: int = wire(INT32, "how long the client was held up", since=2, default=0)
    error_code: int = wire(INT16, "error of the request", default=0)
    generation_id: int = wire(INT32, "the generation; -1: none", default=-1)
    protocol_type: str | None = wire(NULLABLE_STRING, "kind of the group", since=7, default=None)
    protocol_name: str | None = wire(
        STRING, "the assignor that all members have", nullable_since=7, default=""
    )
    leader: str = wire(STRING, "id of the member that assigns", default="")
    skip_assignment: bool = wire(
        BOOLEAN, "the leader keeps the assignment (KIP-814)", since=9, default=False
    )
    member_id: str = wire(STRING, "id of the member", default="")
    members: tuple[JoinGroupResponseMember, ...] = wire(
        array_of(JoinGroupResponseMember), "all members, for the leader", default=()
    )


@message
class SyncGroupRequestAssignment(Message):
    """What a member gets."""

    member_id: str = wire(STRING, "id of the member")
    assignment: bytes = wire(BYTES, "its partitions")


@message
class SyncGroupRequest(KafkaRequest):
    """Asks for the assignment; the leader brings all."""

    flexible_since: ClassVar[int | None] = 4

    group_id: str = wire(STRING, "name of the group")
    generation_id: int = wire(INT32, "the generation")
    member_id: str = wire(STRING, "id of the member")
    group_instance_id: str | None = wire(
        NULLABLE_STRING, "id of a static member", since=3, default=None
    )
    protocol_type: str | None = wire(NULLABLE_STRING, "kind of the group", since=5, default=None)
    protocol_name: str | None = wire(NULLABLE_STRING, "the assignor", since=5, default=None)
    assignments: tuple[SyncGroupRequestAssignment, ...] = wire(
        array_of(SyncGroupRequestAssignment), "one for each member", default=()
    )


@message
class SyncGroupResponse(Message):
    """The assignment of the member."""

    flexible_since: ClassVar[int | None] = 4

    throttle_time_ms: int = wire(INT32, "how long the client was held up", since=1, default=0)
    error_code: int = wire(INT16, "error of the request", default=0)
    protocol_type: str | None = wire(NULLABLE_STRING, "kind of the group", since=5, default=None)
    protocol_name: str | None = wire(NULLABLE_STRING, "the assignor", since=5, default=None)
    assignment: bytes = wire(BYTES, "its partitions", default=b"")


@message
class HeartbeatRequest(KafkaRequest):
    """A member is there."""

    flexible_since: ClassVar[int | None] = 4

    group_id: str = wire(STRING, "name of the group")
    generation_id: int = wire(INT32, "the generation")
    member_id: str = wire(STRING, "id of the member")
    group_instance_id: str | None = wire(
        NULLABLE_STRING, "id of a static member", since=3, default=None
    )


@message
class HeartbeatResponse(Message):
    """Whether the member has to join again."""

    flexible_since: ClassVar[int | None] = 4

    throttle_time_ms: int = wire(INT32, "how long the client was held up", since=1, default=0)
    error_code: int = wire(INT16, "error of the request", default=0)


@message
class MemberIdentity(Message):
    """A member that leaves."""

    member_id: str = wire(STRING, "id of the member")
    group_instance_id: str | None = wire(NULLABLE_STRING, "id of a static member", default=None)
    reason: str | None = wire(NULLABLE_STRING, "why it leaves (KIP-800)", since=5, default=None)


@message
class LeaveGroupRequest(KafkaRequest):
    """One member leaves, or since version 3 several."""

    flexible_since: ClassVar[int | None] = 4

    group_id: str = wire(STRING, "name of the group")
    member_id: str = wire(STRING, "id of the member", until=2, default="")
    members: tuple[MemberIdentity, ...] = wire(
        array_of(MemberIdentity), "the members", since=3, default=()
    )


@message
class MemberResponse(Message):
    """A member that has left, or not."""

    member_id: str = wire(STRING, "id of the member")
    group_instance_id: str | None = wire(NULLABLE_STRING, "id of a static member", default=None)
    error_code: int = wire(INT16, "error of the member", default=0)


@message
class LeaveGroupResponse(Message):
    """Each member for itself."""

    flexible_since: ClassVar[int | None] = 4

    throttle_time_ms: int = wire(INT32, "how long the client was held up", since=1, default=0)
    error_code: int = wire(INT16, "error of the request", default=0)
    members: tuple[MemberResponse, ...] = wire(
        array_of(MemberResponse), "the members", since=3, default=()
    )
