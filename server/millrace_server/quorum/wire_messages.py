"""The messages of the quorum in the form of the wire, and back. Pure."""

from __future__ import annotations

import uuid
from typing import Final

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages import quorum as wire
from millrace_server.log.epochs import EpochEnd
from millrace_server.raft.messages import (
    BeginEpochRequest,
    Diverging,
    EndEpochRequest,
    FetchOutcome,
    FetchRequest,
    FetchResponse,
    LogPosition,
    Message,
    NotLeader,
    Records,
    SnapshotId,
    SnapshotNeeded,
    StaleEpochResponse,
    VoteRequest,
    VoteResponse,
)
from millrace_server.raft.voters import ReplicaKey

NONE: Final = -1
RESPONSES: Final[dict[type[wire.QuorumRequest], type[wire.QuorumResponse]]] = {
    wire.VoteRequest: wire.VoteResponse,
    wire.BeginQuorumEpochRequest: wire.BeginQuorumEpochResponse,
    wire.EndQuorumEpochRequest: wire.EndQuorumEpochResponse,
    wire.QuorumFetchRequest: wire.QuorumFetchResponse,
}


REQUESTS: Final = (VoteRequest, BeginEpochRequest, EndEpochRequest, FetchRequest)
"""What the core sends on its own; all else is an answer."""


def encoded_request(message: Message) -> wire.QuorumRequest:
    """The request that carries a message of the core."""
    source = message.source.broker_id, message.source.directory_id, message.epoch
    match message:
        case VoteRequest():
            last, voter = message.last, message.voter.directory_id
            return wire.VoteRequest(
                *source, voter, last.epoch, last.end_offset, message.is_pre_vote
            )
        case BeginEpochRequest():
            return wire.BeginQuorumEpochRequest(*source)
        case EndEpochRequest():
            return wire.EndQuorumEpochRequest(*source, message.successors)
        case FetchRequest():
            return wire.QuorumFetchRequest(
                *source,
                message.fetch_id,
                message.fetch_offset,
                message.last_epoch,
                message.high_watermark,
            )
    raise TypeError(f"{type(message).__name__} is no request")


def decoded_request(request: wire.QuorumRequest, own: ReplicaKey) -> Message:
    """The message of a request to the replica `own`."""
    source = ReplicaKey(request.source_id, request.source_directory_id)
    start = source, own.broker_id, request.epoch
    match request:
        case wire.VoteRequest():
            return VoteRequest(
                *start,
                ReplicaKey(own.broker_id, request.voter_directory_id),
                LogPosition(request.last_epoch, request.last_offset),
                request.is_pre_vote,
            )
        case wire.BeginQuorumEpochRequest():
            return BeginEpochRequest(*start)
        case wire.EndQuorumEpochRequest():
            return EndEpochRequest(*start, tuple(request.successors))
        case wire.QuorumFetchRequest():
            return FetchRequest(
                *start,
                request.fetch_id,
                request.fetch_offset,
                request.last_epoch,
                request.high_watermark,
            )
    raise TypeError(f"{type(request).__name__} is no request of the quorum")


def encoded_vote(message: VoteResponse) -> wire.VoteResponse:
    """The response to a Vote."""
    leader_id = NONE if message.leader_id is None else message.leader_id
    return wire.VoteResponse(
        message.source.directory_id, message.epoch, leader_id, message.is_granted
    )


def encoded_fetch(message: FetchResponse) -> wire.QuorumFetchResponse:
    """The response to a QuorumFetch."""
    outcome = message.outcome
    diverging = outcome.end if isinstance(outcome, Diverging) else EpochEnd(NONE, NONE)
    snapshot = outcome.snapshot if isinstance(outcome, SnapshotNeeded) else SnapshotId(NONE, NONE)
    is_refused = isinstance(outcome, NotLeader)
    return wire.QuorumFetchResponse(
        message.source.directory_id,
        message.epoch,
        NONE if message.leader_id is None else message.leader_id,
        ErrorCode.NOT_LEADER_OR_FOLLOWER if is_refused else ErrorCode.NONE,
        message.fetch_id,
        message.high_watermark,
        diverging.epoch,
        diverging.end_offset,
        snapshot.epoch,
        snapshot.end_offset,
        _data(outcome),
    )


def _data(outcome: FetchOutcome) -> bytes:
    if isinstance(outcome, Records) and isinstance(outcome.data, bytes):
        return outcome.data
    return b""


def decoded_response(
    request: Message, response: wire.QuorumResponse
) -> VoteResponse | FetchResponse | StaleEpochResponse:
    """The message of a response to a request that this broker has sent."""
    source = ReplicaKey(request.destination, response.source_directory_id)
    leader_id = None if response.leader_id == NONE else response.leader_id
    start = source, request.source.broker_id, response.epoch
    if isinstance(response, wire.VoteResponse):
        assert isinstance(request, VoteRequest)
        return VoteResponse(*start, leader_id, response.is_granted, request.is_pre_vote)
    if isinstance(response, wire.QuorumFetchResponse):
        assert isinstance(request, FetchRequest)
        return FetchResponse(
            *start,
            response.fetch_id,
            leader_id,
            response.high_watermark,
            _outcome(request, response),
        )
    return StaleEpochResponse(*start, leader_id)


def _outcome(request: FetchRequest, response: wire.QuorumFetchResponse) -> FetchOutcome:
    if response.error_code != ErrorCode.NONE:
        return NotLeader()
    if response.diverging_end_offset != NONE:
        return Diverging(EpochEnd(response.diverging_epoch, response.diverging_end_offset))
    if response.snapshot_end_offset != NONE:
        return SnapshotNeeded(SnapshotId(response.snapshot_end_offset, response.snapshot_epoch))
    return Records(request.fetch_offset, response.records)


def silent_response(
    request: wire.QuorumRequest, *, directory_id: uuid.UUID, epoch: int, leader_id: int | None
) -> wire.QuorumResponse:
    """The response to a request that the core answers by its epoch alone."""
    known = directory_id, epoch, NONE if leader_id is None else leader_id
    match request:
        case wire.VoteRequest():
            return wire.VoteResponse(*known, False)
        case wire.BeginQuorumEpochRequest():
            return wire.BeginQuorumEpochResponse(*known)
        case wire.EndQuorumEpochRequest():
            return wire.EndQuorumEpochResponse(*known)
        case wire.QuorumFetchRequest():
            refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
            none = NONE, NONE, NONE, NONE, NONE
            return wire.QuorumFetchResponse(*known, refused, request.fetch_id, *none, b"")
    raise TypeError(f"{type(request).__name__} is no request of the quorum")
