"""DeleteRecords: the oldest records of partitions."""

from __future__ import annotations

from millrace_protocol.messages.delete_records import (
    DeletedRecords,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
)
from millrace_server.api_error import ApiError
from millrace_server.dialects.native.handlers.bounds import check_once
from millrace_server.dialects.native.handlers.outcome import outcome
from millrace_server.services.delete_records import Deletion
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services


async def handle(
    services: Services, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Moves the start of each partition for itself."""
    check_once([(p.topic, p.partition) for p in request.partitions], "partition")
    deletions = [Deletion(p.topic, p.partition, p.offset) for p in request.partitions]
    found = await services.run(services.delete_records.delete(context, deletions))
    return DeleteRecordsResponse(
        tuple(_result(*each) for each in zip(request.partitions, found, strict=True))
    )


def _result(asked: DeleteRecordsPartition, found: int | ApiError) -> DeletedRecords:
    if isinstance(found, ApiError):
        return DeletedRecords(asked.topic, asked.partition, *outcome(found), -1)
    return DeletedRecords(asked.topic, asked.partition, *outcome(None), found)
