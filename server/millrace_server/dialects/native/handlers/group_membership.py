"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages import group_membership as messages
from millrace_server.api_error import ApiError
from millrace_server.dialects.native.handlers.group_results import expect, outcome
from millrace_server.dialects.native.response_body import Handled
from millrace_server.group import requests
from millrace_server.group.coordinator import check_group_id
from millrace_server.group.effects import Joined, Left, Refusal, Result, Synced
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def find_coordinator(
    services: Services, context: RequestContext, request: messages.FindCoordinatorRequest
) -> messages.FindCoordinatorResponse:
    """Names the coordinator of each group; makes the offsets topic when there is none."""
    unavailable = None
    try:
        await services.groups.make_topic()
    except ApiError as refused:
        unavailable = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, refused.message)
    return messages.FindCoordinatorResponse(
        tuple(_found(services, group, unavailable) for group in request.groups)
    )


def _found(
    services: Services, group: str, unavailable: ApiError | None
) -> messages.FoundCoordinator:
    try:
        check_group_id(group)
        if unavailable is not None:
            raise unavailable
    except ApiError as refused:
        return messages.FoundCoordinator(group, refused.code, refused.message, -1, "", -1)
    host, port = services.cluster.address
    return messages.FoundCoordinator(
        group, ErrorCode.NONE, None, services.cluster.node_id, host, port
    )


async def join(
    services: Services, context: RequestContext, request: messages.JoinGroupRequest
) -> messages.JoinGroupResponse:
    """Answers when the generation begins; a newcomer at once, with the id to come back with."""
    asked = requests.Join(
        group_id=request.group,
        member_id=request.member_id,
        protocol_type=request.protocol_type,
        protocols=tuple(requests.OfferedProtocol(p.name, p.metadata) for p in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        instance_id=request.instance_id,
        client_id=context.client_id,
        client_host=context.client_host,
        reason=request.reason or "",
    )
    return _joined(
        await services.groups.ask(
            request.group, lambda c, token, moment: c.join(token, asked, moment)
        )
    )


def _joined(result: Result) -> messages.JoinGroupResponse:
    if isinstance(result, Refusal) and result.code is ErrorCode.MEMBER_ID_REQUIRED:
        return messages.JoinGroupResponse(
            messages.NO_GENERATION, None, None, "", result.member_id, False, ()
        )
    joined = expect(result, Joined)
    return messages.JoinGroupResponse(
        joined.generation,
        joined.protocol_type,
        joined.protocol,
        joined.leader_id,
        joined.member_id,
        joined.skip_assignment,
        tuple(messages.JoinedMember(*member) for member in joined.members),
    )


async def sync(
    services: Services, context: RequestContext, request: messages.SyncGroupRequest
) -> messages.SyncGroupResponse:
    """Answers when the leader's assignment is durable."""
    asked = requests.Sync(
        group_id=request.group,
        member_id=request.member_id,
        generation=request.generation,
        instance_id=request.instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol,
        assignments=tuple((a.member_id, a.assignment) for a in request.assignments),
    )
    return _synced(
        await services.groups.ask(
            request.group, lambda c, token, moment: c.sync(token, asked, moment)
        )
    )


def _synced(result: Result) -> messages.SyncGroupResponse:
    synced = expect(result, Synced)
    return messages.SyncGroupResponse(synced.protocol_type, synced.protocol, synced.assignment)


def heartbeat(
    services: Services, context: RequestContext, request: messages.HeartbeatRequest
) -> Handled:
    """Answers at once."""
    asked = requests.Heartbeat(
        group_id=request.group,
        member_id=request.member_id,
        generation=request.generation,
        instance_id=request.instance_id,
    )
    services.groups.tell(request.group, lambda c, moment: c.heartbeat(asked, moment))
    return messages.HeartbeatResponse()


async def leave(
    services: Services, context: RequestContext, request: messages.LeaveGroupRequest
) -> messages.LeaveGroupResponse:
    """Answers each member for itself."""
    asked = requests.Leave(
        group_id=request.group,
        members=tuple(
            requests.LeavingMember(m.member_id, m.instance_id, m.reason or "")
            for m in request.members
        ),
    )
    return _left(
        await services.groups.ask(
            request.group, lambda c, token, moment: c.leave(token, asked, moment)
        )
    )


def _left(result: Result) -> messages.LeaveGroupResponse:
    return messages.LeaveGroupResponse(
        tuple(
            messages.LeftMember(member_id, instance_id, *outcome(refusal))
            for member_id, instance_id, refusal in expect(result, Left).members
        )
    )
