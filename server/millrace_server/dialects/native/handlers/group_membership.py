"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages import group_membership as messages
from millrace_server.dialects.native.handlers.outcome import outcome
from millrace_server.dialects.response_body import Handled
from millrace_server.group import requests
from millrace_server.services.groups import FoundCoordinator
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def find_coordinator(
    services: Services, context: RequestContext, request: messages.FindCoordinatorRequest
) -> messages.FindCoordinatorResponse:
    """Each group for itself."""
    found = await services.groups.find_coordinators(context, request.groups)
    return messages.FindCoordinatorResponse(tuple(map(_found, found)))


def _found(found: FoundCoordinator) -> messages.FoundCoordinator:
    broker = found.broker
    if broker is None:
        return messages.FoundCoordinator(found.group_id, *outcome(found.error), -1, "", -1)
    return messages.FoundCoordinator(
        found.group_id, ErrorCode.NONE, None, broker.node_id, broker.host, broker.port
    )


async def join(
    services: Services, context: RequestContext, request: messages.JoinGroupRequest
) -> messages.JoinGroupResponse:
    """Answers when the generation begins; a new member at once, with its id."""
    asked = requests.JoinGroup(
        group_id=request.group,
        member_id=request.member_id,
        protocol_type=request.protocol_type,
        protocols=tuple(requests.OfferedProtocol(p.name, p.metadata) for p in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        instance_id=request.instance_id,
        client_id=context.client_id,
        client_host=context.client_host,
    )
    try:
        joined = await services.groups.join(context, asked)
    except requests.MemberIdRequired as required:
        return messages.JoinGroupResponse(
            messages.NO_GENERATION, None, None, "", required.member_id, False, ()
        )
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
    asked = requests.SyncGroup(
        group_id=request.group,
        member_id=request.member_id,
        generation=request.generation,
        instance_id=request.instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol,
        assignments=tuple((a.member_id, a.assignment) for a in request.assignments),
    )
    synced = await services.groups.sync(context, asked)
    return messages.SyncGroupResponse(synced.protocol_type, synced.protocol, synced.assignment)


def heartbeat(
    services: Services, context: RequestContext, request: messages.HeartbeatRequest
) -> Handled:
    """Answers at once."""
    services.groups.heartbeat(
        context,
        requests.Heartbeat(
            group_id=request.group,
            member_id=request.member_id,
            generation=request.generation,
            instance_id=request.instance_id,
        ),
    )
    return messages.HeartbeatResponse()


async def leave(
    services: Services, context: RequestContext, request: messages.LeaveGroupRequest
) -> messages.LeaveGroupResponse:
    """Each member for itself."""
    leaving = (requests.LeavingMember(m.member_id, m.instance_id) for m in request.members)
    left = await services.groups.leave(
        context, requests.LeaveGroup(group_id=request.group, members=tuple(leaving))
    )
    return messages.LeaveGroupResponse(
        tuple(
            messages.LeftMember(member_id, instance_id, *outcome(error))
            for member_id, instance_id, error in left.members
        )
    )
