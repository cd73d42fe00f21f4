"""OffsetForLeaderEpoch: where the records of a leader epoch end."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.leader_epochs import (
    EpochEndResult,
    EpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from millrace_server.api_error import ApiError
from millrace_server.dialects.native.handlers.outcome import outcome
from millrace_server.loop.fair_scheduler import chunks
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

CHUNK_ENTRIES = 50
"""Epochs looked up in one chunk, some 200 us."""
NONE = -1


async def handle(
    services: Services, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Answers each entry for itself."""
    results: list[EpochEndResult] = []
    for chunk in chunks(request.partitions, CHUNK_ENTRIES, lambda entry: entry.topic):
        if results:
            await services.scheduler.yield_()
        results += [_find(services, context, entry) for entry in chunk]
    return OffsetForLeaderEpochResponse(tuple(results))


def _find(services: Services, context: RequestContext, entry: EpochPartition) -> EpochEndResult:
    where = entry.topic, entry.partition
    try:
        found = services.offsets.epoch_end(
            context, *where, entry.leader_epoch, current_epoch=entry.current_leader_epoch
        )
    except ApiError as error:
        return EpochEndResult(*where, *outcome(error), NONE, NONE)
    if found is None:
        return EpochEndResult(*where, ErrorCode.NONE, None, NONE, NONE)
    return EpochEndResult(*where, ErrorCode.NONE, None, *found)
