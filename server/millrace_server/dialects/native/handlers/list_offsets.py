"""ListOffsets: the ends of a partition, and the offset of a point in time."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResult,
)
from millrace_server.api_error import ApiError
from millrace_server.loop.fair_scheduler import chunks
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

CHUNK_ENTRIES = 50
"""Ends of partitions looked up in one chunk, some 200 us."""


async def handle(
    services: Services, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """Answers each entry for itself."""
    results: list[ListOffsetsResult] = []
    for chunk in chunks(request.partitions, CHUNK_ENTRIES, lambda entry: entry.topic):
        if results:
            await services.scheduler.yield_()
        results += [await _find(services, context, entry) for entry in chunk]
    return ListOffsetsResponse(tuple(results))


async def _find(
    services: Services, context: RequestContext, entry: ListOffsetsPartition
) -> ListOffsetsResult:
    try:
        found = await services.offsets.find(
            context, entry.topic, entry.partition, entry.timestamp_ms
        )
    except ApiError as error:
        return ListOffsetsResult(
            entry.topic, entry.partition, error.code, error.message, -1, -1, -1
        )
    return ListOffsetsResult(
        entry.topic,
        entry.partition,
        ErrorCode.NONE,
        None,
        found.timestamp_ms,
        found.offset,
        found.leader_epoch,
    )
