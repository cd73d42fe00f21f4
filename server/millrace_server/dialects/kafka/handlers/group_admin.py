"""DescribeGroups, ListGroups, DeleteGroups, OffsetDelete and ConsumerGroupDescribe."""

from __future__ import annotations

from millrace_protocol.acls import ResourceType
from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import consumer_group_describe, offset_delete
from millrace_protocol.kafka import group_admin as messages
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import coordinator_code
from millrace_server.group import requests
from millrace_server.group.states import GroupState
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

ABSENT_IS_ERROR_SINCE = 6
GROUP_TYPE = "Classic"
"""The type of every group: its members choose their partitions themselves."""


def describe(
    services: Services,
    context: RequestContext,
    request: messages.DescribeGroupsRequest,
    version: int,
) -> messages.DescribeGroupsResponse:
    """Each group for itself; before version 6 an absent group is one that is dead."""
    groups = [_described(services, context, group, version) for group in request.groups]
    for group in groups if request.include_authorized_operations else ():
        group.authorized_operations = context.operations(ResourceType.GROUP, group.group_id)
    return messages.DescribeGroupsResponse(groups=tuple(groups))


def _described(
    services: Services, context: RequestContext, group: str, version: int
) -> messages.DescribedGroup:
    try:
        found = services.groups.describe(context, group)
    except ApiError as error:
        # No group has an empty name.
        is_absent = error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID)
        code = int(ErrorCode.GROUP_ID_NOT_FOUND) if is_absent else coordinator_code(error)
        if is_absent and version < ABSENT_IS_ERROR_SINCE:
            code = int(ErrorCode.NONE)
        state = GroupState.DEAD.value if is_absent else ""
        return messages.DescribedGroup(code, error.message, group, state)
    return messages.DescribedGroup(
        ErrorCode.NONE,
        None,
        group,
        found.state.value,
        found.protocol_type,
        found.protocol,
        tuple(map(_member, found.members)),
    )


def _member(member: requests.DescribedMember) -> messages.DescribedGroupMember:
    """As Kafka's broker does, names the host with a slash and without the port."""
    host = f"/{member.client_host.rpartition(':')[0]}"
    return messages.DescribedGroupMember(*member._replace(client_host=host))


def list_groups(
    services: Services, context: RequestContext, request: messages.ListGroupsRequest, version: int
) -> messages.ListGroupsResponse:
    """The groups that this broker coordinates. As in Kafka, filters do not mind upper case."""
    states = {state.lower() for state in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    if types and GROUP_TYPE.lower() not in types:
        return messages.ListGroupsResponse()
    try:
        found = services.groups.list_groups(context)
    except ApiError as error:
        return messages.ListGroupsResponse(error_code=coordinator_code(error))
    return messages.ListGroupsResponse(
        groups=tuple(
            messages.ListedGroup(group.group_id, group.protocol_type, group.state.value, GROUP_TYPE)
            for group in found
            if not states or group.state.value.lower() in states
        )
    )


async def delete(
    services: Services, context: RequestContext, request: messages.DeleteGroupsRequest, version: int
) -> messages.DeleteGroupsResponse:
    """Each group for itself, when its deletion is durable."""
    return messages.DeleteGroupsResponse(
        results=tuple([await _delete(services, context, group) for group in request.groups_names])
    )


async def _delete(
    services: Services, context: RequestContext, group: str
) -> messages.DeletableGroupResult:
    try:
        await services.groups.delete(context, group)
    except ApiError as error:
        is_none = error.code is ErrorCode.INVALID_GROUP_ID
        code = ErrorCode.GROUP_ID_NOT_FOUND if is_none else coordinator_code(error)
        return messages.DeletableGroupResult(group, code)
    return messages.DeletableGroupResult(group, ErrorCode.NONE)


async def delete_offsets(
    services: Services,
    context: RequestContext,
    request: offset_delete.OffsetDeleteRequest,
    version: int,
) -> offset_delete.OffsetDeleteResponse:
    """Each partition for itself, when its deletion is durable."""
    wanted = [
        requests.TopicPartition(topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    try:
        results = iter(await services.groups.delete_offsets(context, request.group_id, wanted))
    except ApiError as error:
        return offset_delete.OffsetDeleteResponse(coordinator_code(error))
    return offset_delete.OffsetDeleteResponse(
        topics=tuple(
            offset_delete.OffsetDeleteResponseTopic(
                topic.name,
                tuple(_deleted(services, context, next(results)) for _ in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _deleted(
    services: Services, context: RequestContext, result: requests.PartitionResult
) -> offset_delete.OffsetDeleteResponsePartition:
    error = (
        services.cluster.unknown_partition(context, result.topic, result.partition) or result.error
    )
    code = ErrorCode.NONE if error is None else coordinator_code(error)
    return offset_delete.OffsetDeleteResponsePartition(result.partition, code)


def describe_consumer_groups(
    services: Services,
    context: RequestContext,
    request: consumer_group_describe.ConsumerGroupDescribeRequest,
    version: int,
) -> consumer_group_describe.ConsumerGroupDescribeResponse:
    """No group is of this kind: a tool that gets GROUP_ID_NOT_FOUND sends DescribeGroups."""
    return consumer_group_describe.ConsumerGroupDescribeResponse(
        groups=tuple(
            consumer_group_describe.DescribedGroup(
                ErrorCode.GROUP_ID_NOT_FOUND if group else ErrorCode.INVALID_GROUP_ID,
                f"Group {group!r} is not a group whose partitions the broker assigns",
                group,
            )
            for group in request.group_ids
        )
    )
