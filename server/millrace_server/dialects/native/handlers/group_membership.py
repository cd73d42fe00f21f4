"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages import group_membership as messages
from millrace_server.api_error import ApiError
from millrace_server.broker import Broker
from millrace_server.dialects.native.answer import Answered
from millrace_server.dialects.native.handlers.group_results import expect, outcome
from millrace_server.dialects.native.later import mapped
from millrace_server.group import requests
from millrace_server.group.coordinator import check_group_id
from millrace_server.group.effects import Joined, Left, Refusal, Result, Synced
from millrace_server.net.connection import Connection


def find_coordinator(
    broker: Broker, connection: Connection, request: messages.FindCoordinatorRequest
) -> Answered:
    """Names this broker, the only one there is; makes the offsets topic when it is not there."""

    async def find() -> messages.FindCoordinatorResponse:
        unavailable = None
        try:
            await broker.groups.make_topic()
        except ApiError as refused:
            unavailable = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, refused.message)
        return messages.FindCoordinatorResponse(
            tuple(_found(broker, group, unavailable) for group in request.groups)
        )

    return broker.env.spawn.task(find(), name="find coordinator")


def _found(broker: Broker, group: str, unavailable: ApiError | None) -> messages.FoundCoordinator:
    try:
        check_group_id(group)
        if unavailable is not None:
            raise unavailable
    except ApiError as refused:
        return messages.FoundCoordinator(group, refused.code, refused.message, -1, "", -1)
    host, port = broker.advertised_address
    return messages.FoundCoordinator(group, ErrorCode.NONE, None, broker.config.node_id, host, port)


def join(broker: Broker, connection: Connection, request: messages.JoinGroupRequest) -> Answered:
    """Answers when the generation begins; a newcomer at once, with the id to come back with."""
    asked = requests.Join(
        group_id=request.group,
        member_id=request.member_id,
        protocol_type=request.protocol_type,
        protocols=tuple(requests.OfferedProtocol(p.name, p.metadata) for p in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        instance_id=request.instance_id,
        client_id=connection.client_id,
        client_host=connection.peer,
        reason=request.reason or "",
    )
    answer = broker.groups.ask(request.group, lambda c, token, moment: c.join(token, asked, moment))
    return mapped(answer, _joined)


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


def sync(broker: Broker, connection: Connection, request: messages.SyncGroupRequest) -> Answered:
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
    answer = broker.groups.ask(request.group, lambda c, token, moment: c.sync(token, asked, moment))
    return mapped(answer, _synced)


def _synced(result: Result) -> messages.SyncGroupResponse:
    synced = expect(result, Synced)
    return messages.SyncGroupResponse(synced.protocol_type, synced.protocol, synced.assignment)


def heartbeat(
    broker: Broker, connection: Connection, request: messages.HeartbeatRequest
) -> Answered:
    """Answers at once."""
    asked = requests.Heartbeat(
        group_id=request.group,
        member_id=request.member_id,
        generation=request.generation,
        instance_id=request.instance_id,
    )
    broker.groups.tell(request.group, lambda c, moment: c.heartbeat(asked, moment))
    return messages.HeartbeatResponse()


def leave(broker: Broker, connection: Connection, request: messages.LeaveGroupRequest) -> Answered:
    """Answers each member for itself."""
    asked = requests.Leave(
        group_id=request.group,
        members=tuple(
            requests.LeavingMember(m.member_id, m.instance_id, m.reason or "")
            for m in request.members
        ),
    )
    answer = broker.groups.ask(
        request.group, lambda c, token, moment: c.leave(token, asked, moment)
    )
    return mapped(answer, _left)


def _left(result: Result) -> messages.LeaveGroupResponse:
    return messages.LeaveGroupResponse(
        tuple(
            messages.LeftMember(member_id, instance_id, *outcome(refusal))
            for member_id, instance_id, refusal in expect(result, Left).members
        )
    )
