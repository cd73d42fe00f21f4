"""Produce: append record batches, one per named partition."""

from __future__ import annotations

from millrace_protocol.primitives import INT16, INT32, INT64, NULLABLE_STRING, RECORDS, STRING
from millrace_protocol.schema import Message, Request, array_of, message, wire


@message
class ProducePartition(Message):
    """A batch for one partition."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    records: bytes | memoryview = wire(RECORDS, "exactly one record batch (W-5)", unit="bytes")


@message
class ProduceRequest(Request):
    """Appends batches; `acks` chooses when the broker responds."""

    acks: int = wire(
        INT16, "0: no answer at all; 1: the leader has it; -1: all in-sync replicas have it"
    )
    timeout_ms: int = wire(INT32, "longest wait for that", unit="ms")
    partitions: tuple[ProducePartition, ...] = wire(
        array_of(ProducePartition), "a partition may be named once"
    )


@message
class ProducePartitionResult(Message):
    """The result of one partition's batch."""

    topic: str = wire(STRING, "topic name")
    partition: int = wire(INT32, "partition number")
    error_code: int = wire(INT16, "error of this partition (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    base_offset: int = wire(INT64, "offset of the batch's first record; -1 on error")
    log_append_time_ms: int = wire(
        INT64, "the broker's time when the topic uses it, else -1", unit="ms since the epoch"
    )
    log_start_offset: int = wire(
        INT64, "first offset still in the partition; -1 on errors but UNKNOWN_PRODUCER_ID"
    )


@message
class ProduceResponse(Message):
    """One result per partition of the request, in its order."""

    partitions: tuple[ProducePartitionResult, ...] = wire(
        array_of(ProducePartitionResult), "the results"
    )
