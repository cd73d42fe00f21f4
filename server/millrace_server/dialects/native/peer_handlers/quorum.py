"""Vote, BeginQuorumEpoch, EndQuorumEpoch, QuorumFetch and FetchSnapshot: to the replica."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.quorum import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumRequest,
    QuorumResponse,
)
from millrace_server.raft.messages import SnapshotId
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def answer(
    services: Services, context: RequestContext, request: QuorumRequest
) -> QuorumResponse:
    """The answer of the core."""
    return await services.run(services.quorum.answer(request))


async def fetch_snapshot(
    services: Services, context: RequestContext, request: FetchSnapshotRequest
) -> FetchSnapshotResponse:
    """A part of a snapshot."""
    snapshot = SnapshotId(request.snapshot_end_offset, request.snapshot_epoch)
    size, data = await services.quorum.read_snapshot(
        snapshot, position=request.position, max_bytes=request.max_bytes
    )
    return FetchSnapshotResponse(ErrorCode.NONE, None, size, request.position, data)
