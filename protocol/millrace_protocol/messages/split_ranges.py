"""SplitRanges: ranges of offsets cut into pieces of about equal bytes, by the broker's index."""

from __future__ import annotations

from millrace_protocol.primitives import INT16, INT32, INT64, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire

PIECES_MAX = 2_000
"""How many pieces one answer holds, of all its partitions together (W-4.23.2)."""


@message
class PartitionRange(Message):
    """A range to cut."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    start_offset: int = wire(INT64, "where the range begins; not below the log's start")
    end_offset: int = wire(INT64, "where it ends, exclusive; not above the high watermark")
    piece_bytes: int = wire(INT64, "size of a piece; at least 1", unit="bytes")


@message
class SplitRangesRequest(Request):
    """Asks for the pieces of ranges."""

    partitions: tuple[PartitionRange, ...] = wire(
        array_of(PartitionRange), "a partition may be named more than once"
    )


@message
class RangePiece(Message):
    """One piece. It begins where the one before it ends, the first where the range begins."""

    end_offset: int = wire(INT64, "where the piece ends, exclusive")
    size_bytes: int = wire(INT64, "bytes on the broker's disk", unit="bytes")


@message
class PartitionPieces(Message):
    """The pieces of one range."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, "error of this partition (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    leader_epoch: int = wire(INT32, "epoch of the partition's leader")
    pieces: tuple[RangePiece, ...] = wire(
        array_of(RangePiece), "in order; the answer is full if the last ends before the range"
    )


@message
class SplitRangesResponse(Message):
    """One result per range, in its order."""

    partitions: tuple[PartitionPieces, ...] = wire(array_of(PartitionPieces), "the results")
