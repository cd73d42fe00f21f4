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
from millrace_server.api_error import ApiError
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services
from millrace_server.services.split_ranges import OffsetRange


async def handle(
    services: Services, context: RequestContext, request: SplitRangesRequest
) -> SplitRangesResponse:
    """Answers each range for itself; each is a chunk of its own, and a long one several."""
    results: list[PartitionPieces] = []
    pieces_left = PIECES_MAX
    for asked in request.partitions:
        if results:
            await services.scheduler.yield_()
        results.append(await _split(services, context, asked, pieces_left))
        pieces_left -= len(results[-1].pieces)
    return SplitRangesResponse(tuple(results))


async def _split(
    services: Services, context: RequestContext, asked: PartitionRange, pieces_max: int
) -> PartitionPieces:
    wanted = OffsetRange(asked.topic, asked.partition, asked.start_offset, asked.end_offset)
    try:
        found = await services.ranges.split(
            context, wanted, piece_bytes=asked.piece_bytes, pieces_max=pieces_max
        )
    except ApiError as refused:
        return PartitionPieces(asked.topic, asked.partition, refused.code, refused.message, -1, ())
    return PartitionPieces(
        asked.topic,
        asked.partition,
        ErrorCode.NONE,
        None,
        found.leader_epoch,
        tuple(RangePiece(piece.end_offset, piece.size_bytes) for piece in found.pieces),
    )
