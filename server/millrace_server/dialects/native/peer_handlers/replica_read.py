"""ReplicaRead: to the log of a replica."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.replica_read import ReplicaReadRequest, ReplicaReadResponse
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def handle(
    services: Services, context: RequestContext, request: ReplicaReadRequest
) -> ReplicaReadResponse:
    """Batches from an offset on."""
    records = await services.replica_read.read(
        request.topic_id, request.partition, request.offset, max_bytes=request.max_bytes
    )
    return ReplicaReadResponse(ErrorCode.NONE, None, records)
