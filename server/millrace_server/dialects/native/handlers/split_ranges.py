"""SplitRanges: ranges of offsets in pieces of about as many bytes."""

from __future__ import annotations

from collections.abc import Generator

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.split_ranges import (
    PIECES_MAX,
    PartitionPieces,
    PartitionRange,
    RangePiece,
    SplitRangesRequest,
    SplitRangesResponse,
)
from millrace_server.broker import Broker
from millrace_server.dialects.native.answer import AnswerPieces
from millrace_server.net.connection import Connection
from millrace_server.partitions.core_errors import CORE_ERRORS, as_api_error
from millrace_server.services.split_ranges import split_range


def handle(broker: Broker, connection: Connection, request: SplitRangesRequest) -> AnswerPieces:
    """Answers each range for itself, and lets others go after each of them and within long ones."""
    results: list[PartitionPieces] = []
    pieces_left = PIECES_MAX
    for asked in request.partitions:
        results.append((yield from _split(broker, asked, pieces_left)))
        pieces_left -= len(results[-1].pieces)
        yield None
    return SplitRangesResponse(tuple(results))


def _split(
    broker: Broker, asked: PartitionRange, pieces_max: int
) -> Generator[None, None, PartitionPieces]:
    try:
        partition = broker.partitions.get(asked.topic, asked.partition)
        pieces = yield from split_range(
            partition,
            asked.start_offset,
            end_offset=asked.end_offset,
            piece_bytes=asked.piece_bytes,
            pieces_max=pieces_max,
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
