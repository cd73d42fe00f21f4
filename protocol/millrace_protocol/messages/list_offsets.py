"""ListOffsets: the ends of a partition, and the offset of a point in time."""

from __future__ import annotations

from millrace_protocol.primitives import INT16, INT32, INT64, NULLABLE_STRING, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire

LATEST = -1
"""Asks for the high watermark: the offset of the next record to become readable."""
EARLIEST = -2
"""Asks for the first offset still in the log."""
MAX_TIMESTAMP = -3
"""Asks for the record with the largest timestamp."""


@message
class ListOffsetsPartition(Message):
    """A partition, and a time or a named offset."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    timestamp_ms: int = wire(
        INT64,
        "first offset with at least this timestamp; -1 latest, -2 earliest, -3 largest timestamp",
        unit="ms since the epoch",
    )


@message
class ListOffsetsRequest(Request):
    """Asks for offsets; each entry is answered separately."""

    partitions: tuple[ListOffsetsPartition, ...] = wire(
        array_of(ListOffsetsPartition), "a partition may be named more than once"
    )


@message
class ListOffsetsResult(Message):
    """The offset that was found."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, "error of this partition (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    timestamp_ms: int = wire(
        INT64,
        "timestamp of the record found; -1 for earliest, latest and none",
        unit="ms since the epoch",
    )
    offset: int = wire(INT64, "the offset; -1 when there is none")
    leader_epoch: int = wire(INT32, "epoch of the partition's leader")


@message
class ListOffsetsResponse(Message):
    """One result per entry of the request, in its order."""

    partitions: tuple[ListOffsetsResult, ...] = wire(array_of(ListOffsetsResult), "the results")
