"""DescribeGroups (15), ListGroups (16) and DeleteGroups (42): groups as a tool sees them."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.metadata import UNKNOWN_OPERATIONS
from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import BOOLEAN, BYTES, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class DescribeGroupsRequest(KafkaRequest):
    """Asks for groups with their members."""

    flexible_since: ClassVar[int | None] = 5

    groups: tuple[str, ...] = wire(array_of(STRING), "names of the groups")
    include_authorized_operations: bool = wire(
        BOOLEAN, "tell what the client may do", since=3, default=False
    )


@message
class DescribedGroupMember(Message):
    """A member; its metadata and its assignment are the bytes of its clients."""

    member_id: str = wire(STRING, "id of the member")
    group_instance_id: str | None = wire(
        NULLABLE_STRING, "id of a static member", since=4, default=None
    )
    client_id: str = wire(STRING, "name of its client", default="")
    client_host: str = wire(STRING, "address of its client", default="")
    member_metadata: bytes = wire(BYTES, "what it said for the chosen protocol", default=b"")
    member_assignment: bytes = wire(BYTES, "what the leader assigned to it", default=b"")


@message
class DescribedGroup(Message):
    """A group, or why there is none."""

    error_code: int = wire(INT16, "error of the group")
    error_message: str | None = wire(NULLABLE_STRING, "the reason", since=6, default=None)
    group_id: str = wire(STRING, "name of the group", default="")
    group_state: str = wire(STRING, "its state", default="")
    protocol_type: str = wire(STRING, "what its members do together", default="")
    protocol_data: str = wire(STRING, "the chosen protocol; empty unless stable", default="")
    members: tuple[DescribedGroupMember, ...] = wire(
        array_of(DescribedGroupMember), "the members", default=()
    )
    authorized_operations: int = wire(
        INT32, "what the client may do, as bits", since=3, default=UNKNOWN_OPERATIONS
    )


@message
class DescribeGroupsResponse(Message):
    """Each group for itself."""

    flexible_since: ClassVar[int | None] = 5

    throttle_time_ms: int = wire(INT32, "how long the client was held up", since=1, default=0)
    groups: tuple[DescribedGroup, ...] = wire(array_of(DescribedGroup), "the groups", default=())


@message
class ListGroupsRequest(KafkaRequest):
    """Asks for the groups of which this broker is the coordinator."""

    flexible_since: ClassVar[int | None] = 3

    states_filter: tuple[str, ...] = wire(
        array_of(STRING), "states to list; empty: all", since=4, default=()
    )
    types_filter: tuple[str, ...] = wire(
        array_of(STRING), "types to list; empty: all", since=5, default=()
    )


@message
class ListedGroup(Message):
    """A group."""

    group_id: str = wire(STRING, "name of the group")
    protocol_type: str = wire(STRING, "what its members do together")
    group_state: str = wire(STRING, "its state", since=4, default="")
    group_type: str = wire(STRING, "classic or consumer", since=5, default="")


@message
class ListGroupsResponse(Message):
    """The groups by name."""

    flexible_since: ClassVar[int | None] = 3

    throttle_time_ms: int = wire(INT32, "how long the client was held up", since=1, default=0)
    error_code: int = wire(INT16, "error of the request", default=0)
    groups: tuple[ListedGroup, ...] = wire(array_of(ListedGroup), "the groups", default=())


@message
class DeleteGroupsRequest(KafkaRequest):
    """Deletes groups without members."""

    flexible_since: ClassVar[int | None] = 2

    groups_names: tuple[str, ...] = wire(array_of(STRING), "names of the groups")


@message
class DeletableGroupResult(Message):
    """A group that was deleted, or not."""

    group_id: str = wire(STRING, "name of the group")
    error_code: int = wire(INT16, "error of the group")


@message
class DeleteGroupsResponse(Message):
    """Each group for itself."""

    flexible_since: ClassVar[int | None] = 2

    throttle_time_ms: int = wire(INT32, "how long the client was held up", default=0)
    results: tuple[DeletableGroupResult, ...] = wire(
        array_of(DeletableGroupResult), "the groups", default=()
    )
