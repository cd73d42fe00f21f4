"""ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from millrace_protocol.acls import CLUSTER_NAME, Operation, ResourceType
from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages import group_admin as messages
from millrace_server.api_error import ApiError
from millrace_server.dialects.native.handlers.bounds import check_once
from millrace_server.dialects.response_body import Handled
from millrace_server.group.states import GroupState
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


def list_groups(
    services: Services, context: RequestContext, request: messages.ListGroupsRequest
) -> Handled:
    """The groups, or those in the states asked for."""
    if not context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        context.check_any(Operation.DESCRIBE, ResourceType.GROUP)
    return messages.ListGroupsResponse(
        tuple(
            messages.ListedGroup(
                found.group_id, found.state.value, found.protocol_type, found.member_count
            )
            for found in services.groups.list_groups(context, request.states)
        )
    )


def describe(
    services: Services, context: RequestContext, request: messages.DescribeGroupsRequest
) -> Handled:
    """Each group for itself."""
    return messages.DescribeGroupsResponse(
        tuple(_describe(services, context, g) for g in request.groups)
    )


def _describe(services: Services, context: RequestContext, group: str) -> messages.DescribedGroup:
    try:
        found = services.groups.describe(context, group)
    except ApiError as error:
        return messages.DescribedGroup(
            group, error.code, error.message, GroupState.DEAD.value, -1, "", "", "", ()
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


async def delete(
    services: Services, context: RequestContext, request: messages.DeleteGroupsRequest
) -> messages.DeleteGroupsResponse:
    """Each group for itself, when its deletion is durable."""
    check_once(request.groups, "group")
    return messages.DeleteGroupsResponse(
        tuple([await _delete(services, context, group) for group in request.groups])
    )


async def _delete(services: Services, context: RequestContext, group: str) -> messages.DeletedGroup:
    try:
        await services.groups.delete(context, group)
    except ApiError as error:
        return messages.DeletedGroup(group, error.code, error.message)
    return messages.DeletedGroup(group, ErrorCode.NONE, None)
