"""Fetch: record batches from partitions, with a long poll."""

from __future__ import annotations

from millrace_protocol.primitives import INT16, INT32, INT64, NULLABLE_STRING, RECORDS, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire


@message
class FetchPartition(Message):
    """A position in one partition."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    leader_epoch: int = wire(INT32, "the leader epoch the client knows; -1 for none")
    fetch_offset: int = wire(INT64, "offset of the first record wanted")
    max_bytes: int = wire(INT32, "most bytes of this partition", unit="bytes")


@message
class FetchRequest(Request):
    """Reads partitions; waits for data up to a limit."""

    max_wait_ms: int = wire(INT32, "longest wait for min_bytes", unit="ms")
    min_bytes: int = wire(INT32, "respond as soon as this much is there; 0: at once", unit="bytes")
    max_bytes: int = wire(INT32, "most bytes of records in the response", unit="bytes")
    partitions: tuple[FetchPartition, ...] = wire(
        array_of(FetchPartition), "filled in this order until max_bytes is reached"
    )
    rack: str | None = wire(
        NULLABLE_STRING, "where the client is; null: it reads from leaders alone", default=None
    )


@message
class FetchPartitionResult(Message):
    """The records of one partition."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, "error of this partition (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    high_watermark: int = wire(INT64, "first offset a consumer may not read yet; -1 if unknown")
    log_start_offset: int = wire(INT64, "first offset still in the partition; -1 if unknown")
    preferred_replica: int = wire(
        INT32, "broker in the client's rack to read from next; -1: the leader"
    )
    records: bytes | memoryview = wire(
        RECORDS,
        "whole record batches; the first may begin before fetch_offset (skip those records)",
        unit="bytes",
    )


@message
class FetchResponse(Message):
    """One result per partition of the request, in its order."""

    partitions: tuple[FetchPartitionResult, ...] = wire(
        array_of(FetchPartitionResult), "the results"
    )
