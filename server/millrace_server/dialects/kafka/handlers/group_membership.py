"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka import group_membership as messages
from millrace_protocol.kafka.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millrace_server.api_error import ApiError
from millrace_server.dialects.kafka.errors import coordinator_code, finding_code
from millrace_server.group import requests
from millrace_server.services.groups import FoundCoordinator
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

GROUP_KEY = 0
SEVERAL_KEYS_SINCE = 4
SEVERAL_MEMBERS_SINCE = 3
MEMBER_ID_REQUIRED_SINCE = 4
PROTOCOL_SINCE = 5
SKIP_ASSIGNMENT_SINCE = 9
_NOT_A_GROUP = "This broker coordinates groups only; it has neither transactions nor share groups"


async def find_coordinator(
    services: Services, context: RequestContext, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse:
    """Each group for itself."""
    is_several = version >= SEVERAL_KEYS_SINCE
    keys = request.coordinator_keys if is_several else (request.key,)
    if request.key_type == GROUP_KEY:
        found = await services.groups.find_coordinators(context, keys)
    else:
        refused = ApiError(ErrorCode.INVALID_REQUEST, _NOT_A_GROUP)
        found = [FoundCoordinator(key, None, refused) for key in keys]
    coordinators = tuple(map(_coordinator, found))
    if is_several:
        return FindCoordinatorResponse(coordinators=coordinators)
    (only,) = coordinators
    return FindCoordinatorResponse(
        0, only.error_code, only.error_message, only.node_id, only.host, only.port
    )


def _coordinator(found: FoundCoordinator) -> Coordinator:
    broker, error = found.broker, found.error
    if broker is not None:
        return Coordinator(found.group_id, broker.node_id, broker.host, broker.port)
    assert error is not None
    return Coordinator(found.group_id, error_code=finding_code(error), error_message=error.message)


async def join(
    services: Services, context: RequestContext, request: messages.JoinGroupRequest, version: int
) -> messages.JoinGroupResponse:
    """Answers when the generation begins; a new member at once, with its id (KIP-394)."""
    asked = requests.JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        protocol_type=request.protocol_type,
        protocols=tuple(requests.OfferedProtocol(p.name, p.metadata) for p in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        instance_id=request.group_instance_id,
        client_id=context.client_id,
        client_host=context.client_host,
        requires_known_member_id=version >= MEMBER_ID_REQUIRED_SINCE,
        can_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE,
    )
    try:
        joined = await services.groups.join(context, asked)
    except requests.MemberIdRequired as required:
        return messages.JoinGroupResponse(
            error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=required.member_id
        )
    except ApiError as error:
        return messages.JoinGroupResponse(
            error_code=coordinator_code(error), member_id=request.member_id
        )
    return messages.JoinGroupResponse(
        0,
        ErrorCode.NONE,
        joined.generation,
        joined.protocol_type,
        joined.protocol,
        joined.leader_id,
        joined.skip_assignment,
        joined.member_id,
        tuple(messages.JoinGroupResponseMember(*member) for member in joined.members),
    )


async def sync(
    services: Services, context: RequestContext, request: messages.SyncGroupRequest, version: int
) -> messages.SyncGroupResponse:
    """Answers when the leader's assignment is durable."""
    # KIP-559: a client names what it has been told by JoinGroup.
    has_protocol = request.protocol_type is not None and request.protocol_name is not None
    if version >= PROTOCOL_SINCE and not has_protocol:
        return messages.SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    asked = requests.SyncGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=tuple((a.member_id, a.assignment) for a in request.assignments),
    )
    try:
        synced = await services.groups.sync(context, asked)
    except ApiError as error:
        return messages.SyncGroupResponse(error_code=coordinator_code(error))
    return messages.SyncGroupResponse(
        0, ErrorCode.NONE, synced.protocol_type, synced.protocol, synced.assignment
    )


def heartbeat(
    services: Services, context: RequestContext, request: messages.HeartbeatRequest, version: int
) -> messages.HeartbeatResponse:
    """Answers at once."""
    try:
        services.groups.heartbeat(
            context,
            requests.Heartbeat(
                group_id=request.group_id,
                member_id=request.member_id,
                generation=request.generation_id,
                instance_id=request.group_instance_id,
            ),
        )
    except ApiError as error:
        return messages.HeartbeatResponse(error_code=coordinator_code(error))
    return messages.HeartbeatResponse()


async def leave(
    services: Services, context: RequestContext, request: messages.LeaveGroupRequest, version: int
) -> messages.LeaveGroupResponse:
    """Each member for itself; before version 3 there is one, whose error is the request's."""
    members = request.members
    if version < SEVERAL_MEMBERS_SINCE:
        members = (messages.MemberIdentity(request.member_id),)
    try:
        left = await services.groups.leave(
            context,
            requests.LeaveGroup(
                group_id=request.group_id,
                members=tuple(
                    requests.LeavingMember(m.member_id, m.group_instance_id) for m in members
                ),
            ),
        )
    except ApiError as error:
        return messages.LeaveGroupResponse(error_code=coordinator_code(error))
    results = tuple(
        messages.MemberResponse(
            member_id, instance_id, 0 if error is None else coordinator_code(error)
        )
        for member_id, instance_id, error in left.members
    )
    if version < SEVERAL_MEMBERS_SINCE:
        return messages.LeaveGroupResponse(error_code=results[0].error_code)
    return messages.LeaveGroupResponse(members=results)
