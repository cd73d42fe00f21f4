"""SplitRanges: ranges of offsets in pieces of about as many bytes."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.split_ranges import (
    PIECES_MAX,
    PartitionPieces,
    PartitionRange,
    RangePiece,
    SplitRangesRequest,
    SplitRangesResponse,
)
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services
from millrace_server.services.split_ranges import split_range


async def handle(
    services: Services, context: RequestContext, request: SplitRangesRequest
) -> SplitRangesResponse:
    """Answers each range for itself; each is a chunk of its own, and a long one several."""
    results: list[PartitionPieces] = []
    pieces_left = PIECES_MAX
    for asked in request.partitions:
        if results:
            await services.scheduler.yield_()
        results.append(await _split(services, asked, pieces_left))
        pieces_left -= len(results[-1].pieces)
    return SplitRangesResponse(tuple(results))


async def _split(services: Services, asked: PartitionRange, pieces_max: int) -> PartitionPieces:
    try:
        partition = services.partitions.get(asked.topic, asked.partition)
        pieces = await split_range(
            partition,
            asked.start_offset,
            end_offset=asked.end_offset,
            piece_bytes=asked.piece_bytes,
            pieces_max=pieces_max,
            scheduler=services.scheduler,
        )
    except CORE_ERRORS as error:
        refused = as_api_error(error)
        return PartitionPieces(asked.topic, asked.partition, refused.code, refused.message, -1, ())
    return PartitionPieces(
        asked.topic,
        asked.partition,
        ErrorCode.NONE,
        None,
        partition.leader_epoch,
        tuple(RangePiece(piece.end_offset, piece.size_bytes) for piece in pieces),
    )
