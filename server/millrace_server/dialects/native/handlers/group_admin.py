"""ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages import group_admin as messages
from millrace_server.api_error import ApiError
from millrace_server.broker import Broker
from millrace_server.dialects.native.answer import Answered
from millrace_server.dialects.native.handlers.bounds import check_once
from millrace_server.dialects.native.handlers.group_results import expect
from millrace_server.group.effects import GroupDeleted
from millrace_server.group.states import GroupState
from millrace_server.net.connection import Connection


def list_groups(
    broker: Broker, connection: Connection, request: messages.ListGroupsRequest
) -> Answered:
    """The groups, or those in the states asked for."""
    states = frozenset(request.states)
    unknown = states - {state.value for state in GroupState}
    if unknown:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"A group is never {min(unknown)!r}; the states are "
            f"{', '.join(state.value for state in GroupState)}",
        )
    return messages.ListGroupsResponse(
        tuple(
            messages.ListedGroup(
                found.group_id, found.state.value, found.protocol_type, found.member_count
            )
            for found in broker.groups.listing()
            if not states or found.state.value in states
        )
    )


def describe(
    broker: Broker, connection: Connection, request: messages.DescribeGroupsRequest
) -> Answered:
    """Each group for itself."""
    return messages.DescribeGroupsResponse(tuple(_describe(broker, g) for g in request.groups))


def _describe(broker: Broker, group: str) -> messages.DescribedGroup:
    try:
        found = broker.groups.coordinator(group).describe(group)
    except ApiError as refused:
        code, message = refused.code, refused.message
        return messages.DescribedGroup(
            group, code, message, GroupState.DEAD.value, -1, "", "", "", ()
        )
    return messages.DescribedGroup(
        group,
        ErrorCode.NONE,
        None,
        found.state.value,
        found.generation,
        found.protocol_type,
        found.protocol,
        found.leader_id,
        tuple(messages.DescribedMember(*member) for member in found.members),
    )


def delete(
    broker: Broker, connection: Connection, request: messages.DeleteGroupsRequest
) -> Answered:
    """Each group for itself, when it is durable that it is forgotten."""
    check_once(request.groups, "group")

    async def delete_all() -> messages.DeleteGroupsResponse:
        return messages.DeleteGroupsResponse(
            tuple([await _delete(broker, group) for group in request.groups])
        )

    return broker.env.spawn.task(delete_all(), name="delete groups")


async def _delete(broker: Broker, group: str) -> messages.DeletedGroup:
    try:
        result = await broker.groups.ask(
            group, lambda c, token, moment: c.delete_group(token, group, moment)
        )
        expect(result, GroupDeleted)
    except ApiError as refused:
        return messages.DeletedGroup(group, refused.code, refused.message)
    return messages.DeletedGroup(group, ErrorCode.NONE, None)
