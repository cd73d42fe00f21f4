"""ListGroups, DescribeGroups, DeleteGroups: groups as an operator sees them."""

from __future__ import annotations

from millrace_protocol.primitives import BYTES, INT16, INT32, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire

_GROUP = "group name"
_ERROR = "error of this group (W-7)"
_SENTENCE = "the reason, for a person"
_STATE = "Empty, PreparingRebalance, CompletingRebalance, Stable or Dead"


@message
class ListGroupsRequest(Request):
    """Asks which groups this broker coordinates."""

    states: tuple[str, ...] = wire(array_of(STRING), "only those in one of these; none for all")


@message
class ListedGroup(Message):
    """One group."""

    group: str = wire(STRING, _GROUP)
    state: str = wire(STRING, _STATE)
    protocol_type: str = wire(STRING, '"consumer" for consumers; empty for offsets without members')
    members: int = wire(INT32, "number of members")


@message
class ListGroupsResponse(Message):
    """The groups, by name."""

    groups: tuple[ListedGroup, ...] = wire(array_of(ListedGroup), "the groups")


@message
class DescribeGroupsRequest(Request):
    """Asks for groups and their members."""

    groups: tuple[str, ...] = wire(array_of(STRING), "group names")


@message
class DescribedMember(Message):
    """One member."""

    member_id: str = wire(STRING, "its id")
    instance_id: str | None = wire(NULLABLE_STRING, "name of a static member; null for none")
    client_id: str = wire(STRING, "the client id of its connection")
    client_host: str = wire(STRING, "the address it joined from")
    metadata: bytes = wire(BYTES, "its metadata for the chosen protocol")
    assignment: bytes = wire(BYTES, "its assignment")


@message
class DescribedGroup(Message):
    """One group; Dead, without members, when there is no such group."""

    group: str = wire(STRING, _GROUP)
    error_code: int = wire(INT16, _ERROR)
    error_message: str | None = wire(NULLABLE_STRING, _SENTENCE)
    state: str = wire(STRING, _STATE)
    generation: int = wire(INT32, "the present generation; -1 when there is none")
    protocol_type: str = wire(STRING, "that of the members; empty when there are none")
    protocol: str = wire(STRING, "the chosen protocol; empty when there is none")
    leader: str = wire(STRING, "member id of the leader; empty when there is none")
    members: tuple[DescribedMember, ...] = wire(array_of(DescribedMember), "the members")


@message
class DescribeGroupsResponse(Message):
    """One description per group, in the request's order."""

    groups: tuple[DescribedGroup, ...] = wire(array_of(DescribedGroup), "the descriptions")


@message
class DeleteGroupsRequest(Request):
    """Deletes groups without members, and their committed offsets."""

    groups: tuple[str, ...] = wire(array_of(STRING), "group names")


@message
class DeletedGroup(Message):
    """The result of one group."""

    group: str = wire(STRING, _GROUP)
    error_code: int = wire(INT16, _ERROR)
    error_message: str | None = wire(NULLABLE_STRING, _SENTENCE)


@message
class DeleteGroupsResponse(Message):
    """One result per group, in the request's order."""

    groups: tuple[DeletedGroup, ...] = wire(array_of(DeletedGroup), "the results")
