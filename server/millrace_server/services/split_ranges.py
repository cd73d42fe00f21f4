"""SplitRanges: a range of a partition's offsets in pieces of about as many bytes."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.log import Piece
from millrace_server.loop.fair_scheduler import FairScheduler
from millrace_server.partitions.partition import Partition

PIECES_AT_ONCE = 50
"""Cut in one go, some 200 us; reading the indexes that this takes is as much again."""


async def split_range(
    partition: Partition,
    start_offset: int,
    *,
    end_offset: int,
    piece_bytes: int,
    pieces_max: int,
    scheduler: FairScheduler,
) -> list[Piece]:
    """The first `pieces_max` pieces of a range, whose end is exclusive.

    Knows only what consumers may read. Raises `ApiError`, `OffsetOutOfRange` and what a disk does,
    also when retention has taken meanwhile what is still to be cut.
    """
    if piece_bytes < 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"piece_bytes is {piece_bytes}; it is 1 byte at least"
        )
    if start_offset > end_offset:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The range begins at {start_offset} and ends before that, at {end_offset}",
        )
    for offset in (start_offset, end_offset):
        partition.check_readable(offset)
    pieces: list[Piece] = []
    reached = start_offset
    while reached < end_offset and len(pieces) < pieces_max:
        if pieces:
            await scheduler.yield_()
        pieces += partition.split(
            reached,
            end_offset=end_offset,
            piece_bytes=piece_bytes,
            pieces_max=min(PIECES_AT_ONCE, pieces_max - len(pieces)),
        )
        reached = pieces[-1].end_offset
    return pieces
